"""The membership of a share group (KIP-932): ShareGroupHeartbeat, one in flight at a time.

The coordinator computes assignments once a second, and a new member's first response has none. So
heartbeats are sent every half second until something was assigned. An assignment is sent once:
after a request without a response the next ones have the topics, and their responses the assignment
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import Channel, Failed
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES, fatal_error
from asyncrevoke.client.core.io.wait_log import WaitLog
from asyncrevoke.client.core.membership.share.error_table import (
    ShareHeartbeatAction,
    share_group_error,
    share_heartbeat_action,
)
from asyncrevoke.client.core.membership.share.state_table import (
    SHARE_MEMBER_TRANSITIONS,
    ShareMemberState,
    ShareMemberTransition,
)
from asyncrevoke.client.errors import FatalError
from asyncrevoke.client.protocol.messages import JOIN_EPOCH, LEAVE_EPOCH, ErrorCode
from asyncrevoke.client.protocol.share_messages import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicIdPartition,
)

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.membership.share.reactions import ShareMembershipReactions
    from asyncrevoke.client.core.metadata.coordinator import Coordinator

LONGEST_MEMBER_ID = 36
_TIMER = "share-heartbeat"
_EAGER_INTERVAL = 0.5
_EAGER_FOR = 10.0
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 2.0
# A member that is fenced again so soon, or while it joins, joins after a pause.
_FENCED_OFTEN = 1.0
# Heartbeats with the topics after one without a response. The coordinator may process that one
# after the first of them, and its response, which nobody gets, then has a newer assignment.
_FULL_AFTER_NO_RESPONSE = 3
# The broker's default; it is sent with each response.
_INTERVAL = 5.0
_WAITS = ShareHeartbeatAction.WAIT_FOR_COORDINATOR
# A coordinator that has just been elected reads its groups for so long at most without a warning.
_LOADING = 3.0
# Responses to a heartbeat with which a member leaves, after which it is none.
_LEFT = (
    ErrorCode.none,
    ErrorCode.unknown_member_id,
    ErrorCode.fenced_member_epoch,
    ErrorCode.group_id_not_found,
)
# The broker does not send the session timeout; its default is nine times the interval.
_INTERVALS_OF_A_SESSION = 9


class ShareGroupMembership:
    """Joins, sends heartbeats and leaves. ``member_id`` has at most 36 characters, and is kept.

    ``confirmed_at`` is the send time of the last heartbeat whose response has no error, and
    ``session_timeout`` how long after it the coordinator keeps the member, in seconds.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        coordinator: Coordinator,
        member_id: str,
        reactions: ShareMembershipReactions,
    ) -> None:
        if not 0 < len(member_id) <= LONGEST_MEMBER_ID:
            raise ValueError(f"a member id of {len(member_id)} characters")
        self._outbox = outbox
        self._config = config
        self._coordinator = coordinator
        self._reactions = reactions
        self._log = WaitLog(outbox)
        self._group_id = config.group_id or ""
        self.member_id = member_id
        self.state = ShareMemberState.UNSUBSCRIBED
        self._topics: tuple[str, ...] = ()
        self.epoch = JOIN_EPOCH
        # The epoch that the coordinator has given first: that of the group.
        self.first_epoch: int | None = None
        # How many of the next heartbeats have the topics, and their responses the assignment.
        self._full = 1
        self._in_flight = False
        self._again = False
        self._asked: Node | None = None
        self._eager_until = float("-inf")
        self._interval = _INTERVAL
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        self._fenced_at = float("-inf")
        self.confirmed_at: float | None = None
        self.session_timeout = _INTERVALS_OF_A_SESSION * _INTERVAL
        self.assigned: frozenset[TopicIdPartition] = frozenset()

    def may_acquire(self, now: float) -> bool:
        """Whether the coordinator may count this member as one of the group. Partition leaders do
        not check it."""
        return self.confirmed_at is not None and now < self.confirmed_at + self.session_timeout

    def join(self, now: float, topics: frozenset[str]) -> None:
        """Join, and subscribe to these topics, at least one."""
        self._topics = tuple(sorted(topics))
        self._transition(ShareMemberTransition.JOIN)
        self._begin(now)

    def leave(self, now: float) -> None:
        """Leave the group. Records stay locked: close the sessions first."""
        if self.state in (ShareMemberState.UNSUBSCRIBED, ShareMemberState.FATAL):
            self._left()
            return
        joining = self.state is ShareMemberState.JOINING and not self._in_flight
        self._transition(ShareMemberTransition.LEAVE)
        if joining:
            self._left()
        else:
            self.heartbeat(now)

    def stop(self) -> None:
        """Send nothing more."""
        self._outbox.cancel_timer(_TIMER)
        self.state = ShareMemberState.FATAL

    def _begin(self, now: float, *, after: float = 0.0) -> None:
        self.epoch = JOIN_EPOCH
        self._full = max(self._full, 1)
        self._eager_until = now + _EAGER_FOR
        if after:
            self._outbox.set_timer(_TIMER, now + after, self.heartbeat, spread=after)
        else:
            self.heartbeat(now)

    def heartbeat(self, now: float) -> None:
        """Send a heartbeat now, or when the one in flight has its response."""
        if self.state in (ShareMemberState.UNSUBSCRIBED, ShareMemberState.FATAL):
            return
        if self._in_flight:
            self._again = True
            return
        node = self._coordinator.node
        if node is None:
            self._coordinator.call_when_known("share-heartbeat", self.heartbeat, now)
            return
        self._again = False
        self._in_flight = True
        self._asked = node
        self._outbox.cancel_timer(_TIMER)
        leaving = self.state is ShareMemberState.LEAVING
        request = ShareGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_EPOCH if leaving else self.epoch,
            rack=self._config.client_rack,
            topics=self._topics if self._full and not leaving else None,
        )
        self._outbox.send(
            request,
            node,
            Channel.HEARTBEAT,
            self._config.request_timeout,
            lambda later, reply: self._response_received(later, request, now, reply),
        )

    def _response_received(
        self, now: float, sent: ShareGroupHeartbeatRequest, sent_at: float, reply: Reply
    ) -> None:
        self._in_flight = False
        if self.state is ShareMemberState.FATAL:
            return
        match reply:
            case ShareGroupHeartbeatResponse(error=error) if (
                sent.member_epoch == LEAVE_EPOCH and error in _LEFT
            ):
                self._left()
            case ShareGroupHeartbeatResponse(error=ErrorCode.none):
                self._confirmed(now, sent, sent_at, reply)
            case ShareGroupHeartbeatResponse():
                self._rejected(now, reply)
            case Failed() as failed if failed.kind in FATAL_FAILURES:
                self._fail(fatal_error(failed))
            case Failed(kind=kind, detail=detail):
                self._full = _FULL_AFTER_NO_RESPONSE
                why = f"ShareGroupHeartbeat: {detail or kind.value}"
                self._coordinator.no_response(now, why, self._asked)
                self._coordinator.call_when_known("share-heartbeat", self.heartbeat, now)
            case _:
                self._fail(FatalError(f"unexpected response {type(reply).__name__}"))

    def _confirmed(
        self,
        now: float,
        sent: ShareGroupHeartbeatRequest,
        sent_at: float,
        reply: ShareGroupHeartbeatResponse,
    ) -> None:
        if self.state is ShareMemberState.LEAVING:
            self.heartbeat(now)
            return
        self._log.over(now, "group")
        self.confirmed_at = sent_at
        self.epoch = reply.member_epoch
        if self.first_epoch is None:
            self.first_epoch = self.epoch
        self._backoff.succeeded()
        if sent.topics is not None:
            self._full -= 1
        if reply.heartbeat_interval > 0:
            self._interval = min(reply.heartbeat_interval, self._config.request_timeout)
            self.session_timeout = _INTERVALS_OF_A_SESSION * self._interval
        partitions = reply.assignment
        if partitions is not None:
            assigned = frozenset(
                TopicIdPartition(topic_id, number)
                for topic_id, numbers in partitions
                for number in numbers
            )
            if assigned:
                self._transition(ShareMemberTransition.ASSIGNED)
            if assigned != self.assigned:
                self.assigned = assigned
                self._outbox.emit(
                    log_events.SHARE_PARTITIONS_ASSIGNED, epoch=self.epoch, count=len(assigned)
                )
                self._reactions.partitions_assigned(now)
        if self.state is ShareMemberState.JOINING:
            self._transition(ShareMemberTransition.JOINED)
        self._schedule(now)

    def _schedule(self, now: float) -> None:
        interval = self._interval
        if now < self._eager_until and not self.assigned:
            interval = min(interval, _EAGER_INTERVAL)
        self._outbox.set_timer(_TIMER, now if self._again else now + interval, self.heartbeat)

    def _rejected(self, now: float, reply: ShareGroupHeartbeatResponse) -> None:
        error, joining = reply.error, self.state is ShareMemberState.JOINING
        self._full = max(self._full, 1)
        match share_heartbeat_action(error, joining=joining):
            case ShareHeartbeatAction.FIND_COORDINATOR:
                why = f"ShareGroupHeartbeat: {error.name}"
                self._coordinator.mark_unknown(now, why, self._asked)
                self._coordinator.call_when_known("share-heartbeat", self.heartbeat, now)
            case ShareHeartbeatAction.REJOIN:
                self._fenced(now, error)
            case ShareHeartbeatAction.FAIL:
                self._fail(share_group_error(self._group_id, error, reply.detail))
            case action:
                waiting = log_events.WAITING_FOR_SHARE_GROUP
                self._log.waiting(
                    now,
                    "group",
                    waiting,
                    _LOADING if action is _WAITS else 0.0,
                    waiting_for=action.value,
                    reason=error.name,
                    detail=reply.detail,
                )
                delay = self._backoff.failed()
                self._outbox.set_timer(_TIMER, now + delay, self.heartbeat, spread=delay)

    def _fenced(self, now: float, error: ErrorCode) -> None:
        """Join again with the same id: what is acquired stays acquired, and handlers go on."""
        leaving = self.state is ShareMemberState.LEAVING
        again = self.state is ShareMemberState.JOINING or now - self._fenced_at < _FENCED_OFTEN
        self._transition(ShareMemberTransition.FENCED)
        if leaving:
            self._reactions.group_left()
            return
        self._outbox.emit(log_events.SHARE_MEMBER_JOINS_AGAIN, reason=error.name)
        self._fenced_at = now
        self._begin(now, after=_FENCED_OFTEN if again else 0.0)

    def _left(self) -> None:
        self._transition(ShareMemberTransition.LEFT)
        self._outbox.cancel_timer(_TIMER)
        self._reactions.group_left()

    def _fail(self, error: FatalError) -> None:
        leaving = self.state is ShareMemberState.LEAVING
        self._transition(ShareMemberTransition.FAIL)
        self._outbox.cancel_timer(_TIMER)
        if leaving:
            self._reactions.group_left()
            return
        self._reactions.membership_failed(error)

    def _transition(self, transition: ShareMemberTransition) -> None:
        self.state = SHARE_MEMBER_TRANSITIONS[self.state, transition]
