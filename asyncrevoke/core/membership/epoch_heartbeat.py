"""The one kind of request that a member of a consumer group sends (KIP-848): when the next is due.

One is in flight at a time. Whatever was not answered may have been processed or not, or will be
after a later one; an assignment, which is told only once, then goes to a connection that is dead.
So for a while the next ones are *full*: they say everything, and are answered with everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.effects import Channel, Failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.coordinator import Coordinator
    from asyncrevoke.core.outbox import Outbox, Reply
    from asyncrevoke.protocol.messages import ConsumerGroupHeartbeatRequest

_TIMER = "heartbeat"
# Members learn only by their heartbeats that partitions are free or wanted back.
_EAGER_INTERVAL = 0.5
# The session timeout is the broker's secret; Kafka's is nine times the interval that it asks for.
_PATIENT_INTERVALS = 3
_FIRST_PATIENCE = 15.0
_FULL_AFTER_SILENCE = 5.0
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 2.0


class EpochHeartbeat:
    """Sends what ``compose(full)`` makes, and hands the answer to ``on_answer(now, sent, sent_at,
    reply)``.

    ``confirmed_at`` is the send time of the last heartbeat that was answered without an error.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        coordinator: Coordinator,
        compose: Callable[[bool], ConsumerGroupHeartbeatRequest],
        on_answer: Callable[[float, ConsumerGroupHeartbeatRequest, float, Reply], None],
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._coordinator = coordinator
        self._compose = compose
        self._on_answer = on_answer
        self._running = False
        self._in_flight = False
        self._again = False
        # Whether the answer to the one in flight is about a membership that has ended.
        self._void = False
        self._full = True
        self._full_until = float("-inf")
        self._interval = config.heartbeat_interval
        self._patience = _FIRST_PATIENCE
        self._often_until = float("-inf")
        self._backoff = _FIRST_BACKOFF
        self._unconfirmed_since: float | None = None
        self.confirmed_at: float | None = None

    @property
    def unconfirmed_since(self) -> float | None:
        """Send time of the first heartbeat after the last one that was confirmed: what the
        coordinator tells us now, it may have decided then."""
        return self._unconfirmed_since

    def start(self, now: float, *, after: float = 0.0) -> None:
        """Beat from now on, or ``after`` so many seconds, beginning with a full one."""
        self._running = True
        self._full = True
        self._unconfirmed_since = None
        self._outbox.set_timer(_TIMER, now + after, self._beat)

    def stop(self) -> None:
        """No more heartbeats, and no more answers; one that is in flight is waited for all the
        same, before another is sent."""
        self._running = False
        self._again = False
        self._void = self._in_flight
        self._outbox.cancel_timer(_TIMER)

    def soon(self, now: float) -> None:
        """There is something to say: at once, or as soon as the one in flight is answered."""
        if not self._running:
            return
        self._beat(now)

    def say_all(self, now: float) -> None:
        """A full one, now."""
        self._full = True
        self.soon(now)

    def often(self, until: float) -> None:
        """Something is likely to change until then."""
        self._often_until = max(self._often_until, until)

    def confirm(self, now: float, sent_at: float, interval: float) -> None:
        """Answered without an error, with the ``interval`` (s) that the group asks for."""
        self.confirmed_at = sent_at
        self._unconfirmed_since = None
        self._full = now < self._full_until
        self._backoff = _FIRST_BACKOFF
        if interval > 0:
            self._interval = min(interval, self._config.heartbeat_interval)
            self._patience = _PATIENT_INTERVALS * interval
        self._schedule(now)

    def retry(self, now: float) -> None:
        """It was refused for a reason that passes: a full one after a backoff."""
        self._full = True
        if self._running:
            self._outbox.set_timer(_TIMER, now + self._backoff, self._beat, spread=self._backoff)
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF)

    def elsewhere(self, now: float, why: str) -> None:
        """It was not answered, or not by the coordinator: full ones as soon as it is found."""
        self._full = True
        self._full_until = now + _FULL_AFTER_SILENCE
        self._coordinator.unknown(now, f"ConsumerGroupHeartbeat: {why}")
        self._coordinator.call_when_known("heartbeat", self._beat, now)

    def _schedule(self, now: float) -> None:
        if not self._running:
            return
        interval = self._interval
        if now < self._often_until:
            interval = min(interval, _EAGER_INTERVAL)
        self._outbox.set_timer(_TIMER, now if self._again else now + interval, self._beat)

    def _beat(self, now: float) -> None:
        if not self._running:
            return
        if self._in_flight:
            self._again = True
            return
        node = self._coordinator.node
        if node is None:
            self._coordinator.call_when_known("heartbeat", self._beat, now)
            return
        self._again = False
        self._outbox.cancel_timer(_TIMER)
        if self._unconfirmed_since is None:
            self._unconfirmed_since = now
        request = self._compose(self._full)
        self._in_flight = True
        self._outbox.send(
            request,
            node,
            Channel.HEARTBEAT,
            min(self._config.request_timeout, self._patience),
            lambda later, reply: self._answered(later, request, now, reply),
        )

    def _answered(
        self, now: float, sent: ConsumerGroupHeartbeatRequest, sent_at: float, reply: Reply
    ) -> None:
        self._in_flight = False
        if not self._void:
            self._on_answer(now, sent, sent_at, reply)
            return
        self._void = False
        if isinstance(reply, Failed):
            self._full_until = now + _FULL_AFTER_SILENCE
            self._coordinator.unknown(now, f"ConsumerGroupHeartbeat: {reply.detail}")
        if self._again:
            self._beat(now)
