"""Members get partitions beside them where members are subscribed to different topics (KIP-881).

As Java's rule goes: a member that would read a partition across racks gives it up, if somebody
could read it beside; what is free goes to the lightest subscriber beside it, a member without a
rack being beside everything; and even loads come before racks. When the loads have been evened
out, members keep what they were given beside them as far as they are to have so many, and what is
left goes to members beside it, or else back to who had it.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from asyncrevoke.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from asyncrevoke.core.assignors.assignor import Assignment
    from asyncrevoke.core.assignors.loads import PartitionCounts
    from asyncrevoke.core.assignors.racks import Racks


class RackPlacing:
    """``beside_owners`` is what of ``owned`` its owners may keep."""

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
        # Topic and member -> the partitions that were placed beside it.
        self._placed: dict[tuple[int, int], list[int]] = {}

    def place_free(self, loads: PartitionCounts, partitions: Mapping[str, Sequence[int]]) -> None:
        """Give each free partition to the lightest subscriber beside it, if there is one; those
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
        """Members and numbers of this topic that go together; what is taken is removed from
        ``free``. ``missing`` is how many each member is to get, and is brought up to date by the
        caller after each."""
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
