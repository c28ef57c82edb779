"""ConsumerGroupHeartbeat, the one request of a member of a consumer group (KIP-848).

One is in flight at a time. A request without a response may be processed at any time, and an
assignment, which is sent only once, is then lost. So for a while the next heartbeats are *full*:
they have all fields, and so have their responses.

While the event loop is blocked, a thread may send heartbeats without owned partitions, which
acknowledge nothing, with the epochs of the responses. Assignments in their responses are not used:
the next heartbeats of the event loop are full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import Channel, Failed
from asyncrevoke.client.core.io.link_silence import silence_timeout_of
from asyncrevoke.client.model import Value
from asyncrevoke.client.protocol.messages import (
    FEATURES_REQUEST,
    ConsumerGroupHeartbeatResponse,
    ErrorCode,
)

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.io.outbox import OnReply, Outbox, Reply
    from asyncrevoke.client.core.membership.kip848.member import ConsumerGroupMembership
    from asyncrevoke.client.core.metadata.coordinator import Coordinator
    from asyncrevoke.client.protocol.messages import (
        ConsumerGroupHeartbeatRequest,
        Request,
        Response,
    )

_TIMER = "heartbeat"
# Members learn only by heartbeats that partitions are free or revoked.
_EAGER_INTERVAL = 0.5
# The broker does not send the session timeout; Kafka's default is nine times the interval.
_INTERVALS_OF_A_SESSION = 9
# Less than a third of any session timeout with room for more than two heartbeats.
_LEAST_SILENCE_TIMEOUT = 3.0
_FULL_AFTER_SILENCE = 5.0
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 2.0


class _BackgroundNews(Value, frozen=True):
    """At ``at`` the thread received a response with what the coordinator may have decided after
    ``since``. The member learns it by a later heartbeat."""

    at: float
    since: float


class ConsumerGroupHeartbeat:
    """Sends the heartbeats that ``member`` composes, and reports the responses to it.

    ``confirmed_at`` is the send time of the last heartbeat whose response has no error.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        coordinator: Coordinator,
        member: ConsumerGroupMembership,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._coordinator = coordinator
        self._member = member
        self._background_heartbeat: tuple[Node, ConsumerGroupHeartbeatRequest, float] | None = None
        self._running = False
        self._in_flight = False
        # The broker that was asked last.
        self._asked: Node | None = None
        self._again = False
        # Whether the heartbeat in flight is of a membership that has ended.
        self._ignore_response = False
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
        """Send time of the first heartbeat after the last confirmed one; ``sent_at`` without one.
        The coordinator may have made the decision in its response since then."""
        return sent_at if self._unconfirmed_since is None else self._unconfirmed_since

    def start(self, now: float, *, after: float = 0.0) -> None:
        """Send heartbeats from now on, or ``after`` so many seconds, beginning with a full one."""
        self._running = True
        self._full = True
        self._unconfirmed_since = None
        self._background_news = None
        self._outbox.set_timer(_TIMER, now + after, self.soon)

    def stop(self) -> None:
        """Send no more heartbeats, and report no more responses. One in flight still delays the
        next."""
        self._running = False
        self._again = False
        self._ignore_response = self._in_flight
        self._outbox.cancel_timer(_TIMER)
        self._update_background_heartbeat()

    def send_full(self, now: float) -> None:
        """Send a full heartbeat now."""
        self._full = True
        self.soon(now)

    def often(self, until: float) -> None:
        """Send heartbeats more often until then: something is likely to change."""
        self._often_until = max(self._often_until, until)

    def confirm(self, now: float, sent_at: float, interval: float) -> None:
        """The heartbeat was confirmed, with the ``interval`` in seconds that the group asks for."""
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
            longest = silence_timeout_of(self._config)
            self._outbox.set_silence_timeout(min(max(interval, _LEAST_SILENCE_TIMEOUT), longest))
        self._update_background_heartbeat()
        self._schedule(now)

    def retry(self, now: float) -> None:
        """It was rejected with a temporary error: send a full one after a backoff."""
        self._full = True
        delay = self._backoff.failed()
        if self._running:
            self._outbox.set_timer(_TIMER, now + delay, self.soon, spread=delay)

    def elsewhere(self, now: float, why: str) -> None:
        """Another broker than the coordinator responded: send all fields to the coordinator."""
        self._coordinator.mark_unknown(now, f"ConsumerGroupHeartbeat: {why}", self._asked)
        self._send_all_fields(now)

    def no_response(self, now: float, reply: Reply) -> None:
        """It has no response: send all fields when the coordinator is known."""
        why = type(reply).__name__
        if isinstance(reply, Failed):
            why = reply.detail or reply.kind.value
        self._coordinator.no_response(now, f"ConsumerGroupHeartbeat: {why}", self._asked)
        self._send_all_fields(now)

    def _send_all_fields(self, now: float) -> None:
        self._full = True
        self._full_until = now + _FULL_AFTER_SILENCE
        self._coordinator.call_when_known("heartbeat", self.soon, now)

    def _schedule(self, now: float) -> None:
        if not self._running:
            return
        interval = self._interval
        if now < self._often_until:
            interval = min(interval, _EAGER_INTERVAL)
        self._outbox.set_timer(_TIMER, now if self._again else now + interval, self.soon)

    def soon(self, now: float) -> None:
        """Send a heartbeat now, or when the one in flight has its response."""
        if not self._running:
            return
        self._update_background_heartbeat()
        if self._in_flight:
            self._again = True
            return
        node = self._coordinator.node
        if node is None:
            self._coordinator.call_when_known("heartbeat", self.soon, now)
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
            lambda later, reply: self._heartbeat_response_received(later, request, now, reply),
        )

    def ask_features(self, on_reply: OnReply) -> None:
        """Ask the broker that has rejected the heartbeat for the features of the cluster."""
        assert self._asked is not None
        self.stop()
        self._outbox.send(FEATURES_REQUEST, self._asked, Channel.HEARTBEAT, self._timeout, on_reply)

    @property
    def _timeout(self) -> float:
        # A connection that is silent for this long is dead, whatever was requested on it.
        return min(self._config.request_timeout, 2 * self._outbox.silence_timeout)

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
                self._background_response_received,
                same_membership=goes_on,
            )

    def _background_response_received(self, now: float, sent_at: float, reply: Reply) -> None:
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

    def _log_background_failure(self, response: str) -> None:
        self._outbox.emit(log_events.THREAD_HEARTBEAT_FAILED, reason=response)

    def _heartbeat_response_received(
        self, now: float, sent: ConsumerGroupHeartbeatRequest, sent_at: float, reply: Reply
    ) -> None:
        self._in_flight = False
        if not self._ignore_response:
            self._member.heartbeat_response_received(now, sent, sent_at, reply)
            return
        self._ignore_response = False
        if isinstance(reply, Failed):
            self._full_until = now + _FULL_AFTER_SILENCE
            why = f"ConsumerGroupHeartbeat: {reply.detail}"
            self._coordinator.no_response(now, why, self._asked)
        if self._again:
            self.soon(now)


def _with_epoch_of(reply: Response, message: ConsumerGroupHeartbeatRequest) -> Request | None:
    """The next heartbeat of the thread, None if the membership has ended."""
    if isinstance(reply, ConsumerGroupHeartbeatResponse) and reply.error is ErrorCode.none:
        return replace(message, member_epoch=reply.member_epoch)
    return None
