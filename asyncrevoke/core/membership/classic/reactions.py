"""What the requests of a classic member, and its role as leader, report to the member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.core.io.effects import Failed
    from asyncrevoke.errors import FatalError
    from asyncrevoke.model import GroupMetadata
    from asyncrevoke.protocol.messages import ErrorCode, JoinGroupResponse, SyncGroupResponse


class HeartbeatReactions(Protocol):
    """Answers to heartbeats, with the identity that was ``sent``: the member may have another one
    by now. Implemented by :class:`.member.ClassicMembership`, as are the others."""

    @property
    def member_identity(self) -> GroupMetadata:
        """The identity to send."""
        ...

    def heartbeat_confirmed(self, now: float, sent: GroupMetadata) -> None:
        """The coordinator has confirmed the membership."""
        ...

    def heartbeat_during_rebalance(self, now: float, sent: GroupMetadata) -> None:
        """The group rebalances, and this member is to rejoin."""
        ...

    def heartbeat_rejected(
        self, now: float, sent: GroupMetadata, sent_at: float, error: ErrorCode
    ) -> None:
        """The coordinator does not accept this identity."""
        ...

    def heartbeat_failed(self, now: float, why: ErrorCode | Failed) -> None:
        """No heartbeat can succeed, whatever the identity."""
        ...


class JoinReactions(Protocol):
    """Answers to JoinGroup, SyncGroup and LeaveGroup."""

    def join_answered(self, now: float, reply: JoinGroupResponse) -> None:
        """JoinGroup was answered."""
        ...

    def join_unanswered(self, now: float) -> bool:
        """JoinGroup got no answer; whether it is to be sent again."""
        ...

    def sync_answered(self, now: float, sent_at: float, reply: SyncGroupResponse | None) -> None:
        """SyncGroup was answered; None: it got no answer, or cannot be sent."""
        ...

    def request_failed(self, now: float, failed: Failed) -> None:
        """No JoinGroup or SyncGroup can succeed."""
        ...

    def leave_ended(self, now: float) -> None:
        """LeaveGroup was answered, or is not waited for any longer."""
        ...


class LeaderReactions(Protocol):
    """What the leader's role reports."""

    def assignment_made(self, now: float, assignments: tuple[tuple[str, bytes], ...]) -> None:
        """What SyncGroup is to carry: the assignment of each member by its id; nothing, if the
        group keeps the assignment that it has (KIP-814)."""
        ...

    def fail(self, now: float, error: FatalError) -> None:
        """No assignment can be made."""
        ...
