"""LeaveGroup: sent until no outstanding JoinGroup can add the member again, or time is up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import Channel, Failed, Node, ResetConnection
from asyncrevoke.client.core.membership.membership_log import MembershipLog
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.membership.classic.join_and_sync import JoinAndSync
    from asyncrevoke.client.core.membership.classic.member import ClassicMembership
    from asyncrevoke.client.core.metadata.coordinator import Coordinator

_TIMER = "leave"
_TIMEOUT = 5.0


class LeaveGroup:
    """Sends LeaveGroup; ``member.leave_ended`` follows in any case.

    JoinGroup has another connection, so the coordinator may process it after a LeaveGroup that was
    sent later. A classic group then rejects it, but a coordinator that assigns (classic members in
    a group of the consumer protocol) adds a member whose partitions have no reader until the
    rebalance timeout. So the response to that JoinGroup is awaited, and the added member leaves
    too. This takes no longer than a rebalance: LeaveGroup makes a classic coordinator respond to a
    delayed JoinGroup.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        coordinator: Coordinator,
        requests: JoinAndSync,
        member: ClassicMembership,
    ) -> None:
        self._outbox = outbox
        self._log = MembershipLog(outbox)
        self._group_id = config.group_id or ""
        self._instance_id = config.group_instance_id
        self._timeout = min(config.request_timeout, _TIMEOUT)
        self._coordinator = coordinator
        self._requests = requests
        self._member = member
        self._member_id = ""
        self._reason = ""
        self._outstanding: int | None = None
        self._sent_to: Node | None = None
        # The broker that has not responded to a cancelled LeaveGroup.
        self._forgotten: Node | None = None
        # Whether LeaveGroup is to be sent (again), and whether a JoinGroup is outstanding.
        self._owed = False
        self._joins = False
        # Whether a LeaveGroup has ended, by a response or a failure, and why the last one failed.
        self._has_ended = False
        self._error: str | None = None

    def leave(self, now: float, member_id: str, reason: str) -> None:
        """Send LeaveGroup when the coordinator is known; for a member without an id, when its
        JoinGroup gets a response with one."""
        self.cancel()
        self._member_id, self._reason = member_id, reason
        self._has_ended, self._error = False, None
        self._owed = bool(member_id)
        self._joins = self._requests.hand_over(self._join_response_received)
        self._outbox.set_timer(_TIMER, now + self._timeout, self.end)
        self._proceed(now)

    def cancel(self) -> None:
        """Forget all that is outstanding or planned."""
        self._owed = self._joins = False
        self._outbox.cancel_timer(_TIMER)
        if self._outstanding is not None:
            self._outbox.redirect(self._outstanding, self._late_response_received)
            self._forgotten = self._sent_to
            self._outstanding = None

    def _late_response_received(self, _now: float, _reply: Reply) -> None:
        self._forgotten = None

    def _proceed(self, now: float) -> None:
        if self._outstanding is not None:
            return
        if self._owed:
            self._coordinator.call_when_known("leave", self._send, now)
        elif not self._joins:
            self.end(now)

    def _send(self, _now: float) -> None:
        node = self._coordinator.node
        if node is None or not self._owed or self._outstanding is not None:
            return
        if self._forgotten is not None:
            # Brokers respond in order: the request would wait behind the cancelled one.
            self._outbox.put(ResetConnection(self._forgotten, Channel.HEARTBEAT))
            self._forgotten = None
        self._owed = False
        self._sent_to = node
        self._outstanding = self._outbox.send(
            LeaveGroupRequest(
                group_id=self._group_id,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                reason=self._reason,
            ),
            node,
            Channel.HEARTBEAT,
            self._timeout,
            self._leave_response_received,
        )

    def _leave_response_received(self, now: float, reply: Reply) -> None:
        self._outstanding = None
        self._has_ended = True
        match reply:
            case LeaveGroupResponse(error=ErrorCode.none):
                self._error = None
            case LeaveGroupResponse(error=error):
                self._error = error.name
            case Failed(kind=kind, detail=detail):
                self._error = detail or kind.value
            case _:
                self._error = f"unexpected {type(reply).__name__}"
        self._proceed(now)

    def _join_response_received(self, now: float, reply: Reply) -> None:
        if not self._joins:
            return
        self._joins = False
        if isinstance(reply, JoinGroupResponse):
            # Without a leader the coordinator assigns, and may have added a member that had left.
            is_added = reply.error is ErrorCode.none and not reply.leader
            if is_added or reply.error is ErrorCode.member_id_required:
                self._member_id = reply.member_id
                self._owed = True
        self._proceed(now)

    def end(self, now: float) -> None:
        """Wait no longer. Without a response in time, the member is removed at its session
        timeout."""
        if not self._has_ended and (self._owed or self._outstanding is not None):
            self._outbox.emit(log_events.LEFT_WITHOUT_COORDINATOR)
        else:
            self._log.left(self._error)
        self.cancel()
        self._member.leave_ended(now)
