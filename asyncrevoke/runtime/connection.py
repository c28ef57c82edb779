"""One connection to one broker: kio messages over a connection that aiokafka has opened.

aiokafka opens the socket, does TLS, SASL and the version lookup. Then requests and responses of
ours travel over its transport without it: it has a task that reads, another one that each request
waits in, and timers for each of them, so that an answer would take three turns of the event loop
from the socket to whoever waits for it. Here it takes none.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, cast

from aiokafka import errors as kafka_errors
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection

from asyncrevoke.config.security import security_options
from asyncrevoke.core.effects import FailureKind
from asyncrevoke.protocol import codec
from asyncrevoke.protocol.codec import MalformedResponse, UnsupportedVersion
from asyncrevoke.runtime.bearer import answer_challenges
from asyncrevoke.runtime.credentials_filter import keep_credentials_out_of_logs
from asyncrevoke.runtime.frames import Frames, FrameTooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.effects import Node
    from asyncrevoke.protocol.messages import Request, Response

    # What gets a response, or why there is none.
    Done: TypeAlias = "Callable[[Response | RequestFailed], object]"

__all__ = ["Connection", "RequestFailed"]

_log = logging.getLogger("asyncrevoke.connection")

_MIB: Final = 1024 * 1024
_SIZE: Final = struct.Struct(">i")
# Room for what is no record data, and for responses that have none: metadata of a large cluster.
_FRAME_MARGIN: Final = _MIB
_SMALLEST_FRAME_LIMIT: Final = 16 * _MIB
# Brokers close idle connections after 10 minutes; being first avoids sending into a closed one.
_IDLE_SECONDS: Final = 540
# aiokafka has one timeout per request, ours is for all that opening takes.
_NEVER_MS: Final = 2**31 - 1
_NEVER: Final = float("inf")
_CLOSING_SECONDS: Final = 1.0


class RequestFailed(Exception):  # noqa: N818 - as the core calls it
    """A request without a response; the message is a sentence for a log line."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class _NoTokenError(Exception):
    """The application's token provider failed."""


class _RawConnection(Protocol):
    """What we use of aiokafka's connection."""

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]: ...
    def send(self, request: object) -> object: ...
    def connected(self) -> bool: ...
    def close(self) -> asyncio.Future[None] | None: ...


class _Told(Exception):  # noqa: N818 - it is no error
    """Which versions of each request the broker offers."""

    def __init__(self, versions: Mapping[int, tuple[int, int]]) -> None:
        super().__init__(versions)
        self.versions = versions


class _Question:
    """To be sent, a request is told the versions first; this one goes no further."""

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> object:
        raise _Told(versions)


class _Pending:
    """A request without its response. ``done`` is None when nobody wants that any more."""

    __slots__ = ("correlation", "deadline", "done", "message", "version", "within")

    def __init__(
        self, correlation: int, version: int, message: Request, within: float, deadline: float
    ) -> None:
        self.correlation = correlation
        self.version = version
        self.message = message
        self.within = within
        self.deadline = deadline
        self.done: Done | None = None


class _TokenProvider:
    """Tells failures of the application's provider from a refusal by the broker."""

    def __init__(self, inner: AbstractTokenProvider) -> None:
        self._inner = inner

    async def token(self) -> str:
        try:
            return cast("str", await self._inner.token())
        except Exception as error:
            raise _NoTokenError(f"the token provider failed: {error!r}") from error

    def extensions(self) -> dict[str, str]:
        return cast("dict[str, str]", self._inner.extensions())


AbstractTokenProvider.register(_TokenProvider)  # aiokafka asks for an instance


