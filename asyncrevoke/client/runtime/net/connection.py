"""One connection to one broker.

There is no task for it: a response is decoded and delivered in the iteration of the event loop in
which it is received. An idle connection closes itself: :meth:`Connection._close_if_idle`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import BrokerThrottled, ConnectionSilent, FailureKind
from asyncrevoke.client.core.io.link_silence import RoundTripTime
from asyncrevoke.client.protocol import codec
from asyncrevoke.client.protocol.codec import MalformedResponse, UnsupportedVersion
from asyncrevoke.client.runtime.net.decode_threads import LargeResponses
from asyncrevoke.client.runtime.net.fatal_errors import (
    RequestFailed,
    connection_lost,
    node_name,
    opening_failure,
    request_name,
)
from asyncrevoke.client.runtime.net.frames import FrameTooLargeError, frame_limit
from asyncrevoke.client.runtime.net.handshake import open_connection
from asyncrevoke.client.runtime.net.pending_request import PendingRequest, ThrottledRequests
from asyncrevoke.client.runtime.net.sockets import abort_transport, keep_alive

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.effects import ConnectionReport, Node
    from asyncrevoke.client.log_events import Log
    from asyncrevoke.client.protocol.codec import DecodedResponse
    from asyncrevoke.client.protocol.messages import Request, Response
    from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffers
    from asyncrevoke.client.runtime.net.decode_threads import DecodeThreads
    from asyncrevoke.client.runtime.net.handshake import OpenedConnection
    from asyncrevoke.client.runtime.net.pending_request import Done

__all__ = ["Connection", "RequestFailed"]

# Azure Event Hubs closes idle connections after 240 s, Apache Kafka after 10 minutes: close before.
_IDLE_SECONDS: Final = 230
_NEVER: Final = float("inf")
_CLOSING_SECONDS: Final = 1.0
_READ_FIRST: Final = 0.01
# Nobody may take them.
MOST_REPORTS: Final = 1_000


class Connection:
    """An open connection. All its failures are :class:`RequestFailed`."""

    def __init__(
        self,
        node: Node,
        opened: OpenedConnection,
        client_id: str,
        limit: int,
        threads: DecodeThreads,
        *,
        opening: float = 0.0,
        reports: asyncio.Queue[ConnectionReport] | None = None,
        log: Log | None = None,
    ) -> None:
        self.node = node
        self._log = log
        self._reports = reports
        # The start of the silence that was reported last.
        self._silent_since = -_NEVER
        self._link = RoundTripTime(opening)
        # Whether there was any response; error messages have a hint if not.
        self._has_responded = False
        self._transport = opened.transport
        self._versions = opened.versions
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self.connected = not opened.frames.ended
        self.session = opened.session
        self._retired = False
        self._correlation = 0
        # In the order in which they were sent, which is the order of the responses.
        self._pending: deque[PendingRequest] = deque()
        self.throttled = ThrottledRequests()
        # One timer for all requests and for the idle limit.
        self._checks_at = _NEVER
        self._timer: asyncio.TimerHandle | None = None
        # When something was received last, as of the last check.
        self._received_at = self._used_at = self._loop.time()
        self._arrivals = opened.frames.arrivals
        # A request seemed overdue in the last check; the next one decides.
        self._overdue = False
        self._check_at(self._used_at + _IDLE_SECONDS)
        # The request whose response is decoded in a thread; it is not in ``_pending``.
        self._decoding: PendingRequest | None = None
        self._large_responses = LargeResponses(threads, opened.transport)
        self._frames = opened.frames
        self._frames.limit(limit)
        self._frames.deliver_to(self)
        self.throttle(opened.throttled_until)

    @classmethod
    async def open(
        cls,
        node: Node,
        config: ConsumerConfig,
        threads: DecodeThreads,
        buffers: ReceiveBuffers,
        *,
        within: float,
        silence_timeout: float = _NEVER,
        reports: asyncio.Queue[ConnectionReport] | None = None,
        cluster_id: str | None = None,
        log: Log | None = None,
    ) -> Connection:
        """Connect, do TLS and SASL and look up the broker's versions, in at most ``within`` s.

        The kernel closes the connection when the peer acknowledges nothing for twice the
        ``silence_timeout`` in seconds. ``reports`` receives an event each time that nothing is
        received, and for each throttle time. ``cluster_id``: as for :func:`open_connection`.
        ``log`` receives a line about a response with unknown error codes.

        Raises ``RequestFailed``: AUTHENTICATION, or UNREACHABLE for everything else. If cancelled,
        the socket is closed.
        """
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        try:
            async with asyncio.timeout(within):
                opened = await open_connection(node, config, buffers, cluster_id)
        except Exception as error:  # SASL libraries raise errors of their own
            raise opening_failure(error, node, config, within) from error
        opening = loop.time() - begun_at
        if (sock := opened.transport.get_extra_info("socket")) is not None:
            keep_alive(sock, 2 * RoundTripTime(opening).silence_timeout(silence_timeout))
        return cls(
            node,
            opened,
            config.client_id,
            frame_limit(config.fetch_max_bytes),
            threads,
            opening=opening,
            reports=reports,
            log=log,
        )

    def retire(self) -> None:
        """Send no further requests, and close it after the last response."""
        self._retired = True
        self._end_if_retired()

    def _end_if_retired(self) -> None:
        waits = bool(self._pending) or self.throttled.next_at < _NEVER
        if self._retired and not waits and self._decoding is None:
            self.abort()

    def throttle(self, until: float) -> None:
        """Send nothing before ``until``. Requests in flight may wait at the broker until then."""
        self.throttled.begin(until)
        for pending in self._pending:
            pending.extend(until, self._link)

    @property
    def received_at(self) -> float:
        """When something was received last, or when it was opened, by the event loop's clock."""
        self._note_received()
        return self._received_at

    @property
    def oldest_sent_at(self) -> float | None:
        """When the oldest request in flight was sent; None if there is none."""
        return self._pending[0].sent_at if self._pending else None

    async def request(
        self, message: Request, *, within: float, silence_timeout: float = _NEVER
    ) -> Response:
        """Send ``message`` and wait for its response; see :meth:`begin`.

        If cancelled, the connection is closed unless other requests are in flight: the next request
        would have to wait for an unwanted response.
        """
        future: asyncio.Future[Response] = self._loop.create_future()

        def done(response: Response | RequestFailed) -> None:
            if future.done():
                return
            if isinstance(response, RequestFailed):
                future.set_exception(response)
            else:
                future.set_result(response)

        pending = self.begin(message, done, within=within, silence_timeout=silence_timeout)
        try:
            return await future
        except asyncio.CancelledError:
            if pending is None:
                raise
            pending.cancel()
            if not self.throttled.discard(pending) and all(
                other.done is None for other in self._pending
            ):
                self.abort()
            raise

    def begin(
        self, message: Request, done: Done, *, within: float, silence_timeout: float = _NEVER
    ) -> PendingRequest | None:
        """Send ``message``, after the throttle time of an earlier response (KIP-219). ``done`` gets
        its response or failure, never before this returns; None if it could not be sent.

        It fails with TIMEOUT after ``within`` seconds (or two round trips of this connection, if
        they are longer), and with SILENT if nothing is received for twice ``silence_timeout``
        seconds plus the time that the broker may wait before it responds. A timeout is SILENT, too,
        if nothing was received since the request was sent, and the broker may not hold it.

        Responses come in the order of the requests. After a timeout or a malformed response the
        connection is closed, and its other requests fail with DISCONNECTED.
        """
        if not self.connected:
            detail = f"the connection to {node_name(self.node)} was closed before"
            self._loop.call_soon(done, RequestFailed(FailureKind.UNREACHABLE, detail))
            return None
        self._correlation = (self._correlation + 1) % 2**31
        try:
            version, data = codec.encode_frame(
                message, self._versions, self._correlation, self._client_id
            )
        except (UnsupportedVersion, ValueError) as error:
            failure = RequestFailed(FailureKind.UNSUPPORTED, f"{node_name(self.node)}: {error}")
            failure.__cause__ = error
            self._loop.call_soon(done, failure)
            return None
        now = self._used_at = self._loop.time()
        pending = PendingRequest(self._correlation, version, message, done, within, silence_timeout)
        if self.throttled.must_wait(now):
            self.throttled.put(pending, data)
            look_at = self.throttled.next_at
        else:
            self._write(now, pending, data)
            look_at = min(pending.deadline, pending.silent_at(now, self._link))
        if look_at < self._checks_at:
            self._check_at(look_at)
        return pending

    def _write(self, now: float, pending: PendingRequest, data: bytes) -> None:
        pending.sent(now, self._link, alone=not self._pending)
        self._pending.append(pending)
        try:
            self._transport.write(data)
        except (OSError, RuntimeError) as error:  # uvloop raises the latter
            self.abort(error)

    # --- responses -------------------------------------------------------------------------------

    def frame_received(self, frame: bytes | memoryview) -> bool:
        """Handle a response. Returns whether others may follow."""
        if self._large_responses.busy:
            self._large_responses.keep(frame)
            return True
        if not self._pending:
            self.abort()
            return False
        pending = self._pending[0]
        message = pending.message
        try:
            correlation = codec.correlation_id(frame)
            if correlation != pending.correlation:
                self._fail_first(
                    FailureKind.MALFORMED,
                    f"{node_name(self.node)} responded to {request_name(message)} out of order: to"
                    f" request {correlation} instead of {pending.correlation}",
                )
                return False
            if pending.done is None:
                response = None
            elif len(frame) <= codec.LARGE_RESPONSE:
                response = codec.decode_response(type(message), pending.version, frame, message)
            else:
                response = codec.decode_fast_path(type(message), pending.version, frame, message)
                if response is None:
                    self._decode_large(pending, frame)
                    return True
        except MalformedResponse as error:
            self._fail_invalid(error)
            return False
        self._response_received(pending)
        if response is not None:
            self._deliver(pending, response)
        self._end_if_retired()
        return self.connected

    def _response_received(self, pending: PendingRequest) -> None:
        """Its response was received."""
        del self._pending[0]
        self._has_responded = True
        self._note_received()
        if pending.was_alone and not pending.broker_wait:
            self._link.response_took(self._received_at - pending.sent_at)

    def _decode_large(self, pending: PendingRequest, frame: bytes | memoryview) -> None:
        message = pending.message
        self._response_received(pending)
        self._decoding = pending
        decode = partial(codec.decode_response, type(message), pending.version, frame, message)
        self._large_responses.decode(decode, self._decoded)

    def _decoded(self, response: DecodedResponse | BaseException) -> None:
        pending, self._decoding = self._decoding, None
        if pending is None:
            return
        if isinstance(response, BaseException):
            self._pending.appendleft(pending)
            self._fail_invalid(response)
            return
        self._deliver(pending, response)
        self._end_if_retired()
        while self.connected and not self._large_responses.busy:
            frame = self._large_responses.next_kept()
            if frame is None:
                self._large_responses.resume_reading()
                # A response that seems overdue may have been received meanwhile.
                self._check_at(self._loop.time() + _READ_FIRST)
                return
            self.frame_received(frame)

    def _deliver(self, pending: PendingRequest, response: DecodedResponse) -> None:
        if response.unknown_errors and self._log is not None:
            codes = ", ".join(map(str, sorted(set(response.unknown_errors))))
            log_events.UNKNOWN_ERROR_CODES.write_to(
                self._log,
                node=node_name(self.node),
                request=request_name(pending.message),
                codes=codes,
            )
        if response.throttle_time:
            self.throttle(self._loop.time() + response.throttle_time)
            if self._reports is not None and self._reports.qsize() < MOST_REPORTS:
                name = request_name(pending.message)
                self._reports.put_nowait(BrokerThrottled(self.node, name, response.throttle_time))
        if pending.done is not None:
            pending.done(response.message)

    def _fail_first(self, kind: FailureKind, detail: str) -> None:
        """The oldest request fails with this, and the others with DISCONNECTED."""
        pending = self._pending.popleft()
        if pending.done is not None:
            self._loop.call_soon(pending.done, RequestFailed(kind, detail))
        self.abort()

    def _fail_invalid(self, problem: BaseException) -> None:
        what = request_name(self._pending[0].message)
        detail = f"{node_name(self.node)} sent an invalid response to {what}: {problem}"
        self._fail_first(FailureKind.MALFORMED, detail)

    def frames_ended(self, error: Exception | None) -> None:
        """There are no further responses."""
        if not self.connected:
            return
        if isinstance(error, TimeoutError) and self._pending:
            self._fail_first(
                FailureKind.SILENT, f"{node_name(self.node)} acknowledges nothing: {error}"
            )
        elif isinstance(error, FrameTooLargeError) and self._pending:
            self._fail_invalid(error)
        else:
            self.abort(error or EOFError())

    # --- time ------------------------------------------------------------------------------------

    def _check_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._checks_at = at
        self._timer = self._loop.call_at(at, self._check_times)

    def _note_received(self) -> None:
        """Note whether anything was received, if only part of a response."""
        if self._frames.arrivals != self._arrivals or self._decoding is not None:
            self._arrivals = self._frames.arrivals
            self._received_at = self._loop.time()

    def _check_times(self) -> None:
        """Check for overdue requests when the timer of the earliest one expires; a timer for each
        request would cost more."""
        if self._decoding is not None or not self.connected:
            return  # reading is paused meanwhile; resuming it sets the timer
        self._note_received()
        now = self._loop.time()
        while (due := self.throttled.take(now)) is not None:
            self._write(now, *due)
        looks_at = self._next_check()
        overdue, self._overdue = self._overdue, looks_at <= now
        if self._overdue:
            if overdue:
                self._fail_overdue(now)
            else:
                # If the event loop was blocked, a response may not have been read yet.
                self._frames.read_queued()
                self._check_at(now + _READ_FIRST)
        elif looks_at < _NEVER:
            self._check_at(looks_at)
        else:
            self._close_if_idle(now)

    def _close_if_idle(self, now: float) -> None:
        """Close it if no request was sent for ``_IDLE_SECONDS``; the next one opens another."""
        if now - self._used_at >= _IDLE_SECONDS:
            self.abort()
        else:
            self._check_at(self._used_at + _IDLE_SECONDS)

    def _next_check(self) -> float:
        """When a request is overdue, or the connection counts as silent."""
        if not self._pending:
            return self.throttled.next_at
        head = self._pending[0]
        since = self._silent_from(head)
        is_reported = self._reports is None or since == self._silent_since
        silence = (head.dead_at if is_reported else head.silent_at)(since, self._link)
        deadlines = (pending.deadline for pending in self._pending)
        return min(silence, self.throttled.next_at, *deadlines)

    def _silent_from(self, head: PendingRequest) -> float:
        """Since when something might have been received."""
        return max(head.sent_at, self._received_at, self.throttled.until)

    def _fail_overdue(self, now: float) -> None:
        head = self._pending[0]
        what = request_name(head.message)
        since = self._silent_from(head)
        if head.dead_at(since, self._link) <= now:
            seconds = round(now - since, 1)
            detail = f"{node_name(self.node)} sent nothing for {seconds:g} s, asked for {what}"
            self._fail_first(FailureKind.SILENT, detail)
            return
        if (
            self._reports is not None
            and since != self._silent_since
            and head.silent_at(since, self._link) <= now
        ):
            self._silent_since = since
            self._reports.put_nowait(ConnectionSilent(self.node, since))
            self._overdue = False
            self._check_at(max(now, self._next_check()))
            return
        pending = min(self._pending, key=lambda pending: pending.deadline)
        self._pending.remove(pending)
        self._pending.appendleft(pending)
        self._fail_first(
            FailureKind.SILENT if pending.is_unheard(self._received_at) else FailureKind.TIMEOUT,
            f"{node_name(self.node)} did not respond to {request_name(pending.message)} within"
            f" {round(pending.within, 1):g} s",
        )

    # --- the end ---------------------------------------------------------------------------------

    def abort(self, cause: Exception | None = None) -> None:
        """Close without waiting; requests in flight fail with DISCONNECTED."""
        self.connected = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._transport.close()
        self._large_responses.discard()
        if self._decoding is not None:
            self._pending.appendleft(self._decoding)
            self._decoding = None
        self._pending.extend(self.throttled.clear())
        while self._pending:
            pending = self._pending.popleft()
            if pending.done is not None:
                self._loop.call_soon(pending.done, self._lost_before(pending.message, cause))

    async def close(self) -> None:
        """Close, and wait for the TLS closure at most a second. If cancelled, do not wait."""
        self.abort()
        try:
            # A peer that vanished never closes its side.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await self._frames.closed.wait()
        finally:
            abort_transport(self._transport)

    def _lost_before(self, message: Request, cause: Exception | None) -> RequestFailed:
        return connection_lost(self.node, message, cause, has_responded=self._has_responded)
