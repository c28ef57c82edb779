"""Gives members partitions in their racks if they are subscribed to different topics (KIP-881).

As in Java: a partition that its owner would read across racks is free, if another subscriber is in
one of its racks. A free partition goes to the lightest subscriber in its racks; a member without a
rack is in all. Even counts come before racks: when they are even, members keep the partitions in
their racks up to their counts, and the rest goes to members in its racks, or to its former owner.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from asyncrevoke.client.core.assignors.assignor import Assignment
    from asyncrevoke.client.core.assignors.loads import PartitionCounts
    from asyncrevoke.client.core.assignors.racks import Racks


class RackPlacing:
    """``beside_owners`` is the part of ``owned`` that its owners may keep."""

    def __init__(
        self, racks: Racks, topics_of: Mapping[str, Collection[str]], owned: Assignment
    ) -> None:
        self._racks = racks
        # Topic -> the racks of its subscribers, None for one without.
        here: dict[str, set[str | None]] = {}
        for member_id, topics in topics_of.items():
            for topic in topics:
                here.setdefault(topic, set()).add(racks.of_member(member_id))
        self.beside_owners: Assignment = {member_id: [] for member_id in owned}
        self._former: dict[TopicPartition, str] = {}
        for member_id, mine in owned.items():
            for tp in mine:
                anyone = here[tp.topic]
                if not racks.match(member_id, tp) and (
                    None in anyone or not racks.of_partition(tp).isdisjoint(anyone)
                ):
                    self._former[tp] = member_id
                else:
                    self.beside_owners[member_id].append(tp)
        # Topic and member -> the partitions that were placed in its rack.
        self._placed: dict[tuple[int, int], list[int]] = {}

    def place_free(self, loads: PartitionCounts, partitions: Mapping[str, Sequence[int]]) -> None:
        """Give each free partition to the lightest subscriber in its racks, if there is one; those
        with the least choice first."""
        for topic, name in enumerate(loads.topics):
            taken = {number for mine in loads.owned[topic].values() for number in mine}
            free = [TopicPartition(name, n) for n in partitions[name] if n not in taken]
            heaps: dict[str | None, list[tuple[int, int]]] = {}
            for member in loads.subscribers[topic] if free else ():
                rack = self._racks.of_member(loads.members[member])
                heaps.setdefault(rack, []).append((loads.counts[member], member))
            for heap in heaps.values():
                heapq.heapify(heap)
            across = 0
            for tp in self._racks.fewest_first(free):
                found = self._lightest(loads, heaps, tp)
                if found is None:
                    across += 1
                else:
                    loads.give(topic, found)
                    self._placed.setdefault((topic, found), []).append(tp.partition)
            for _ in range(across):
                loads.give(topic, loads.lightest(topic))

    def _lightest(
        self,
        loads: PartitionCounts,
        heaps: Mapping[str | None, list[tuple[int, int]]],
        tp: TopicPartition,
    ) -> int | None:
        found: tuple[int, int] | None = None
        for rack in (None, *sorted(self._racks.of_partition(tp))):
            heap = heaps.get(rack)
            if not heap:
                continue
            while (now := loads.counts[heap[0][1]]) != heap[0][0]:  # it can only have grown
                heapq.heapreplace(heap, (now, heap[0][1]))
            found = heap[0] if found is None else min(found, heap[0])
        return None if found is None else found[1]

    def name_free(
        self, loads: PartitionCounts, topic: int, free: list[int], missing: Mapping[int, int]
    ) -> Iterator[tuple[int, int]]:
        """Members and the numbers that they get of this topic, which are removed from ``free``. The
        caller updates ``missing``, how many each member is to get, after each."""
        left = set(free)
        for member in missing:
            for number in sorted(self._placed.get((topic, member), ()))[: missing[member]]:
                left.discard(number)
                yield member, number
        name = loads.topics[topic]
        waiting: dict[str | None, list[int]] = {}
        for member in sorted(missing, reverse=True):
            rack = self._racks.of_member(loads.members[member])
            waiting.setdefault(rack, []).append(member)
        for number in sorted(left):
            for rack in (*sorted(self._racks.of_partition(TopicPartition(name, number))), None):
                those = waiting.get(rack, [])
                while those and missing[those[-1]] <= 0:
                    those.pop()
                if those:
                    left.discard(number)
                    yield those[-1], number
                    break
        by_id = {loads.members[member]: member for member in missing}
        for number in sorted(left):
            former = by_id.get(self._former.get(TopicPartition(name, number), ""))
            if former is not None and missing[former] > 0:
                left.discard(number)
                yield former, number
        free[:] = sorted(left)
