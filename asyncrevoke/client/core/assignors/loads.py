"""How many partitions each member has, and how they are moved until that is even."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from asyncrevoke.client.core.assignors.assignor import Assignment

# For a topic: members and the numbers of free partitions that they get, which are removed from the
# free ones. How many each is to get is updated after each.
NameFree: TypeAlias = Callable[[int, list[int], Mapping[int, int]], Iterator[tuple[int, int]]]

# The limit of steps in searches: these, and n log n times so many.
_FEWEST_STEPS = 2_000
_STEPS = 2


class PartitionCounts:
    """How many partitions of each topic each member has. Members and topics are numbers here, their
    indices in ``members`` and ``topics``."""

    def __init__(
        self,
        partitions: Mapping[str, Sequence[int]],
        topics_of: Mapping[str, Collection[str]],
        owned: Assignment,
    ) -> None:
        self.members = sorted(topics_of)
        subscribers: dict[str, list[int]] = {topic: [] for topic in partitions}
        for member, member_id in enumerate(self.members):
            for topic in topics_of[member_id]:
                subscribers[topic].append(member)
        # Topics with little choice come first, since what comes later can still even out.
        self.topics = sorted(partitions, key=lambda topic: (len(subscribers[topic]), topic))
        index = {topic: number for number, topic in enumerate(self.topics)}
        self.subscribers = [subscribers[topic] for topic in self.topics]
        self.topics_of = [
            sorted(index[topic] for topic in topics_of[member_id]) for member_id in self.members
        ]
        self.owned: list[dict[int, list[int]]] = [{} for _ in self.topics]
        for member, member_id in enumerate(self.members):
            for topic, number in sorted(owned[member_id]):
                self.owned[index[topic]].setdefault(member, []).append(number)
        self.own = [{m: len(mine) for m, mine in held.items()} for held in self.owned]
        self.held = [dict(own) for own in self.own]
        self.free = [
            len(partitions[topic]) - sum(held.values())
            for topic, held in zip(self.topics, self.held, strict=True)
        ]
        self.counts = [len(owned[member_id]) for member_id in self.members]
        # (load, member) of each topic's subscribers; entries may be out of date, see lightest.
        self._heaps: list[list[tuple[int, int]]] = []
        self._sort_subscribers()
        # Of each member, the topics of which it has more than it owned, and those of which it has
        # no more, as heaps; entries may be out of date.
        self._spare: list[list[int]] = []
        self._kept: list[list[int]] = []
        size = sum(map(len, self.subscribers)) + sum(map(len, partitions.values()))
        self._allowance = _FEWEST_STEPS + _STEPS * size * size.bit_length()

    def _sort_subscribers(self) -> None:
        self._heaps = [[(self.counts[m], m) for m in those] for those in self.subscribers]
        for heap in self._heaps:
            heapq.heapify(heap)

    def place_free(self) -> None:
        """Give each free partition to the lightest subscriber of its topic."""
        for topic, free in enumerate(self.free):
            for _ in range(free):
                self.give(topic, self.lightest(topic))

    def give(self, topic: int, member: int) -> None:
        """Give one of a topic's free partitions to a member."""
        held = self.held[topic]
        held[member] = held.get(member, 0) + 1
        self.counts[member] += 1

    def level(self, *, free_only: bool) -> None:
        """Move partitions from members with many to members with few until none can be moved.

        The counts of members that give never rise, and the lowest counts never fall: a topic whose
        lightest subscriber has too many is *closed* for good, and a member that gives never takes.
        """
        self._sort_subscribers()
        self._sort_held()
        closed = bytearray(len(self.topics))
        floor = min(self.counts) + 1
        heaviest = [(-load, member) for member, load in enumerate(self.counts)]
        heapq.heapify(heaviest)
        exhausted: set[int] = set()
        allowance = Allowance(self._allowance)
        while heaviest:
            load, giver = heapq.heappop(heaviest)
            if -load <= floor:
                return
            if -load != self.counts[giver] or giver in exhausted:
                continue
            chain = self._direct(giver, closed, free_only) or self._search(
                giver, free_only, exhausted, allowance
            )
            if not chain:
                continue
            for source, topic, target in chain:
                self._move(source, topic, target)
            heapq.heappush(heaviest, (-self.counts[giver], giver))
            taker = chain[-1][2]
            heapq.heappush(heaviest, (-self.counts[taker], taker))

    def _sort_held(self) -> None:
        self._spare = [[] for _ in self.members]
        self._kept = [[] for _ in self.members]
        for topic, (held, own) in enumerate(zip(self.held, self.own, strict=True)):
            for member, count in held.items():
                if count > own.get(member, 0):
                    self._spare[member].append(topic)
                elif count:
                    self._kept[member].append(topic)

    def restore(self) -> None:
        """Undo moves of owned partitions that were not needed. Each step lowers their number, so
        this ends."""
        self._sort_held()
        allowance = Allowance(self._allowance)
        lacking = [
            (topic, owner)
            for topic, own in enumerate(self.own)
            for owner, count in own.items()
            if self.held[topic].get(owner, 0) < count
        ]
        again = True
        while again:
            again = False
            for topic, owner in lacking:
                held, count = self.held[topic], self.own[topic][owner]
                while held.get(owner, 0) < count and self._restore_one(topic, owner, allowance):
                    again = True

    def _restore_one(self, topic: int, owner: int, allowance: Allowance) -> bool:
        held, own = self.held[topic], self.own[topic]
        if not allowance.take(len(held)):
            return False
        holders = [member for member, count in sorted(held.items()) if count > own.get(member, 0)]
        heaviest = max(holders, key=lambda member: self.counts[member])
        if self.counts[owner] < self.counts[heaviest]:
            self._move(heaviest, topic, owner)
            return True
        # The owner must give one that it does not own: to a light member, or to a holder.
        limit = self.counts[heaviest] - 1
        search = _Search(self, owner, limit, allowance, ends=frozenset(holders))
        if not self._spread_spare(search, [owner]):
            return False
        steps = search.chain()
        end = steps[-1][2]
        self._move(end if end in holders else heaviest, topic, owner)
        for source, through, target in steps:
            self._move(source, through, target)
        return True

    def assignment(
        self, partitions: Mapping[str, Sequence[int]], name_free: NameFree | None
    ) -> Assignment:
        """Name the partitions: owners keep their lowest ones, the others get those of ``name_free``
        and then the rest."""
        result: Assignment = {member_id: [] for member_id in self.members}
        for topic, name in sorted(enumerate(self.topics), key=lambda entry: entry[1]):
            held, owned = self.held[topic], self.owned[topic]
            kept = {member: mine[: held.get(member, 0)] for member, mine in sorted(owned.items())}
            taken = {number for mine in kept.values() for number in mine}
            free = [number for number in partitions[name] if number not in taken]
            missing = {
                member: count - len(kept.get(member, ()))
                for member in self.subscribers[topic]
                if (count := held.get(member, 0)) > len(kept.get(member, ()))
            }
            if name_free is not None:
                for member, number in name_free(topic, free, missing):
                    kept.setdefault(member, []).append(number)
                    missing[member] -= 1
            rest = iter(free)
            for member in self.subscribers[topic]:
                mine = kept.get(member, [])
                more = missing.get(member, 0)
                mine = sorted([*mine, *(next(rest) for _ in range(more))])
                result[self.members[member]] += [TopicPartition(name, n) for n in mine]
        return result

    def _move(self, source: int, topic: int, target: int) -> None:
        held, own = self.held[topic], self.own[topic]
        left = held[source] = held[source] - 1
        if left and left == own.get(source, 0):
            heapq.heappush(self._kept[source], topic)
        more = held[target] = held.get(target, 0) + 1
        owned = own.get(target, 0)
        if more == owned + 1:
            heapq.heappush(self._spare[target], topic)
        elif more == 1:
            heapq.heappush(self._kept[target], topic)
        self.counts[source] -= 1
        self.counts[target] += 1

    def lightest(self, topic: int) -> int:
        """The first subscriber with the smallest count. An entry of a count that grew is corrected
        here; one of a count that shrank is too high, and hides only members that take nothing."""
        heap = self._heaps[topic]
        while True:
            load, member = heap[0]
            now = self.counts[member]
            if load == now:
                return member
            heapq.heapreplace(heap, (now, member))

    def _direct(self, giver: int, closed: bytearray, free_only: bool) -> list[tuple[int, int, int]]:
        """One step to a member with fewer by two or more; preferably a partition not owned."""
        limit = self.counts[giver] - 2
        for topics, spare in ((self._spare[giver], True), (self._kept[giver], False)):
            if not spare and free_only:
                break
            while topics:
                topic = topics[0]
                count, own = self.held[topic].get(giver, 0), self.own[topic].get(giver, 0)
                if not closed[topic] and (count > own if spare else 0 < count <= own):
                    taker = self.lightest(topic)
                    if self.counts[taker] <= limit:
                        return [(giver, topic, taker)]
                    closed[topic] = 1
                heapq.heappop(topics)
        return []

    def _search(
        self, giver: int, free_only: bool, exhausted: set[int], allowance: Allowance
    ) -> list[tuple[int, int, int]]:
        """The chain that moves the fewest owned partitions. Without one, all members that were
        reached are exhausted: no later chain passes them."""
        if allowance.is_spent:
            return []
        search = _Search(self, giver, self.counts[giver] - 2, allowance, passed=exhausted)
        members = [giver]
        while members:
            needs_owned: list[tuple[int, int]] = []
            if self._spread(search, members, needs_owned):
                return search.chain()
            members.clear()
            if not free_only:
                for member, topic in needs_owned:
                    if topic not in search.seen and search.reach(member, topic, members):
                        return search.chain()
        if not allowance.is_spent:
            exhausted.update(search.came_from)
        return []

    def _spread(
        self, search: _Search, members: list[int], needs_owned: list[tuple[int, int]]
    ) -> bool:
        """Follow all that ``members``, and those reached from them, have and do not own. True at an
        end; ``needs_owned`` gets what they have and own."""
        for member in members:  # grows while it is gone through
            if not search.allowance.take(len(self.topics_of[member])):
                return False
            for topic in self.topics_of[member]:
                count = 0 if topic in search.seen else self.held[topic].get(member, 0)
                if count > self.own[topic].get(member, 0):
                    if search.reach(member, topic, members):
                        return True
                elif count:
                    needs_owned.append((member, topic))
        return False

    def _spread_spare(self, search: _Search, members: list[int]) -> bool:
        """The same by the topics that are listed as spare, without what members own."""
        for member in members:  # grows while it is gone through
            topics = sorted(set(self._spare[member]))
            if not search.allowance.take(1 + len(topics)):
                return False
            for topic in topics:
                count, own = self.held[topic].get(member, 0), self.own[topic].get(member, 0)
                if topic in search.seen or count <= own:
                    continue
                if search.reach(member, topic, members):
                    return True
        return False


