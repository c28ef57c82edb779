"""``cooperative-sticky``: as even as possible, with as few moves as possible.

If all members are subscribed to the same topics, the result is Java's to the last partition:

1. A member keeps what it owns up to its quota, lowest partitions first. The quota is the rounded
   share; for the remainder, the first members (in Java's order) that own more keep one more.
2. Free partitions go one by one to the members below the share, in order.
3. The rest goes, one each, to members at the share.

Otherwise :func:`balance` finds the most even assignment. In both cases partitions that change their
owner are withheld in this round (``ownership.py``).
"""

from __future__ import annotations

import heapq
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.client.core.assignors.assignor import Assignment, RebalanceProtocol
from asyncrevoke.client.core.assignors.loads import PartitionCounts
from asyncrevoke.client.core.assignors.member import Member, hash_order
from asyncrevoke.client.core.assignors.ownership import (
    ReportedOwnership,
    encode_generation,
    withhold,
)
from asyncrevoke.client.core.assignors.racks import PartitionRacks, Racks
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence


class RackPlacing:
    """Gives members partitions in their racks if they are subscribed to different topics (KIP-881).
    ``beside_owners`` is the part of ``owned`` that its owners may keep.

    As in Java: a partition that its owner would read across racks is free, if another subscriber is
    in one of its racks. A free partition goes to the lightest subscriber in its racks; a member
    without a rack is in all. Even counts come before racks: when they are even, members keep the
    partitions in their racks up to their counts, and the rest goes to members in its racks, or to
    its former owner.
    """

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


def balance(
    partitions: Mapping[str, Sequence[int]],
    topics_of: Mapping[str, Collection[str]],
    owned: Assignment,
    racks: Racks | None = None,
) -> Assignment:
    """Assign every partition to one of its topic's subscribers, ``topics_of`` by member id, as
    evenly as possible.

    ``owned`` is what each member may keep. Each topic needs a subscriber. With ``racks``, members
    get partitions in their racks as long as the counts stay as even.

    Only *counts* are decided here: how many partitions of a topic a member has. First all members
    keep what they own, and each free partition goes to the subscriber with the fewest partitions.
    Then, from the member with the most downward, a partition moves to a member with fewer by two or
    more, directly or in a chain over members whose counts do not change. When there is no such
    chain, no assignment has a smaller sum of squared counts (Harvey, Ladner, Lovász and Tamir,
    "Semi-matchings for bipartite graphs and load balancing"). Java moves partitions directly only,
    so it is never more even.

    This is done twice, first with free partitions alone: an owned partition moves only if the free
    ones cannot even out the counts, and the group is stable after one more round. A member that no
    chain leaves takes part in no later one, nor do those reached from it, which keeps the search
    short. The steps of all searches are limited to n log n of the group's size; beyond that the
    result is a little less even, but not less than Java's.

    At the end, partitions return to their owners where the counts stay as even.

    With racks (KIP-881), a partition that its owner would read across racks counts as free, and
    free partitions first go to subscribers in their racks; even counts come before racks. See
    :class:`RackPlacing`.
    """
    placing = None if racks is None else RackPlacing(racks, topics_of, owned)
    loads = PartitionCounts(
        partitions, topics_of, owned if placing is None else placing.beside_owners
    )
    if placing is None:
        loads.place_free()
    else:
        placing.place_free(loads, partitions)
    loads.level(free_only=True)
    loads.level(free_only=False)
    loads.restore()
    name_free = None if placing is None else partial(placing.name_free, loads)
    return loads.assignment(partitions, name_free)


class CooperativeStickyAssignor:
    """Java's CooperativeStickyAssignor (KIP-429, KIP-792), with racks (KIP-881)."""

    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE})

    def user_data(self, generation: int, owned: Collection[TopicPartition]) -> bytes:  # noqa: ARG002
        """The generation, which Java leaders before 3.2 read only here."""
        return encode_generation(generation)

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Sequence[Member]
    ) -> Assignment:
        """Plan, then withhold. Owned partitions that no longer exist, or whose topic their owner
        has dropped, are free."""
        return self.assign_by_rack(partitions, members, {})

    def assign_by_rack(
        self,
        partitions: Mapping[str, Sequence[int]],
        members: Sequence[Member],
        racks: PartitionRacks,
    ) -> Assignment:
        """The same. Partitions outside their owner's rack are free; free partitions first go to
        members in their racks."""
        claims = ReportedOwnership(members)
        return withhold(plan(partitions, members, claims, racks), claims)


