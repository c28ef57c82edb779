"""One connection to one broker: kio messages over aiokafka's connection.

aiokafka opens the socket, does TLS, SASL and the version lookup, and matches responses to requests.
Its ``send`` takes any object with the few members of :class:`_Outgoing` and :class:`_Prepared`, by
which messages of ours travel.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, cast

from aiokafka import errors as kafka_errors
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection

from asyncrevoke.config.security import security_options
from asyncrevoke.core.effects import FailureKind
from asyncrevoke.protocol import codec
from asyncrevoke.protocol.codec import Decoded, MalformedResponse, UnsupportedVersion
from asyncrevoke.runtime.bearer import answer_challenges
from asyncrevoke.runtime.credentials_filter import keep_credentials_out_of_logs

if TYPE_CHECKING:
    import io
    from collections.abc import Mapping

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.effects import Node
    from asyncrevoke.protocol.messages import Request, Response

__all__ = ["Connection", "RequestFailed"]

_log = logging.getLogger("asyncrevoke.connection")

_MIB: Final = 1024 * 1024
# Room for what is no record data, and for responses that have none: metadata of a large cluster.
_FRAME_MARGIN: Final = _MIB
_SMALLEST_FRAME_LIMIT: Final = 16 * _MIB
# Brokers close idle connections after 10 minutes; being first avoids sending into a closed one.
_IDLE_SECONDS: Final = 540
# aiokafka has one timeout per connection, ours are per request.
_NEVER_MS: Final = 2**31 - 1
_CLOSING_SECONDS: Final = 1.0


class RequestFailed(Exception):  # noqa: N818 - as the core calls it
    """A request without a response; the message is a sentence for a log line."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class _FrameTooLargeError(ConnectionError):
    """A response larger than we are willing to hold. An OSError, as aiokafka expects of sockets."""


class _NoTokenError(Exception):
    """The application's token provider failed."""


class _Header(Protocol):
    correlation_id: int


class _RawConnection(Protocol):
    """What we use of aiokafka's connection."""

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]: ...
    async def send(self, request: object) -> Decoded | MalformedResponse: ...
    def connected(self) -> bool: ...
    def close(self) -> asyncio.Future[None] | None: ...


class _Bytes:
    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def encode(self) -> bytes:
        return self._data


class _ResponseHeader:
    __slots__ = ("correlation_id",)

    def __init__(self, correlation_id: int) -> None:
        self.correlation_id = correlation_id


class _Outgoing:
    """A request before the version is known."""

    __slots__ = ("_message",)

    def __init__(self, message: Request) -> None:
        self._message = message

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> _Prepared:
        message = self._message
        by_id = codec.knows_ids(message)
        return _Prepared(message, codec.choose_version(type(message), versions, by_id=by_id))


