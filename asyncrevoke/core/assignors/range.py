"""``range``: of each topic, consecutive partitions to each member."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from asyncrevoke.core.assignors.assignor import Assignment, RebalanceProtocol
from asyncrevoke.core.assignors.member_order import static_first
from asyncrevoke.core.assignors.racks import Racks
from asyncrevoke.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from asyncrevoke.core.assignors.member import Member
    from asyncrevoke.core.assignors.racks import PartitionRacks


class RangeAssignor:
    """Java's RangeAssignor.

    Topics with the same number of partitions and the same subscribers are co-partitioned: one
    member holds the same partition numbers of all of them. The first members of each topic hold
    one partition more if it does not divide evenly, so that the load is uneven over many topics.
    """

    name = "range"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, generation: int, owned: Collection[TopicPartition]) -> None:  # noqa: ARG002
        """Nothing."""
        return

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Sequence[Member]
    ) -> Assignment:
        """Deal out each topic by itself; partitions in order of topic, then partition."""
        return self.assign_by_rack(partitions, members, {})

    def assign_by_rack(
        self,
        partitions: Mapping[str, Sequence[int]],
        members: Sequence[Member],
        racks: PartitionRacks,
    ) -> Assignment:
        """The same shares; each member first takes partitions that are in its rack, and the same
        numbers of co-partitioned topics where they all are (KIP-881)."""
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
        for topic in topics:
            topic.deal(lambda _member_id, _number: True)
        return {
            member.member_id: [
                TopicPartition(topic.name, number)
                for topic in topics
                for number in sorted(topic.taken.get(member.member_id, ()))
            ]
            for member in members
        }


class _Topic:
    """One topic on its way: what each subscriber has taken, and what is left."""

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
        """These are the member's."""
        taken = self.taken[member_id]
        for number in numbers:
            taken.append(number)
            del self.left[number]
        if len(taken) > self._share:
            self._extra -= 1

    def matches(self, member_id: str, number: int) -> bool:
        """Whether a partition is in the member's rack."""
        return self.racks.match(member_id, TopicPartition(self.name, number))

    def deal(self, may_have: Callable[[str, int], bool]) -> None:
        """Fill up the members in their order, with what they may have of what is left."""
        for member_id in self.taken:
            able = (number for number in self.left if may_have(member_id, number))
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
            group[0].deal(group[0].matches)


def _match_together(topics: Sequence[_Topic]) -> None:
    """Co-partitioned topics: a number goes to a member only if it is in its rack everywhere."""
    able = list(topics[0].taken)
    for number in list(topics[0].left):
        for member_id in able:
            if all(t.matches(member_id, number) and t.room(member_id) for t in topics):
                for topic in topics:
                    topic.take(member_id, (number,))
                if not any(topic.room(member_id) for topic in topics):
                    able.remove(member_id)
                break
