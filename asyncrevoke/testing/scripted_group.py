"""Groups whose assignments a test controls."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from asyncrevoke.client.core.membership.classic.user_data import (
    AssignmentUserData,
    encode_assignment_user_data,
    has_mark,
    reads_maps,
)
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    JoinGroupRequest,
    JoinGroupResponse,
    Response,
    SyncGroupRequest,
    SyncGroupResponse,
)
from asyncrevoke.client.protocol.subscription import decode_subscription, encode_assignment
from asyncrevoke.testing.fake_kafka.classic_group import ClassicGroup
from asyncrevoke.testing.fake_kafka.consumer_group import ConsumerGroup, ConsumerGroupMember
from asyncrevoke.testing.fake_kafka.group_state import GroupMember, GroupState, Reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_OTHER = "other-member"
_OTHER_CLIENT = -1
_FOR_EVER = float("inf")


@dataclass
class ScriptedGroup(ClassicGroup):
    """A classic group with a simulated member that is the leader. It joins first, responds at once
    and never fails.

    It keeps the partitions in ``taken`` and assigns all others to the other members. It supports
    the protocols of each member that joins, so that tests can use any assignors.
    """

    topics: Mapping[str, Sequence[object]] = field(default_factory=dict[str, "Sequence[object]"])
    taken: set[TopicPartition] = field(default_factory=set[TopicPartition])

    def rebalance(self) -> None:
        """Begin a rebalance, at the request of the simulated member."""
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare()

    def evict(self) -> None:
        """Remove all members but the simulated one, as if their sessions had expired."""
        for member in self.others():
            self._respond_to_sync(member, SyncGroupResponse(error=ErrorCode.unknown_member_id))
            self._remove(member)
        self.rebalance()
        self._maybe_complete_join()

    def others(self) -> list[GroupMember]:
        """The members except the simulated one."""
        return [member for member in self.members.values() if member.member_id != _OTHER]

    def join_group(self, client: int, request: JoinGroupRequest, reply: Reply) -> None:
        """Respond to a JoinGroup. The first JoinGroup adds the simulated member before."""
        other = self.members.get(_OTHER)
        if other is None:
            self._group.add(
                GroupMember(
                    _OTHER,
                    _OTHER_CLIENT,
                    None,
                    _FOR_EVER,
                    0.0,
                    request.protocols,
                    join=self._other_joined,
                    is_new=False,
                )
            )
        elif not self.others():
            self._group.offer(other, request.protocols)
        super().join_group(client, request, reply)

    def _enter(self, state: GroupState) -> None:
        super()._enter(state)
        other = self.members.get(_OTHER)
        if state is GroupState.PREPARING and other is not None:
            other.join = self._other_joined

    def _other_joined(self, response: Response) -> None:
        assert isinstance(response, JoinGroupResponse)
        subscriptions = {
            member.member_id: decode_subscription(member.metadata)
            for member in response.members
            if member.member_id != _OTHER
        }
        # The simulated member uses this library, too.
        maps = all(reads_maps(subscription.user_data) for subscription in subscriptions.values())
        note = encode_assignment_user_data(
            AssignmentUserData(withheld=False, partitions=0, maps_are_read=maps)
        )
        assignments = tuple(
            (
                member_id,
                encode_assignment(
                    _share(self, subscription.topics),
                    note if has_mark(subscription.user_data) else b"",
                ),
            )
            for member_id, subscription in subscriptions.items()
        )
        request = SyncGroupRequest(
            group_id="",
            generation=response.generation,
            member_id=_OTHER,
            group_instance_id=None,
            protocol_name=response.protocol_name or "",
            assignments=assignments,
        )
        self.clock.after(0.0, lambda: self.sync_group(request, lambda _response: None))


@dataclass
class ScriptedEpochGroup(ConsumerGroup[ConsumerGroupMember]):
    """A KIP-848 group whose coordinator assigns all partitions except those in ``taken``."""

    topics: Mapping[str, Sequence[object]] = field(default_factory=dict[str, "Sequence[object]"])
    taken: set[TopicPartition] = field(default_factory=set[TopicPartition])

    def rebalance(self) -> None:
        """Compute a new target assignment."""
        self._bump()

    def evict(self) -> None:
        """Remove all members, as if their sessions had expired."""
        for member in list(self.members.values()):
            self.remove(member)

    def others(self) -> list[ConsumerGroupMember]:
        """All members, because this group has no simulated member."""
        return list(self.members.values())

    def _make_member(
        self, member_id: str, client: int, instance_id: str | None
    ) -> ConsumerGroupMember:
        return ConsumerGroupMember(member_id, client, instance_id)

    def _subscribed(self, member: ConsumerGroupMember) -> tuple[str, ...]:
        if member.regex:
            return tuple(filter(re.compile(member.regex).fullmatch, sorted(self.topics)))
        return member.topics

    def _plan(self) -> dict[str, frozenset[TopicPartition]]:
        return {
            member_id: frozenset(_share(self, self._subscribed(member)))
            for member_id, member in self.members.items()
        }


def _share(
    group: ScriptedGroup | ScriptedEpochGroup, subscribed: Iterable[str]
) -> list[TopicPartition]:
    """The partitions of the subscribed topics, without those in ``taken``."""
    return [
        partition
        for topic in subscribed
        for number in range(len(group.topics.get(topic, ())))
        if (partition := TopicPartition(topic, number)) not in group.taken
    ]
