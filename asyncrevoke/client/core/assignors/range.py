"""``range``: of each topic, consecutive partitions to each member."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from asyncrevoke.client.core.assignors.assignor import Assignment, RebalanceProtocol
from asyncrevoke.client.core.assignors.member import Member, static_first
from asyncrevoke.client.core.assignors.racks import PartitionRacks, Racks
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


class RangeAssignor:
    """Java's RangeAssignor.

    Topics with the same number of partitions and the same subscribers are co-partitioned: a member
    gets the same partition numbers of each. The first members of each topic get one partition more
    if it does not divide evenly, so that the load is uneven over many topics.
    """

    name = "range"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, generation: int, owned: Collection[TopicPartition]) -> None:  # noqa: ARG002
        """Nothing."""
        return

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Sequence[Member]
    ) -> Assignment:
        """Assign each topic by itself."""
        return self.assign_by_rack(partitions, members, {})

    def assign_by_rack(
        self,
        partitions: Mapping[str, Sequence[int]],
        members: Sequence[Member],
        racks: PartitionRacks,
    ) -> Assignment:
        """The same shares; members first get partitions in their racks, and the same numbers of
        co-partitioned topics where all of them are (KIP-881)."""
        subscribers: dict[str, list[Member]] = {}
        for member in static_first(members):
            for name in dict.fromkeys(member.subscription.topics):
                subscribers.setdefault(name, []).append(member)
        topics = [
            _Topic(name, partitions[name], subscribers[name], racks)
            for name in sorted(subscribers.keys() & partitions.keys())
        ]
        if any(topic.racks.useful for topic in topics):
            _match_racks(topics)
        assignment: Assignment = {member.member_id: [] for member in members}
        for topic in topics:
            topic.deal()
            for member_id, numbers in topic.taken.items():
                assignment[member_id] += [TopicPartition(topic.name, n) for n in sorted(numbers)]
        return assignment


class _Topic:
    """One topic: what each subscriber has, and what is left."""

    def __init__(
        self,
        name: str,
        numbers: Sequence[int],
        subscribers: Sequence[Member],
        racks: PartitionRacks,
    ) -> None:
        self.name = name
        self.size = len(numbers)
        self.left = dict.fromkeys(numbers)
        self.taken: dict[str, list[int]] = {member.member_id: [] for member in subscribers}
        self.subscribers = tuple(
            (member.member_id, member.subscription.rack) for member in subscribers
        )
        self.racks = Racks(subscribers, [TopicPartition(name, number) for number in numbers], racks)
        self._share, self._extra = divmod(len(numbers), len(subscribers))

    def room(self, member_id: str) -> int:
        """How many more partitions a member may take."""
        return max(0, self._share + (self._extra > 0) - len(self.taken[member_id]))

    def take(self, member_id: str, numbers: Iterable[int]) -> None:
        """Assign these to the member."""
        taken = self.taken[member_id]
        for number in numbers:
            taken.append(number)
            del self.left[number]
        if len(taken) > self._share:
            self._extra -= 1

    def racks_of(self, number: int) -> frozenset[str]:
        """Where one partition has replicas."""
        return self.racks.of_partition(TopicPartition(self.name, number))

    def deal(self) -> None:
        """Fill up the members in their order with what is left."""
        left = iter(list(self.left))
        for member_id in self.taken:
            if numbers := list(itertools.islice(left, self.room(member_id))):
                self.take(member_id, numbers)

    def deal_by_rack(self) -> None:
        """Fill up the members in their order with what of it is in their racks."""
        beside: dict[str | None, list[int]] = {None: list(self.left)}
        for number in self.left:
            for rack in self.racks_of(number):
                beside.setdefault(rack, []).append(number)
        queues = {rack: iter(numbers) for rack, numbers in beside.items()}
        for member_id in self.taken:
            queue = queues.get(self.racks.of_member(member_id), iter(()))
            able = (number for number in queue if number in self.left)
            if numbers := list(itertools.islice(able, self.room(member_id))):
                self.take(member_id, numbers)


def _match_racks(topics: Sequence[_Topic]) -> None:
    alike: dict[object, list[_Topic]] = {}
    for topic in topics:
        alike.setdefault((topic.subscribers, topic.size), []).append(topic)
    for group in alike.values():
        if len(group) > 1:
            _match_together(group)
        elif group[0].racks.useful:
            group[0].deal_by_rack()


def _match_together(topics: Sequence[_Topic]) -> None:
    """Co-partitioned topics: a number goes to a member only if it is in its rack everywhere.

    The members have the same room in all of them, and less and less of it.
    """
    one = topics[0]
    # The members of each rack, and their places in the order of all.
    waiting: dict[str | None, deque[tuple[int, str]]] = {}
    for place, member_id in enumerate(one.taken):
        waiting.setdefault(one.racks.of_member(member_id), deque()).append((place, member_id))
    for number in list(one.left):
        everywhere = one.racks_of(number).intersection(*(t.racks_of(number) for t in topics[1:]))
        found: list[tuple[int, str]] = []
        for rack in (None, *everywhere):
            members = waiting.get(rack)
            while members and not one.room(members[0][1]):
                members.popleft()
            if members:
                found.append(members[0])
        if found:
            _, member_id = min(found)
            for topic in topics:
                topic.take(member_id, (number,))
