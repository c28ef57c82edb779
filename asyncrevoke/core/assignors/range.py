"""``range``: of each topic, consecutive partitions to each member."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.assignors.assignor import Assignment, Member, RebalanceProtocol
from asyncrevoke.core.assignors.member_order import static_first
from asyncrevoke.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


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
        assignment: Assignment = {member.member_id: [] for member in members}
        subscribers: dict[str, list[str]] = {}
        for member in static_first(members):
            for topic in dict.fromkeys(member.subscription.topics):
                subscribers.setdefault(topic, []).append(member.member_id)
        for topic in sorted(subscribers.keys() & partitions.keys()):
            numbers = partitions[topic]
            share, extra = divmod(len(numbers), len(subscribers[topic]))
            start = 0
            for rank, member_id in enumerate(subscribers[topic]):
                end = start + share + (rank < extra)
                assignment[member_id] += [TopicPartition(topic, n) for n in numbers[start:end]]
                start = end
        return assignment