def plan(
    partitions: Mapping[str, Sequence[int]],
    members: Sequence[Member],
    claims: ReportedOwnership,
    partition_racks: PartitionRacks | None = None,
) -> Assignment:
    """The final assignment, whoever must release partitions first. Members without topics are
    leaving, and get none."""
    leaving = [member.member_id for member in members if not member.subscription.topics]
    if leaving:
        staying = [member for member in members if member.subscription.topics]
        return {
            **plan(partitions, staying, claims, partition_racks),
            **{member_id: [] for member_id in leaving},
        }
    topics_of = {
        member.member_id: partitions.keys() & member.subscription.topics for member in members
    }
    topics = sorted(set[str]().union(*topics_of.values()))
    everything = [TopicPartition(topic, n) for topic in topics for n in partitions[topic]]
    owned: Assignment = {member_id: [] for member_id in topics_of}
    for tp in everything:
        owner = claims.owners.get(tp)
        if owner in topics_of and tp.topic in topics_of[owner]:
            owned[owner].append(tp)
    known = Racks(members, everything, partition_racks or {})
    racks = known if known.useful else None
    if all(len(mine) == len(topics) for mine in topics_of.values()):
        return _fill_quotas(everything, owned, racks)
    return balance({topic: partitions[topic] for topic in topics}, topics_of, owned, racks)


def _fill_quotas(
    everything: Sequence[TopicPartition], owned: Assignment, racks: Racks | None
) -> Assignment:
    if not owned:
        return {}
    share, extra = divmod(len(everything), len(owned))
    shares: Assignment = {}
    at_share: list[str] = []
    for member_id in hash_order(list(owned)):
        mine = sorted(owned[member_id], key=lambda tp: (tp.partition, tp.topic))
        if racks is not None:
            mine = [tp for tp in mine if racks.match(member_id, tp)]
        if extra and len(mine) > share:
            extra -= 1
            shares[member_id] = mine[: share + 1]
        else:
            shares[member_id] = mine[:share]
            if len(mine) >= share:
                at_share.append(member_id)
    kept = {tp for mine in shares.values() for tp in mine}
    free = [tp for tp in everything if tp not in kept]
    below = sorted(member_id for member_id, mine in shares.items() if len(mine) < share)
    above = deque(sorted(at_share) if extra else ())
    if racks is not None:
        free = _fill_by_rack(free, shares, below, above, share, extra, racks)
    rest = iter(free)
    while below:
        for member_id in below:
            shares[member_id].append(next(rest))
        above.extend(member_id for member_id in below if len(shares[member_id]) == share)
        below = [member_id for member_id in below if len(shares[member_id]) < share]
    for tp in rest:
        shares[above.popleft()].append(tp)
    return {member_id: shares[member_id] for member_id in owned}


def _fill_by_rack(
    free: Sequence[TopicPartition],
    shares: Assignment,
    below: list[str],
    above: deque[str],
    share: int,
    extra: int,
    racks: Racks,
) -> list[TopicPartition]:
    """Give free partitions to members in their racks that have room; returns the rest.

    ``below`` are the members below the share, ``above`` those at it that may have one more, of
    which there are ``extra`` in all.
    """
    left: list[TopicPartition] = []
    low, high = racks.turns(below), racks.turns(above)
    turn = 0
    for tp in racks.fewest_first(free):
        if (found := low.beside(tp, turn)) is not None:
            place, member_id = found
            shares[member_id].append(tp)
            if len(shares[member_id]) >= share:
                low.remove(place)
                if extra:
                    high.append(member_id)
            turn = place + 1
        elif (found := high.beside(tp)) is not None:
            place, member_id = found
            shares[member_id].append(tp)
            high.remove(place)
            extra -= 1
            if not extra:
                high.clear()
        else:
            left.append(tp)
    below[:] = low
    above.clear()
    above.extend(high)
    return left