class _Prepared:
    """A request in the version that both sides speak, and the reader of its response."""

    __slots__ = ("_message", "_version")

    def __init__(self, message: Request, version: int) -> None:
        self._message = message
        self._version = version

    def build_request_header(self, correlation_id: int, client_id: str) -> _Bytes:
        message_type = type(self._message)
        return _Bytes(codec.encode_header(message_type, self._version, correlation_id, client_id))

    def encode(self) -> bytes:
        return codec.encode_request(self._message, self._version)

    def parse_response_header(self, frame: io.BytesIO) -> _Header:
        try:
            return _ResponseHeader(codec.correlation_id(frame.getvalue()))
        except MalformedResponse:
            return _ResponseHeader(-1)  # matches no request, so the connection is given up

    @property
    def RESPONSE_TYPE(self) -> _Prepared:  # noqa: N802 - aiokafka's name
        return self

    def decode(self, frame: io.BytesIO) -> Decoded | MalformedResponse:
        # Raised in here, it would be logged by aiokafka as a bug of its own.
        try:
            message = self._message
            return codec.decode_response(type(message), self._version, frame.getvalue(), message)
        except MalformedResponse as error:
            return error

    def __repr__(self) -> str:
        return f"{type(self._message).__name__} v{self._version}"


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
    ) -> None:
        self.node = node
        self._raw = raw
        self._writer = writer
        self._in_flight = 0
        self._answered = False

    @classmethod
    async def open(
        cls,
        node: Node,
        config: ConsumerConfig,
        *,
        within: float,
    ) -> Connection:
        """Connect, authenticate and learn the broker's versions, all ``within`` so many seconds.

        Raises ``RequestFailed``: AUTHENTICATION, or UNREACHABLE for everything else. If cancelled,
        the socket is closed.
        """
        try:
            raw = _raw_connection(node, config)
            async with asyncio.timeout(within):
                reader, writer = await raw.connect()
        except Exception as error:  # whatever SASL libraries raise is a refusal, too
            raise _refusal(error, node, config, within) from error
        _limit_frames(reader, max(config.fetch_max_bytes, _SMALLEST_FRAME_LIMIT) + _FRAME_MARGIN)
        return cls(node, raw, writer)

    @property
    def connected(self) -> bool:
        """False as soon as either side has closed it."""
        return self._raw.connected()

    async def request(self, message: Request, *, within: float) -> Response:
        """Send ``message`` and wait for its response, at most ``within`` so many seconds.

        Responses come in the order of the requests. After a timeout, or an answer that cannot be
        decoded, the connection is closed, and other requests on it fail with DISCONNECTED. If
        cancelled, it is closed unless others wait on it, since the next request would have to wait
        for an answer that nobody wants.
        """
        if not self.connected:
            raise RequestFailed(
                FailureKind.UNREACHABLE, f"the connection to {_name(self.node)} was closed before"
            )
        self._in_flight += 1
        try:
            async with asyncio.timeout(within):
                answer = await self._raw.send(_Outgoing(message))
        except asyncio.CancelledError:
            if self._in_flight == 1:
                self.abort()
            raise
        except (UnsupportedVersion, ValueError) as error:
            detail = f"{_name(self.node)}: {error}"
            raise RequestFailed(FailureKind.UNSUPPORTED, detail) from error
        except TimeoutError as error:
            self.abort()
            raise RequestFailed(
                FailureKind.TIMEOUT,
                f"{_name(self.node)} did not answer {_what(message)} within {round(within, 1):g} s",
            ) from error
        except (kafka_errors.KafkaError, OSError) as error:
            self.abort()
            raise self._broken(error, message) from error
        finally:
            self._in_flight -= 1
        if isinstance(answer, MalformedResponse):
            self.abort()
            raise RequestFailed(
                FailureKind.MALFORMED, f"{_name(self.node)} answered {_what(message)}: {answer}"
            ) from answer
        self._answered = True
        if answer.unknown_errors:
            codes = ", ".join(map(str, sorted(set(answer.unknown_errors))))
            _log.warning(
                "%s answered %s with error codes that this client does not know: %s; they are "
                "taken for unknown server errors",
                _name(self.node),
                _what(message),
                codes,
            )
        return answer.message

    def abort(self) -> None:
        """Close without waiting; requests in flight fail with DISCONNECTED."""
        self._raw.close()

    async def close(self) -> None:
        """Close, and wait for the goodbye of TLS for at most a second. If cancelled, don't wait."""
        self._raw.close()
        try:
            # A peer that went away without a word never says goodbye.
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await self._writer.wait_closed()
        finally:
            self._writer.transport.abort()

    def _broken(self, error: Exception, message: Request) -> RequestFailed:
        cause = error.__cause__
        if isinstance(error, kafka_errors.CorrelationIdError):
            return RequestFailed(
                FailureKind.MALFORMED,
                f"{_name(self.node)} answered {_what(message)} out of order: {error}",
            )
        if isinstance(cause, _FrameTooLargeError):
            return RequestFailed(
                FailureKind.MALFORMED, f"{_name(self.node)} answered {_what(message)}: {cause}"
            )
        detail = f"the connection to {_name(self.node)} broke before it answered {_what(message)}"
        if isinstance(cause, asyncio.IncompleteReadError):
            detail = f"{_name(self.node)} closed the connection before it answered {_what(message)}"
        elif cause is not None:
            detail += f": {cause!r}"
        if not self._answered:
            detail += "; if it always does, check security_protocol and the broker's log"
        return RequestFailed(FailureKind.DISCONNECTED, detail)


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
        max_idle_ms=_IDLE_SECONDS * 1000,
        **security,
    )
    answer_challenges(connection)
    return cast("_RawConnection", connection)


def _limit_frames(reader: asyncio.StreamReader, limit: int) -> None:
    """Refuse a frame by its declared size, before it is collected in memory.

    aiokafka reads a frame as its size and then ``readexactly(size)`` from this reader.
    """
    read = reader.readexactly

    async def readexactly(n: int) -> bytes:
        if not 0 <= n <= limit:
            raise _FrameTooLargeError(
                f"a response of {n} bytes, and at most {limit} are taken; if that is a record batch"
                " of yours, raise fetch_max_bytes"
            )
        return await read(n)

    setattr(reader, "readexactly", readexactly)  # noqa: B010 - a method for type checkers


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
