"""One connection to one broker: kio messages over a connection that aiokafka has opened.

aiokafka opens the socket, does TLS, SASL and the version lookup. Then requests and responses of
ours travel over its transport without it: it has a task that reads, another one that each request
waits in, and timers for each of them, so that an answer would take three turns of the event loop
from the socket to whoever waits for it. Here it takes none.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from asyncrevoke.core.io.effects import ConnectionSilent, FailureKind
from asyncrevoke.core.io.link_silence import RoundTripTime
from asyncrevoke.protocol import codec
from asyncrevoke.protocol.codec import MalformedResponse, UnsupportedVersion
from asyncrevoke.runtime.net.fatal_errors import RequestFailed, name_of, refusal
from asyncrevoke.runtime.net.frames import Frames, FrameTooLargeError
from asyncrevoke.runtime.net.keepalive import keep_alive
from asyncrevoke.runtime.net.large_answers import LargeAnswers
from asyncrevoke.runtime.net.pending_request import PendingRequest
from asyncrevoke.runtime.net.raw_connection import raw_connection, versions_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.effects import Node
    from asyncrevoke.protocol.codec import Decoded
    from asyncrevoke.protocol.messages import Request, Response
    from asyncrevoke.runtime.net.decode_threads import DecodeThreads
    from asyncrevoke.runtime.net.limited_connection import AuthenticatedSession
    from asyncrevoke.runtime.net.pending_request import Done
    from asyncrevoke.runtime.net.raw_connection import RawConnection

__all__ = ["Connection", "RequestFailed"]

_log = logging.getLogger("asyncrevoke.connection")

_MIB: Final = 1024 * 1024
_SIZE: Final = struct.Struct(">i")
# Room for what is no record data, and for responses that have none: metadata of a large cluster.
_FRAME_MARGIN: Final = _MIB
_SMALLEST_FRAME_LIMIT: Final = 16 * _MIB
# Brokers close idle connections after 10 minutes; being first avoids sending into a closed one.
_IDLE_SECONDS: Final = 540
_NEVER: Final = float("inf")
_CLOSING_SECONDS: Final = 1.0
_READ_FIRST: Final = 0.01


class Connection:
    """An open connection. Every way in which it can fail is a :class:`RequestFailed`."""

    def __init__(
        self,
        node: Node,
        raw: RawConnection,
        writer: asyncio.StreamWriter,
        versions: Mapping[int, tuple[int, int]],
        client_id: str,
        limit: int,
        threads: DecodeThreads,
        *,
        opening: float = 0.0,
        silences: asyncio.Queue[ConnectionSilent] | None = None,
    ) -> None:
        self.node = node
        self._silences = silences
        # Since when it was silent when that was told last.
        self._silent_since = -_NEVER
        self._link = RoundTripTime(opening)
        # Which makes itself felt in a hint: what never answers may not be what it should be.
        self._answered = False
        self._raw = raw
        self._writer = writer
        self._versions = versions
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._open = raw.connected()
        self._session = raw.session
        self._retired = False
        self._correlation = 0
        # In the order in which they were sent: they are answered in that order.
        self._pending: deque[PendingRequest] = deque()
        # One timer for all, which looks whether anything is overdue, or all of it idle.
        self._looks_at = _NEVER
        self._timer: asyncio.TimerHandle | None = None
        # When something was received last, as far as it has been looked at.
        self._heard_at = self._used_at = self._loop.time()
        self._arrivals = 0
        # A request seems to be overdue: whether that is so, the next look tells.
        self._overdue = False
        self._look_at(self._used_at + _IDLE_SECONDS)
        transport = writer.transport
        # The request whose answer is decoded in a thread, and is no more in ``_pending``.
        self._decoding: PendingRequest | None = None
        self._large = LargeAnswers(threads, cast("asyncio.Transport", transport))
        self._frames = Frames(transport.get_protocol(), limit, self._received, self._lost)
        transport.set_protocol(self._frames)

    @classmethod
    async def open(
        cls,
        node: Node,
        config: ConsumerConfig,
        threads: DecodeThreads,
        *,
        within: float,
        patience: float = _NEVER,
        silences: asyncio.Queue[ConnectionSilent] | None = None,
    ) -> Connection:
        """Connect, do TLS and SASL and look up the broker's versions, in at most ``within`` s.

        Later the kernel breaks it when the broker's has acknowledged nothing for twice ``patience``
        seconds. Into ``silences`` goes each silence of it.

        Raises ``RequestFailed``: AUTHENTICATION, or UNREACHABLE for everything else. If cancelled,
        the socket is closed.
        """
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        try:
            raw = raw_connection(node, config)
            async with asyncio.timeout(within):
                _, writer = await raw.connect()
            versions = versions_of(raw)
        except Exception as error:  # whatever SASL libraries raise is a refusal, too
            raise refusal(error, node, config, within) from error
        limit = max(config.fetch_max_bytes, _SMALLEST_FRAME_LIMIT) + _FRAME_MARGIN
        opening = loop.time() - begun_at
        if (sock := writer.get_extra_info("socket")) is not None:
            keep_alive(sock, 2 * RoundTripTime(opening).patience(patience))
        return cls(
            node,
            raw,
            writer,
            versions,
            config.client_id,
            limit,
            threads,
            opening=opening,
            silences=silences,
        )

    @property
    def connected(self) -> bool:
        """False as soon as either side has closed it."""
        return self._open

    @property
    def session(self) -> AuthenticatedSession | None:
        """When it has to be authenticated again; None: never."""
        return self._session

    def retire(self) -> None:
        """Close it as soon as all that was asked is answered. Nothing more may be asked."""
        self._retired = True
        self._end_if_retired()

    def _end_if_retired(self) -> None:
        if self._retired and not self._pending and self._decoding is None:
            self.abort()

    @property
    def heard_at(self) -> float:
        """When something was received last, by the event loop's clock; when it was opened, if
        nothing has been."""
        self._hear()
        return self._heard_at

    @property
    def asked_at(self) -> float | None:
        """When the request was sent that is to be answered first; None if nothing is asked."""
        return self._pending[0].sent_at if self._pending else None

    async def request(
        self, message: Request, *, within: float, patience: float = _NEVER
    ) -> Response:
        """Send ``message`` and wait for its response; see :meth:`begin`.

        If cancelled, the connection is closed unless others wait on it, since the next request
        would have to wait for an answer that nobody wants.
        """
        future: asyncio.Future[Response] = self._loop.create_future()

        def done(answer: Response | RequestFailed) -> None:
            if future.done():
                return
            if isinstance(answer, RequestFailed):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        pending = self._send(message, within, patience, done)
        try:
            return await future
        except asyncio.CancelledError:
            pending.done = None
            if all(other.done is None for other in self._pending):
                self.abort()
            raise

    def begin(
        self, message: Request, done: Done, *, within: float, patience: float = _NEVER
    ) -> None:
        """Send ``message``; ``done(answer)`` gets its response or why there is none, at the latest
        after ``within`` seconds (or two round trips of this connection, if they are longer), and
        never before this returns. If nothing at all is received for twice ``patience`` seconds, and
        those that the broker may hold the request, it fails with SILENT.

        Responses come in the order of the requests. After a timeout, or an answer that cannot be
        decoded, the connection is closed, and other requests on it fail with DISCONNECTED.
        """
        try:
            self._send(message, within, patience, done)
        except RequestFailed as failure:
            self._loop.call_soon(done, failure)

    def _send(self, message: Request, within: float, patience: float, done: Done) -> PendingRequest:
        if not self._open:
            raise RequestFailed(
                FailureKind.UNREACHABLE, f"the connection to {name_of(self.node)} was closed before"
            )
        message_type = type(message)
        correlation = self._correlation = (self._correlation + 1) % 2**31
        try:
            version = codec.choose_version(
                message_type, self._versions, by_id=codec.knows_ids(message)
            )
            header = codec.encode_header(message_type, version, correlation, self._client_id)
            body = codec.encode_request(message, version)
        except (UnsupportedVersion, ValueError) as error:
            detail = f"{name_of(self.node)}: {error}"
            raise RequestFailed(FailureKind.UNSUPPORTED, detail) from error
        now = self._used_at = self._loop.time()
        pending = PendingRequest(correlation, version, message, within, patience)
        pending.done = done
        pending.sent_at = now
        pending.deadline = now + self._link.patience(within)
        pending.alone = not self._pending
        try:
            self._writer.write(_SIZE.pack(len(header) + len(body)) + header + body)
        except (OSError, RuntimeError) as error:  # uvloop raises the latter
            self.abort()
            raise self._broken(error, message) from error
        self._pending.append(pending)
        look_at = min(pending.deadline, pending.silent_at(now, self._link))
        if look_at < self._looks_at:
            self._look_at(look_at)
        return pending

    # --- answers ---------------------------------------------------------------------------------

    def _received(self, frame: bytes | bytearray) -> bool:
        """Take a frame in; whether others may follow."""
        if self._large.busy:
            self._large.keep(frame)
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
                    f"{name_of(self.node)} answered {_what(message)} out of order: request"
                    f" {pending.correlation} by {correlation}",
                )
                return False
            if pending.done is None:
                answer = None
            elif len(frame) <= codec.LARGE:
                answer = codec.decode_response(type(message), pending.version, frame, message)
            else:
                answer = codec.decode_usual(type(message), pending.version, frame, message)
                if answer is None:
                    self._decode_large(pending, frame)
                    return True
        except MalformedResponse as error:
            self._fail_first(
                FailureKind.MALFORMED, f"{name_of(self.node)} answered {_what(message)}: {error}"
            )
            return False
        self._take_answered(pending)
        if answer is not None:
            self._deliver(pending, answer)
        self._end_if_retired()
        return self._open

    def _take_answered(self, pending: PendingRequest) -> None:
        """Its answer has come: it is not waited for any more."""
        del self._pending[0]
        self._answered = True
        self._hear()
        if pending.alone and not pending.held:
            self._link.answered(self._heard_at - pending.sent_at)

    def _decode_large(self, pending: PendingRequest, frame: bytes | bytearray) -> None:
        message = pending.message
        self._take_answered(pending)
        self._decoding = pending
        decode = partial(codec.decode_response, type(message), pending.version, frame, message)
        self._large.decode(frame, decode, self._decoded)

    def _decoded(self, answer: Decoded | BaseException) -> None:
        pending, self._decoding = self._decoding, None
        if pending is None:
            return
        if isinstance(answer, BaseException):
            self._pending.appendleft(pending)
            self._fail_first(
                FailureKind.MALFORMED,
                f"{name_of(self.node)} answered {_what(pending.message)}: {answer}",
            )
            return
        self._deliver(pending, answer)
        self._end_if_retired()
        while self._open and not self._large.busy:
            frame = self._large.next_kept()
            if frame is None:
                self._large.read_on()
                # What seems to be overdue may have come in the meantime.
                self._look_at(self._loop.time() + _READ_FIRST)
                return
            self._received(frame)

    def _deliver(self, pending: PendingRequest, answer: Decoded) -> None:
        if answer.unknown_errors:
            codes = ", ".join(map(str, sorted(set(answer.unknown_errors))))
            _log.warning(
                "%s answered %s with error codes that this client does not know: %s; they are "
                "taken for unknown server errors",
                name_of(self.node),
                _what(pending.message),
                codes,
            )
        if pending.done is not None:
            pending.done(answer.message)

    def _fail_first(self, kind: FailureKind, detail: str) -> None:
        """The request that is to be answered first fails by this, and all others with it."""
        pending = self._pending.popleft()
        if pending.done is not None:
            self._loop.call_soon(pending.done, RequestFailed(kind, detail))
        self.abort()

    def _lost(self, error: Exception | None) -> None:
        """No answers come any more."""
        if not self._open:
            return
        if isinstance(error, TimeoutError) and self._pending:
            self._fail_first(
                FailureKind.SILENT, f"{name_of(self.node)} acknowledges nothing: {error}"
            )
        elif isinstance(error, FrameTooLargeError) and self._pending:
            what = _what(self._pending[0].message)
            detail = f"{name_of(self.node)} answered {what}: {error}"
            self._fail_first(FailureKind.MALFORMED, detail)
        else:
            self._abort(error or EOFError())

    # --- time ------------------------------------------------------------------------------------

    def _look_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = at
        self._timer = self._loop.call_at(at, self._look)

    def _hear(self) -> None:
        """Something may have been received, if only a part of an answer."""
        if self._frames.arrivals != self._arrivals or self._decoding is not None:
            self._arrivals = self._frames.arrivals
            self._heard_at = self._loop.time()

    def _look(self) -> None:
        """Requests come more often than timers should be set: only when this one goes off it is
        seen whether it was still needed."""
        if self._decoding is not None:
            return  # nothing is read meanwhile; it looks again then
        self._hear()
        now = self._loop.time()
        looks_at = self._next_look()
        overdue, self._overdue = self._overdue, looks_at <= now
        if self._overdue:
            if overdue:
                self._give_up(now)
            else:
                # If the event loop was blocked, an answer may be there and not be read yet.
                self._look_at(now + _READ_FIRST)
        elif self._pending:
            self._look_at(looks_at)
        elif now - self._used_at >= _IDLE_SECONDS:
            self.abort()
        else:
            self._look_at(self._used_at + _IDLE_SECONDS)

    def _next_look(self) -> float:
        """When something is overdue, or it is silent, or dead."""
        if not self._pending:
            return _NEVER
        head = self._pending[0]
        since = max(head.sent_at, self._heard_at)
        if self._silences is None or since == self._silent_since:
            silence = head.dead_at(since, self._link)
        else:
            silence = head.silent_at(since, self._link)
        return min(silence, *(pending.deadline for pending in self._pending))

    def _give_up(self, now: float) -> None:
        head = self._pending[0]
        what = _what(head.message)
        since = max(head.sent_at, self._heard_at)
        if head.dead_at(since, self._link) <= now:
            seconds = round(now - since, 1)
            detail = f"{name_of(self.node)} sent nothing for {seconds:g} s, asked for {what}"
            self._fail_first(FailureKind.SILENT, detail)
            return
        if (
            self._silences is not None
            and since != self._silent_since
            and head.silent_at(since, self._link) <= now
        ):
            self._silent_since = since
            self._silences.put_nowait(ConnectionSilent(self.node, since))
            self._overdue = False
            self._look_at(max(now, self._next_look()))
            return
        pending = min(self._pending, key=lambda pending: pending.deadline)
        self._pending.remove(pending)
        self._pending.appendleft(pending)
        silent = self._heard_at < pending.sent_at and not pending.held and pending.patience < _NEVER
        self._fail_first(
            FailureKind.SILENT if silent else FailureKind.TIMEOUT,
            f"{name_of(self.node)} did not answer {_what(pending.message)} within"
            f" {round(pending.within, 1):g} s",
        )

    # --- the end ---------------------------------------------------------------------------------

    def abort(self) -> None:
        """Close without waiting; requests in flight fail with DISCONNECTED."""
        self._abort(None)

    def _abort(self, cause: Exception | None) -> None:
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._raw.close()
        self._large.drop()
        if self._decoding is not None:
            self._pending.appendleft(self._decoding)
            self._decoding = None
        while self._pending:
            pending = self._pending.popleft()
            if pending.done is not None:
                self._loop.call_soon(pending.done, self._broken(cause, pending.message))

    async def close(self) -> None:
        """Close, and wait for the goodbye of TLS for at most a second. If cancelled, don't wait."""
        self.abort()
        try:
            # A peer that went away without a word never says goodbye.
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await self._writer.wait_closed()
        finally:
            self._writer.transport.abort()

    def _broken(self, cause: Exception | None, message: Request) -> RequestFailed:
        detail = f"the connection to {name_of(self.node)} broke before it answered {_what(message)}"
        if isinstance(cause, EOFError):
            detail = (
                f"{name_of(self.node)} closed the connection before it answered {_what(message)}"
            )
        elif cause is not None:
            detail += f": {cause!r}"
        if not self._answered:
            detail += "; if it always does, check security_protocol and the broker's log"
        return RequestFailed(FailureKind.DISCONNECTED, detail)


def _what(message: Request) -> str:
    return type(message).__name__.removesuffix("Request")
