"""Heartbeats of a classic member: when the next is due, and what the responses mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import Channel, Failed, Node
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES, fatal_error
from asyncrevoke.client.core.membership.classic.error_table import (
    CLASSIC_HEARTBEAT_ERRORS,
    ClassicHeartbeatAction,
)
from asyncrevoke.client.core.membership.membership_log import MembershipLog
from asyncrevoke.client.protocol.messages import HeartbeatRequest, HeartbeatResponse, Response

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.membership.classic.member import ClassicMembership
    from asyncrevoke.client.core.metadata.coordinator import Coordinator
    from asyncrevoke.client.model import GroupMetadata
    from asyncrevoke.client.protocol.messages import ErrorCode

_TIMER = "heartbeat"
# Members learn of a rebalance only by their heartbeats, which delay its JoinGroups.
_EAGER_INTERVAL = 0.3
_EAGER_SECONDS = 5.0


class ClassicHeartbeat:
    """One heartbeat in flight at a time, on a channel of its own. Reports responses to ``member``.

    ``confirmed_at`` is the send time of the last request that the coordinator confirmed: a
    rebalance that is not known here began after it. The thread may send the same request while the
    event loop is blocked; its responses are reported too, but do not change the coordinator.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        coordinator: Coordinator,
        member: ClassicMembership,
    ) -> None:
        self._outbox = outbox
        self._log = MembershipLog(outbox)
        self._config = config
        self._coordinator = coordinator
        self._member = member
        self._running = False
        self._in_flight = False
        # What the thread may send while the event loop is blocked.
        self._background_heartbeat: tuple[Node, HeartbeatRequest] | None = None
        self._often_until = float("-inf")
        self._often = False
        self.confirmed_at: float | None = None
        # Send time of the last request that was accepted as a member's, also during a rebalance.
        self.member_at: float | None = None

    def start(self, now: float) -> None:
        """Send heartbeats from now on."""
        self._running = True
        self._update_background_heartbeat()
        self._schedule(now)

    def stop(self) -> None:
        """Send no more heartbeats."""
        self._running = False
        self._outbox.cancel_timer(_TIMER)
        self._background_heartbeat = None
        self._outbox.stop_background_heartbeat()

    def confirm(self, sent_at: float) -> None:
        """The response to a request sent at this time has no error."""
        if self.confirmed_at is None or sent_at > self.confirmed_at:
            self.confirmed_at = sent_at
        self._heard(sent_at)

    def _heard(self, sent_at: float) -> None:
        if self.member_at is None or sent_at > self.member_at:
            self.member_at = sent_at

    def may_be_evicted(self, now: float) -> bool:
        """Whether no request was accepted as a member's for longer than the session timeout, or
        than the rebalance timeout."""
        limit = min(self._config.session_timeout, self._config.rebalance_timeout)
        return self.member_at is not None and now - self.member_at > limit

    def rebalanced(self, now: float) -> None:
        """A rebalance has ended: another is likely soon."""
        self._often_until = now + _EAGER_SECONDS
        if self._running:
            self._schedule(now)

    def set_often(self, often: bool) -> None:
        """Whether this member waits for partitions of others, or others for its partitions."""
        self._often = often

    def soon(self, now: float) -> None:
        """Send the next heartbeat now."""
        if self._running:
            self._outbox.set_timer(_TIMER, now, self._beat)

    def _interval(self, now: float) -> float:
        if self._often or now < self._often_until:
            return min(_EAGER_INTERVAL, self._config.heartbeat_interval)
        return self._config.heartbeat_interval

    def _schedule(self, now: float) -> None:
        self._outbox.set_timer(_TIMER, now + self._interval(now), self._beat)

    def _beat(self, now: float) -> None:
        if not self._running or self._in_flight:
            return
        node = self._coordinator.node
        if node is None:
            self._coordinator.call_when_known("heartbeat", self._beat, now)
            return
        self._update_background_heartbeat()
        identity = self._member.member_identity
        self._in_flight = True
        self._outbox.send(
            _request(identity),
            node,
            Channel.HEARTBEAT,
            self._timeout,
            lambda later, reply: self._heartbeat_response_received(
                later, node, identity, now, reply
            ),
        )

    @property
    def _timeout(self) -> float:
        # A connection that is silent for this long is dead, whatever was requested on it.
        return min(self._config.request_timeout, self._config.session_timeout * 2 / 3)

    def _update_background_heartbeat(self) -> None:
        node = self._coordinator.node
        if node is None:
            return
        identity = self._member.member_identity
        heartbeat = node, _request(identity)
        if heartbeat != self._background_heartbeat:
            self._background_heartbeat = heartbeat
            self._outbox.start_background_heartbeat(
                heartbeat[1],
                node,
                self._config.heartbeat_interval,
                self._timeout,
                lambda reply: heartbeat[1] if _still_ours(reply) else None,
                lambda now, sent_at, reply: self._background_response_received(
                    now, identity, sent_at, reply
                ),
            )

    def _background_response_received(
        self, now: float, sent: GroupMetadata, sent_at: float, reply: Reply
    ) -> None:
        if isinstance(reply, HeartbeatResponse):
            action = _action(reply.error)
            if action is not ClassicHeartbeatAction.FIND_COORDINATOR:
                self._apply(now, sent, sent_at, reply.error, action)
                return
        response = reply.detail if isinstance(reply, Failed) else "not the coordinator"
        self._outbox.emit(log_events.THREAD_HEARTBEAT_FAILED, reason=response)
        self.soon(now)

    def _heartbeat_response_received(
        self, now: float, asked: Node, sent: GroupMetadata, sent_at: float, reply: Reply
    ) -> None:
        self._in_flight = False
        if self._running:
            self._schedule(now)
        if isinstance(reply, HeartbeatResponse):
            action = _action(reply.error)
            if action is ClassicHeartbeatAction.FIND_COORDINATOR:
                self._no_response(now, asked, reply.error.name)
            else:
                self._apply(now, sent, sent_at, reply.error, action)
        elif isinstance(reply, Failed) and reply.kind in FATAL_FAILURES:
            self._member.fail(now, fatal_error(reply))
        else:
            detail = reply.detail if isinstance(reply, Failed) else type(reply).__name__
            self._no_response(now, asked, detail)

    def _apply(
        self,
        now: float,
        sent: GroupMetadata,
        sent_at: float,
        error: ErrorCode,
        action: ClassicHeartbeatAction,
    ) -> None:
        match action:
            case ClassicHeartbeatAction.CONFIRM:
                self.confirm(sent_at)
                self._log.confirmed(now)
                if sent == self._member.member_identity:
                    self._member.heartbeat_confirmed(now)
            case ClassicHeartbeatAction.REBALANCE:
                self._heard(sent_at)
                if sent == self._member.member_identity:
                    self._member.rebalance_seen(now)
            case ClassicHeartbeatAction.MEMBERSHIP:
                self._member.heartbeat_rejected(now, sent, sent_at, error)
            case ClassicHeartbeatAction.FAIL:
                self._member.fail_with(now, error)
            case _:
                if action is ClassicHeartbeatAction.WAIT_FOR_LOADING:
                    self._coordinator.note_loading()
                self._outbox.emit(log_events.HEARTBEAT_FAILED, error=error.name)

    def _no_response(self, now: float, asked: Node, why: str) -> None:
        self._log.no_response(now, self.confirmed_at, self._config.session_timeout)
        self._coordinator.no_response(now, f"Heartbeat: {why}", asked)
        self._coordinator.call_when_known("beat", self.soon, now)


def _request(identity: GroupMetadata) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=identity.group_id,
        generation=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
    )


def _action(error: ErrorCode) -> ClassicHeartbeatAction:
    return CLASSIC_HEARTBEAT_ERRORS.get(error, ClassicHeartbeatAction.IGNORE)


def _still_ours(reply: Response) -> bool:
    """Whether the same heartbeat keeps the membership, as it does during a rebalance until the
    rebalance timeout."""
    return isinstance(reply, HeartbeatResponse) and _action(reply.error) in (
        ClassicHeartbeatAction.CONFIRM,
        ClassicHeartbeatAction.REBALANCE,
    )
