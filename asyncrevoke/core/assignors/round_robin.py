"""``roundrobin``: all partitions of all topics, dealt out like cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.assignors.assignor import Assignment, RebalanceProtocol
from asyncrevoke.core.assignors.member_order import static_first
from asyncrevoke.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from asyncrevoke.core.assignors.member import Member


class RoundRobinAssignor:
    """Java's RoundRobinAssignor: even, if all members are subscribed to the same topics."""

    name = "roundrobin"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, generation: int, owned: Collection[TopicPartition]) -> None:  # noqa: ARG002
        """Nothing."""
        return

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Sequence[Member]
    ) -> Assignment:
        """Deal in order of topic, then partition; who is not subscribed is passed over."""
        assignment: Assignment = {member.member_id: [] for member in members}
        circle = [
            (member.member_id, frozenset(member.subscription.topics))
            for member in static_first(members)
        ]
        subscribed = frozenset[str]().union(*(topics for _, topics in circle))
        turn = 0
        for topic in sorted(subscribed & partitions.keys()):
            for number in partitions[topic]:
                while topic not in circle[turn][1]:
                    turn = (turn + 1) % len(circle)
                assignment[circle[turn][0]].append(TopicPartition(topic, number))
                turn = (turn + 1) % len(circle)
        return assignment