class Allowance:
    """The steps that searches have left, so that no group costs much more than its size. Beyond
    them the result is a little less even, or moves a partition too many."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    @property
    def is_spent(self) -> bool:
        """Whether none is left."""
        return self._left <= 0

    def take(self, steps: int) -> bool:
        """Use steps; False if none was left."""
        if self._left <= 0:
            return False
        self._left -= steps
        return True


class _Search:
    """The way from a member over topics to one with a count of at most ``limit``, or in ``ends``,
    but not over those in ``passed``."""

    def __init__(
        self,
        loads: PartitionCounts,
        giver: int,
        limit: int,
        allowance: Allowance,
        *,
        ends: Collection[int] = (),
        passed: Collection[int] = (),
    ) -> None:
        self._loads = loads
        self._limit = limit
        self._ends = ends
        self._passed = passed
        self._end = giver
        self.allowance = allowance
        # member -> the member before it and the topic between them
        self.came_from: dict[int, tuple[int, int]] = {giver: (giver, -1)}
        self.seen: set[int] = set()

    def reach(self, member: int, topic: int, members: list[int]) -> bool:
        """Step on to the other subscribers of ``topic``; True if one of them is an end."""
        self.seen.add(topic)
        subscribers = self._loads.subscribers[topic]
        self.allowance.take(len(subscribers))
        for other in subscribers:
            if other in self.came_from or other in self._passed:
                continue
            self.came_from[other] = (member, topic)
            members.append(other)
            if self._loads.counts[other] <= self._limit or other in self._ends:
                self._end = other
                return True
        return False

    def chain(self) -> list[tuple[int, int, int]]:
        """The steps (giver, topic, taker) to the member that was found."""
        steps: list[tuple[int, int, int]] = []
        taker = self._end
        while True:
            giver, topic = self.came_from[taker]
            if topic < 0:
                return steps[::-1]
            steps.append((giver, topic, taker))
            taker = giver
