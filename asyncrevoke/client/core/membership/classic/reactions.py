"""What the parts of a classic member report: its requests, its rebalances, its role as leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.effects import Failed
    from asyncrevoke.client.core.membership.classic.assignment_user_data import AssignmentUserData
    from asyncrevoke.client.errors import FatalError
    from asyncrevoke.client.model import GroupMetadata, TopicPartition
    from asyncrevoke.client.protocol.messages import (
        DescribeGroupsResponse,
        ErrorCode,
        JoinGroupRequest,
        JoinGroupResponse,
        SyncGroupResponse,
    )


class ClassicHeartbeatReactions(Protocol):
    """Responses to heartbeats, with the identity that was ``sent``, which may have changed since.
    Implemented by :class:`.member.ClassicMembership`."""

    @property
    def member_identity(self) -> GroupMetadata:
        """The identity to send."""
        ...

    def heartbeat_confirmed(self, now: float, sent: GroupMetadata) -> None:
        """The coordinator has confirmed the membership."""

    def heartbeat_during_rebalance(self, now: float, sent: GroupMetadata) -> None:
        """The group rebalances, and this member is to rejoin."""

    def heartbeat_rejected(
        self, now: float, sent: GroupMetadata, sent_at: float, error: ErrorCode
    ) -> None:
        """The coordinator does not accept this identity."""

    def heartbeat_failed(self, now: float, why: ErrorCode | Failed) -> None:
        """No heartbeat can succeed, whatever the identity."""


class JoinReactions(Protocol):
    """Responses to JoinGroup and SyncGroup; implemented by :class:`.rebalance.MemberRebalance`."""

    def compose_join(self) -> JoinGroupRequest:
        """The JoinGroup to send now, with what the member owns now."""
        ...

    def join_response_received(self, now: float, reply: JoinGroupResponse) -> None:
        """The response to JoinGroup was received."""

    def no_join_response(self, now: float) -> bool:
        """JoinGroup got no response; whether it is to be sent again."""
        ...

    def sync_response_received(
        self, now: float, sent_at: float, reply: SyncGroupResponse | None
    ) -> None:
        """The response to SyncGroup was received; None: there is none, or it cannot be sent."""

    def group_described(self, now: float, group: DescribeGroupsResponse | None) -> None:
        """The group that has rejected the JoinGroup is described; None if it could not be."""

    def request_failed(self, now: float, failed: Failed) -> None:
        """No JoinGroup or SyncGroup can succeed."""


class LeaveGroupReactions(Protocol):
    """The end of LeaveGroup; implemented by :class:`.member.ClassicMembership`."""

    def leave_ended(self, now: float) -> None:
        """LeaveGroup got a response, or is not waited for any longer."""


class LeaderReactions(Protocol):
    """What the leader's role reports; implemented by :class:`.rebalance.MemberRebalance`."""

    def assignment_made(self, now: float, assignments: tuple[tuple[str, bytes], ...]) -> None:
        """What SyncGroup is to carry: the assignment of each member by its id; nothing if the group
        keeps its assignment (KIP-814)."""

    def assignment_failed(self, now: float, error: FatalError) -> None:
        """No assignment can be made."""


class StagedRejoinReactions(Protocol):
    """When a staged join may be sent; implemented by :class:`.member.ClassicMembership`."""

    def staged_rejoin_due(self, now: float, /) -> None:
        """Send a staged join if one is needed: enough time has passed since the last join."""


class RebalanceReactions(Protocol):
    """What a rebalance asks and reports; implemented by :class:`.member.ClassicMembership`."""

    @property
    def is_leaving(self) -> bool:
        """Whether the member releases everything, to leave then."""
        ...

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the user wants now."""
        ...

    def start_join(self, now: float, reason: str) -> None:
        """Join again with the present subscription: the group rebalances anew."""

    def report_owned(self) -> tuple[TopicPartition, ...]:
        """What JoinGroup lists as owned: it is sent now."""
        ...

    def assignment_received(
        self, now: float, assigned: tuple[TopicPartition, ...], user_data: AssignmentUserData | None
    ) -> None:
        """The member is stable, with this assignment and its user data."""

    def lose_partitions(self, now: float, reason: str) -> None:
        """Other members may have this one's partitions."""

    def evicted(self, now: float, reason: str, *, keep_id: bool) -> None:
        """The coordinator does not accept the membership; ``keep_id``: but knows the member id."""

    def send_leave(self, now: float) -> None:
        """The member has an id to leave with."""

    def leave_ended(self, now: float) -> None:
        """No coordinator knows this member: there is nothing to leave."""

    def fail(self, now: float, error: FatalError) -> None:
        """The member cannot go on."""
