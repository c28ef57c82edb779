"""Heartbeats of a classic member: when the next is due, and when the last one was confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.effects import Channel
from asyncrevoke.protocol.messages import HeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.coordinator import Coordinator
    from asyncrevoke.core.outbox import Outbox, Reply
    from asyncrevoke.model import GroupMetadata

_TIMER = "heartbeat"
# Members learn of a rebalance only by their heartbeats: joins are as slow as these.
_EAGER_INTERVAL = 0.3
_EAGER_SECONDS = 5.0


class Heartbeat:
    """One heartbeat in flight at a time, on a channel of its own.

    ``confirmed_at`` is the send time of the last request that the coordinator confirmed: the
    group cannot have begun a rebalance that we do not know of before that time.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        coordinator: Coordinator,
        stamp: Callable[[], GroupMetadata],
        on_answer: Callable[[float, GroupMetadata, float, Reply], None],
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._coordinator = coordinator
        self._stamp = stamp
        self._on_answer = on_answer
        self._running = False
        self._in_flight = False
        self._often_until = float("-inf")
        self.often = False
        self.confirmed_at: float | None = None

    def start(self, now: float) -> None:
        """Beat from now on."""
        self._running = True
        self._schedule(now)

    def stop(self) -> None:
        """No more heartbeats."""
        self._running = False
        self._outbox.cancel_timer(_TIMER)

    def confirm(self, sent_at: float) -> None:
        """A request sent at this time was answered without an error."""
        if self.confirmed_at is None or sent_at > self.confirmed_at:
            self.confirmed_at = sent_at

    def rebalanced(self, now: float) -> None:
        """A rebalance ended: another is likely to follow soon."""
        self._often_until = now + _EAGER_SECONDS
        if self._running:
            self._schedule(now)

    def soon(self, now: float) -> None:
        """Beat again at once, for example because the coordinator was found again."""
        if self._running:
            self._outbox.set_timer(_TIMER, now, self._beat)

    def _interval(self, now: float) -> float:
        if self.often or now < self._often_until:
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
        stamp = self._stamp()
        self._in_flight = True
        self._outbox.send(
            HeartbeatRequest(
                group_id=stamp.group_id,
                generation=stamp.generation,
                member_id=stamp.member_id,
                group_instance_id=stamp.group_instance_id,
            ),
            node,
            Channel.HEARTBEAT,
            min(self._config.request_timeout, self._config.session_timeout / 3),
            lambda later, reply: self._answered(later, stamp, now, reply),
        )

    def _answered(self, now: float, sent: GroupMetadata, sent_at: float, reply: Reply) -> None:
        self._in_flight = False
        if self._running:
            self._schedule(now)
        self._on_answer(now, sent, sent_at, reply)