class Connection:
    """An open connection. Every way in which it can fail is a :class:`RequestFailed`."""

    def __init__(
        self,
        node: Node,
        raw: _RawConnection,
        writer: asyncio.StreamWriter,
        versions: Mapping[int, tuple[int, int]],
        client_id: str,
        limit: int,
    ) -> None:
        self.node = node
        # Which makes itself felt in a hint: what never answers may not be what it should be.
        self._answered = False
        self._raw = raw
        self._writer = writer
        self._versions = versions
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._open = raw.connected()
        self._correlation = 0
        # In the order in which they were sent: they are answered in that order.
        self._pending: deque[_Pending] = deque()
        # One timer for all, which looks whether anything is overdue, or all of it idle.
        self._looks_at = _NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._used_at = self._loop.time()
        self._look_at(self._used_at + _IDLE_SECONDS)
        transport = writer.transport
        frames = Frames(transport.get_protocol(), limit, self._received, self._lost)
        transport.set_protocol(frames)

    @classmethod
    async def open(cls, node: Node, config: ConsumerConfig, *, within: float) -> Connection:
        """Connect, do TLS and SASL and look up the broker's versions, in at most ``within`` s.

        Raises ``RequestFailed``: AUTHENTICATION, or UNREACHABLE for everything else. If cancelled,
        the socket is closed.
        """
        try:
            raw = _raw_connection(node, config)
            async with asyncio.timeout(within):
                _, writer = await raw.connect()
            versions = _versions(raw)
        except Exception as error:  # whatever SASL libraries raise is a refusal, too
            raise _refusal(error, node, config, within) from error
        limit = max(config.fetch_max_bytes, _SMALLEST_FRAME_LIMIT) + _FRAME_MARGIN
        return cls(node, raw, writer, versions, config.client_id, limit)

    @property
    def connected(self) -> bool:
        """False as soon as either side has closed it."""
        return self._open

    async def request(self, message: Request, *, within: float) -> Response:
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

        pending = self._send(message, within, done)
        try:
            return await future
        except asyncio.CancelledError:
            pending.done = None
            if all(other.done is None for other in self._pending):
                self.abort()
            raise

    def begin(self, message: Request, done: Done, *, within: float) -> None:
        """Send ``message``; ``done(answer)`` gets its response or why there is none, at the latest
        after ``within`` seconds, and never before this returns.

        Responses come in the order of the requests. After a timeout, or an answer that cannot be
        decoded, the connection is closed, and other requests on it fail with DISCONNECTED.
        """
        try:
            self._send(message, within, done)
        except RequestFailed as failure:
            self._loop.call_soon(done, failure)

    def _send(self, message: Request, within: float, done: Done) -> _Pending:
        if not self._open:
            raise RequestFailed(
                FailureKind.UNREACHABLE, f"the connection to {_name(self.node)} was closed before"
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
            detail = f"{_name(self.node)}: {error}"
            raise RequestFailed(FailureKind.UNSUPPORTED, detail) from error
        now = self._used_at = self._loop.time()
        deadline = now + within
        pending = _Pending(correlation, version, message, within, deadline)
        pending.done = done
        try:
            self._writer.write(_SIZE.pack(len(header) + len(body)) + header + body)
        except (OSError, RuntimeError) as error:  # uvloop raises the latter
            self.abort()
            raise self._broken(error, message) from error
        self._pending.append(pending)
        if deadline < self._looks_at:
            self._look_at(deadline)
        return pending

    # --- answers ---------------------------------------------------------------------------------

    def _received(self, frame: bytes | bytearray) -> bool:
        """Take a frame in; whether others may follow."""
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
                    f"{_name(self.node)} answered {_what(message)} out of order: request"
                    f" {pending.correlation} by {correlation}",
                )
                return False
            if pending.done is None:
                answer = None
            else:
                answer = codec.decode_response(type(message), pending.version, frame, message)
        except MalformedResponse as error:
            self._fail_first(
                FailureKind.MALFORMED, f"{_name(self.node)} answered {_what(message)}: {error}"
            )
            return False
        del self._pending[0]
        self._answered = True
        if answer is None:
            return True
        if answer.unknown_errors:
            codes = ", ".join(map(str, sorted(set(answer.unknown_errors))))
            _log.warning(
                "%s answered %s with error codes that this client does not know: %s; they are "
                "taken for unknown server errors",
                _name(self.node),
                _what(message),
                codes,
            )
        if pending.done is not None:
            pending.done(answer.message)
        return self._open

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
        if isinstance(error, FrameTooLargeError) and self._pending:
            what = _what(self._pending[0].message)
            detail = f"{_name(self.node)} answered {what}: {error}"
            self._fail_first(FailureKind.MALFORMED, detail)
        else:
            self._abort(error or EOFError())

    # --- time ------------------------------------------------------------------------------------

    def _look_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = at
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        """Requests come more often than timers should be set: only when this one goes off it is
        seen whether it was still needed."""
        now = self._loop.time()
        for pending in self._pending:
            if pending.deadline <= now:
                self._pending.remove(pending)
                self._pending.appendleft(pending)
                self._fail_first(
                    FailureKind.TIMEOUT,
                    f"{_name(self.node)} did not answer {_what(pending.message)} within"
                    f" {round(pending.within, 1):g} s",
                )
                return
        if self._pending:
            self._look_at(min(pending.deadline for pending in self._pending))
        elif now - self._used_at >= _IDLE_SECONDS:
            self.abort()
        else:
            self._look_at(self._used_at + _IDLE_SECONDS)

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
        detail = f"the connection to {_name(self.node)} broke before it answered {_what(message)}"
        if isinstance(cause, EOFError):
            detail = f"{_name(self.node)} closed the connection before it answered {_what(message)}"
        elif cause is not None:
            detail += f": {cause!r}"
        if not self._answered:
            detail += "; if it always does, check security_protocol and the broker's log"
        return RequestFailed(FailureKind.DISCONNECTED, detail)


