"""JoinGroup and SyncGroup on the join channel: sent when the coordinator is known, and retried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.effects import Channel, Failed, FailureKind
from asyncrevoke.protocol.messages import JoinGroupRequest, JoinGroupResponse, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.coordinator import Coordinator
    from asyncrevoke.core.outbox import Outbox, Reply
    from asyncrevoke.protocol.messages import SyncGroupRequest

_RETRY_TIMER = "join-retry"
_FIRST_BACKOFF = 0.05
_LONGEST_BACKOFF = 5.0
_PARKED_BEYOND = (
    5.0  # a JoinGroup may be parked for the rebalance timeout, and is answered after it
)


class JoinExchange:
    """At most one JoinGroup or SyncGroup outstanding.

    A JoinGroup whose answer is lost is sent again with the same member id and the same metadata:
    the coordinator then answers with the running generation instead of starting another rebalance.
    """

    def __init__(self, outbox: Outbox, config: ConsumerConfig, coordinator: Coordinator) -> None:
        self._outbox = outbox
        self._config = config
        self._coordinator = coordinator
        self._request: JoinGroupRequest | None = None
        self._outstanding: int | None = None
        self._retried = False
        self._backoff = _FIRST_BACKOFF
        self.on_joined: Callable[[float, JoinGroupResponse], None] = lambda _now, _reply: None
        self.on_synced: Callable[[float, float, SyncGroupResponse | None], None] = (
            lambda _now, _sent_at, _reply: None
        )
        # A JoinGroup got no answer: whether it is still wanted.
        self.on_unanswered: Callable[[float], bool] = lambda _now: True
        self.on_refused: Callable[[float, Failed], None] = lambda _now, _failed: None

    @property
    def outstanding(self) -> bool:
        """Whether a request is on its way or parked at the coordinator."""
        return self._outstanding is not None

    def join(self, now: float, request: JoinGroupRequest) -> None:
        """Send this JoinGroup as soon as the coordinator is known."""
        self._request = request
        self._retried = False
        self._coordinator.call_when_known("join", self._send_join, now)

    def join_with_id(self, now: float, member_id: str) -> None:
        """Send the same JoinGroup again, now with the id that the coordinator gave us (KIP-394)."""
        if self._request is not None:
            previous = self._request
            self.join(
                now,
                JoinGroupRequest(
                    group_id=previous.group_id,
                    session_timeout=previous.session_timeout,
                    rebalance_timeout=previous.rebalance_timeout,
                    member_id=member_id,
                    group_instance_id=previous.group_instance_id,
                    protocols=previous.protocols,
                    reason=previous.reason,
                ),
            )

    def join_elsewhere(self, now: float, why: str) -> None:
        """The coordinator has moved: the same JoinGroup as soon as it is found."""
        self._coordinator.unknown(now, f"JoinGroup: {why}")
        self._coordinator.call_when_known("join", self._send_join, now)

    def join_later(self, now: float, why: str) -> None:
        """The same JoinGroup after a backoff."""
        self._outbox.emit("info", "joining again", last_answer=why)
        self._outbox.set_timer(
            _RETRY_TIMER,
            now + self._backoff,
            lambda later: self._coordinator.call_when_known("join", self._send_join, later),
            spread=self._backoff,
        )
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF)

    def sync(self, now: float, request: SyncGroupRequest) -> None:
        """Send this SyncGroup as soon as the coordinator is known."""
        self._request = None
        self._coordinator.call_when_known(
            "join", lambda later: self._send_sync(later, request), now
        )

    def cancel(self) -> None:
        """Forget whatever is outstanding or planned."""
        self._request = None
        if self._outstanding is not None:
            self._outbox.forget(self._outstanding)
            self._outstanding = None
        self._outbox.cancel_timer(_RETRY_TIMER)

    @property
    def _timeout(self) -> float:
        return max(self._config.request_timeout, self._config.rebalance_timeout + _PARKED_BEYOND)

    def _send_join(self, _now: float) -> None:
        node = self._coordinator.node
        if self._request is None or node is None or self._outstanding is not None:
            return
        self._outstanding = self._outbox.send(
            self._request, node, Channel.JOIN, self._timeout, self._join_answered
        )

    def _join_answered(self, now: float, reply: Reply) -> None:
        self._outstanding = None
        if isinstance(reply, JoinGroupResponse):
            self._backoff = _FIRST_BACKOFF
            self.on_joined(now, reply)
            return
        detail = self._failure(now, reply)
        if detail is None or not self.on_unanswered(now):
            return
        if not self._retried:
            # A quiet channel is often found closed by the broker: try a fresh one at once.
            self._retried = True
            self._send_join(now)
        else:
            self._coordinator.unknown(now, f"JoinGroup: {detail}")
            self.join_later(now, detail)

    def _send_sync(self, now: float, request: SyncGroupRequest) -> None:
        node = self._coordinator.node
        if node is None or self._request is not None or self._outstanding is not None:
            return
        self._outstanding = self._outbox.send(
            request,
            node,
            Channel.JOIN,
            self._timeout,
            lambda later, reply: self._sync_answered(later, now, reply),
        )

    def _sync_answered(self, now: float, sent_at: float, reply: Reply) -> None:
        self._outstanding = None
        if isinstance(reply, SyncGroupResponse):
            self.on_synced(now, sent_at, reply)
            return
        detail = self._failure(now, reply)
        if detail is not None:
            self._coordinator.unknown(now, f"SyncGroup: {detail}")
            self.on_synced(now, sent_at, None)

    def _failure(self, now: float, reply: Reply) -> str | None:
        """Why there is no answer; None if that is final, and has been reported."""
        if not isinstance(reply, Failed):
            return f"answered with {type(reply).__name__}"
        if reply.kind in (FailureKind.AUTHENTICATION, FailureKind.UNSUPPORTED):
            self.on_refused(now, reply)
            return None
        return reply.detail or reply.kind.value
