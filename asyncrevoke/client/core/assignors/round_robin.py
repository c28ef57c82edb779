"""``roundrobin``: all partitions of all topics, dealt out like cards."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from asyncrevoke.client.core.assignors.assignor import Assignment, RebalanceProtocol
from asyncrevoke.client.core.assignors.member import Member, static_first
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


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
        circle = [member.member_id for member in static_first(members)]
        wanted = {member.member_id: member.subscription.topics for member in members}
        places: dict[str, list[int]] = {}
        for place, member_id in enumerate(circle):
            for topic in frozenset(wanted[member_id]) & partitions.keys():
                places.setdefault(topic, []).append(place)
        turn = 0
        for topic in sorted(places):
            subscribed = places[topic]
            for number in partitions[topic]:
                index = bisect_left(subscribed, turn)
                place = subscribed[index] if index < len(subscribed) else subscribed[0]
                assignment[circle[place]].append(TopicPartition(topic, number))
                turn = (place + 1) % len(circle)
        return assignment