def _versions(raw: _RawConnection) -> Mapping[int, tuple[int, int]]:
    try:
        raw.send(_Question())
    except _Told as told:
        return told.versions
    raise AssertionError("aiokafka sent what it should not have prepared")


def _raw_connection(node: Node, config: ConsumerConfig) -> _RawConnection:
    keep_credentials_out_of_logs()
    security = security_options(config)
    if config.sasl_oauth_token_provider is not None:
        security["sasl_oauth_token_provider"] = _TokenProvider(config.sasl_oauth_token_provider)
    connection = AIOKafkaConnection(
        node.host,
        node.port,
        client_id=config.client_id,
        request_timeout_ms=_NEVER_MS,
        **security,
    )
    answer_challenges(connection)
    return cast("_RawConnection", connection)


def _name(node: Node) -> str:
    address = f"{node.host}:{node.port}"
    return address if node.node_id < 0 else f"broker {node.node_id} at {address}"


def _what(message: Request) -> str:
    return type(message).__name__.removesuffix("Request")


_REFUSED: Final = (
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.IllegalSaslStateError,
    kafka_errors.AuthenticationFailedError,
    kafka_errors.AuthenticationMethodNotSupported,
)
_CREDENTIALS: Final = {
    "GSSAPI": "the Kerberos ticket and sasl_kerberos_service_name",
    "OAUTHBEARER": "sasl_oauth_token_provider",
}
_NAME_AND_PASSWORD: Final = "sasl_plain_username and sasl_plain_password"  # noqa: S105 - options
# TLS failures that trying again cannot mend.
_TLS_REFUSALS: Final = ("ALERT", "WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "HTTP_REQUEST")


def _refusal(error: Exception, node: Node, config: ConsumerConfig, within: float) -> RequestFailed:
    where = _name(node)
    tls = _tls_error(error)
    if tls is not None and _is_final(tls):
        return RequestFailed(
            FailureKind.AUTHENTICATION,
            f"no TLS with {where}: {tls.reason or tls}; check security_protocol and ssl_context",
        )
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        return RequestFailed(
            FailureKind.AUTHENTICATION,
            f"{where} has not enabled sasl_mechanism {config.sasl_mechanism}",
        )
    if isinstance(error, _REFUSED):
        return RequestFailed(
            FailureKind.AUTHENTICATION,
            f"{where} refused to authenticate with {config.sasl_mechanism}: {error}; check"
            f" {_CREDENTIALS.get(config.sasl_mechanism, _NAME_AND_PASSWORD)}",
        )
    if isinstance(error, _NoTokenError):
        return RequestFailed(FailureKind.UNREACHABLE, f"{where}: {error}")
    if isinstance(error, TimeoutError):
        return RequestFailed(
            FailureKind.UNREACHABLE, f"no connection to {where} within {round(within, 1):g} s"
        )
    if isinstance(error, kafka_errors.KafkaError):
        cause = error.__cause__
        why = "it closed the connection" if isinstance(cause, EOFError) else repr(cause or error)
        return RequestFailed(
            FailureKind.UNREACHABLE,
            f"{where} does not answer as a Kafka broker: {why}; if that goes on, check"
            " security_protocol and the port",
        )
    if isinstance(error, OSError):
        detail = f"no connection to {where}: {str(error) or repr(error)}"
        if isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
            detail += "; if that goes on, check security_protocol and the port"
        return RequestFailed(FailureKind.UNREACHABLE, detail)
    if config.security_protocol.startswith("SASL_"):
        return RequestFailed(
            FailureKind.AUTHENTICATION,
            f"cannot authenticate at {where} with {config.sasl_mechanism}:"
            f" {type(error).__name__}: {error}",
        )
    return RequestFailed(FailureKind.UNREACHABLE, f"no connection to {where}: {error!r}")


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__
    return error


def _is_final(error: ssl.SSLError) -> bool:
    reason = error.reason or ""
    return isinstance(error, ssl.SSLCertVerificationError) or any(
        final in reason for final in _TLS_REFUSALS
    )
