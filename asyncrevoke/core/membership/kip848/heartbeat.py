"""The one kind of request that a member of a consumer group sends (KIP-848): when the next is due.

One is in flight at a time. Whatever was not answered may have been processed or not, or will be
after a later one; an assignment, which is told only once, then goes to a connection that is dead.
So for a while the next ones are *full*: they say everything, and are answered with everything.

While the event loop is blocked, others may send for us what says nothing new: neither that we own
something nor that we do not, so that it acknowledges nothing, whenever it arrives. It goes on with
the epochs that it is answered with. What it hears of an assignment is told once, to it; it is not
acted on: our next heartbeats are full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from asyncrevoke.backoff import Backoff
from asyncrevoke.core.io.effects import Channel, Failed
from asyncrevoke.core.io.link_silence import patience_of
from asyncrevoke.protocol.messages import ConsumerGroupHeartbeatResponse, ErrorCode

if TYPE_CHECKING:
    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.effects import Node
    from asyncrevoke.core.io.outbox import Outbox, Reply
    from asyncrevoke.core.membership.kip848.reactions import ConsumerGroupHeartbeatReactions
    from asyncrevoke.core.metadata.coordinator import Coordinator
    from asyncrevoke.protocol.messages import ConsumerGroupHeartbeatRequest, Request, Response

_TIMER = "heartbeat"
# Members learn only by their heartbeats that partitions are free or wanted back.
_EAGER_INTERVAL = 0.5
# The session timeout is the broker's secret; Kafka's is nine times the interval that it asks for.
_INTERVALS_OF_A_SESSION = 9
# An interval is less than a third of any session that leaves room for more than two heartbeats.
_LEAST_PATIENCE = 3.0
_FULL_AFTER_SILENCE = 5.0
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 2.0


class _BackgroundNews(NamedTuple):
    """Others were told, or may have been, at ``at``, what the coordinator had decided after
    ``since``; only a heartbeat of ours that is sent later brings it to us."""

    at: float
    since: float


class ConsumerGroupHeartbeat:
    """Sends the heartbeats that ``member`` composes, and reports the answers to it.

    ``confirmed_at`` is the send time of the last heartbeat that was answered without an error.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        coordinator: Coordinator,
        member: ConsumerGroupHeartbeatReactions,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._coordinator = coordinator
        self._member = member
        self._background_heartbeat: tuple[Node, ConsumerGroupHeartbeatRequest, float] | None = None
        self._running = False
        self._in_flight = False
        # Who was asked last.
        self._asked: Node | None = None
        self._again = False
        # Whether the answer to the one in flight is about a membership that has ended.
        self._ignore_answer = False
        self._full = True
        self._full_until = float("-inf")
        self._interval = config.heartbeat_interval
        self._often_until = float("-inf")
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        self._unconfirmed_since: float | None = None
        self._background_news: _BackgroundNews | None = None
        self.confirmed_at: float | None = None
        # As far as it can be known from outside the broker, in seconds.
        self.session = config.session_timeout

    def unconfirmed_since(self, sent_at: float) -> float:
        """Send time of the first heartbeat after the last one that was confirmed; ``sent_at`` if
        there is none. What the coordinator answers now it may have decided then."""
        return sent_at if self._unconfirmed_since is None else self._unconfirmed_since

    def start(self, now: float, *, after: float = 0.0) -> None:
        """Beat from now on, or ``after`` so many seconds, beginning with a full one."""
        self._running = True
        self._full = True
        self._unconfirmed_since = None
        self._background_news = None
        self._outbox.set_timer(_TIMER, now + after, self._beat)

    def stop(self) -> None:
        """No more heartbeats, and no more answers; one that is in flight is waited for all the
        same, before another is sent."""
        self._running = False
        self._again = False
        self._ignore_answer = self._in_flight
        self._outbox.cancel_timer(_TIMER)
        self._update_background_heartbeat()

    def soon(self, now: float) -> None:
        """There is something to say: at once, or as soon as the one in flight is answered."""
        if not self._running:
            return
        self._beat(now)

    def send_full(self, now: float) -> None:
        """A full one, now."""
        self._full = True
        self.soon(now)

    def often(self, until: float) -> None:
        """Something is likely to change until then."""
        self._often_until = max(self._often_until, until)

    def confirm(self, now: float, sent_at: float, interval: float) -> None:
        """Answered without an error, with the ``interval`` (s) that the group asks for."""
        self.confirmed_at = max(sent_at, self.confirmed_at or sent_at)
        if self._background_news is not None and sent_at >= self._background_news.at:
            self._background_news = None
        self._unconfirmed_since = (
            None if self._background_news is None else self._background_news.since
        )
        self._full = now < self._full_until
        self._backoff.succeeded()
        if interval > 0:
            self._interval = min(interval, self._config.heartbeat_interval)
            self.session = min(interval * _INTERVALS_OF_A_SESSION, self._config.session_timeout)
            longest = patience_of(self._config)
            self._outbox.set_patience(min(max(interval, _LEAST_PATIENCE), longest))
        self._update_background_heartbeat()
        self._schedule(now)

    def retry(self, now: float) -> None:
        """It was refused for a reason that passes: a full one after a backoff."""
        self._full = True
        delay = self._backoff.failed()
        if self._running:
            self._outbox.set_timer(_TIMER, now + delay, self._beat, spread=delay)

    def elsewhere(self, now: float, why: str) -> None:
        """It was answered by a broker that is not the coordinator: send all fields to that."""
        self._coordinator.mark_unknown(now, f"ConsumerGroupHeartbeat: {why}", self._asked)
        self._send_all_fields(now)

    def unanswered(self, now: float, reply: Reply) -> None:
        """It was not answered: send all fields, as soon as the coordinator is known."""
        why = type(reply).__name__
        if isinstance(reply, Failed):
            why = reply.detail or reply.kind.value
        self._coordinator.unanswered(now, f"ConsumerGroupHeartbeat: {why}", self._asked)
        self._send_all_fields(now)

    def _send_all_fields(self, now: float) -> None:
        self._full = True
        self._full_until = now + _FULL_AFTER_SILENCE
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
        self._update_background_heartbeat()
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
        request = self._member.compose_heartbeat(self._full)
        self._in_flight = True
        self._asked = node
        self._outbox.send(
            request,
            node,
            Channel.HEARTBEAT,
            self._timeout,
            lambda later, reply: self._answered(later, request, now, reply),
        )

    @property
    def _timeout(self) -> float:
        # A connection that is silent for so long is dead, whatever was asked on it.
        return min(self._config.request_timeout, 2 * self._outbox.patience)

    # --- while the event loop is blocked ---------------------------------------------------------

    def _update_background_heartbeat(self) -> None:
        message = self._member.background_heartbeat() if self._running else None
        node = self._coordinator.node
        if message is None:
            self._background_heartbeat = None
            self._outbox.stop_background_heartbeat()
        elif node is not None and (node, message, self._interval) != self._background_heartbeat:
            goes_on = self._background_heartbeat is not None
            self._background_heartbeat = node, message, self._interval
            self._outbox.start_background_heartbeat(
                message,
                node,
                self._interval,
                self._timeout,
                lambda reply: _with_epoch_of(reply, message),
                self._background_answered,
                same_membership=goes_on,
            )

    def _background_answered(self, now: float, sent_at: float, reply: Reply) -> None:
        news = True
        match reply:
            case ConsumerGroupHeartbeatResponse(error=ErrorCode.none):
                moved = self._member.background_epoch(now, reply.member_epoch)
                self.confirmed_at = max(sent_at, self.confirmed_at or sent_at)
                news = moved or reply.assignment is not None
            case ConsumerGroupHeartbeatResponse(error=error):
                self._log_background_failure(error.name)
            case Failed(detail=detail):
                self._log_background_failure(detail)
            case _:
                self._log_background_failure(type(reply).__name__)
        if news:
            since = self._unconfirmed_since
            since = sent_at if since is None else min(since, sent_at)
            self._background_news, self._unconfirmed_since = _BackgroundNews(now, since), since
            self._full_until = now + _FULL_AFTER_SILENCE
            self.send_full(now)

    def _log_background_failure(self, answer: str) -> None:
        self._outbox.emit("info", "a heartbeat of the thread was not answered", answer=answer)

    # --- answers ---------------------------------------------------------------------------------

    def _answered(
        self, now: float, sent: ConsumerGroupHeartbeatRequest, sent_at: float, reply: Reply
    ) -> None:
        self._in_flight = False
        if not self._ignore_answer:
            self._member.heartbeat_answered(now, sent, sent_at, reply)
            return
        self._ignore_answer = False
        if isinstance(reply, Failed):
            self._full_until = now + _FULL_AFTER_SILENCE
            why = f"ConsumerGroupHeartbeat: {reply.detail}"
            self._coordinator.unanswered(now, why, self._asked)
        if self._again:
            self._beat(now)


def _with_epoch_of(reply: Response, message: ConsumerGroupHeartbeatRequest) -> Request | None:
    """What goes on from there, unless we are no member any more."""
    if isinstance(reply, ConsumerGroupHeartbeatResponse) and reply.error is ErrorCode.none:
        return replace(message, member_epoch=reply.member_epoch)
    return None
