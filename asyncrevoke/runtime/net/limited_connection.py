"""aiokafka's connection with limits on what a broker may cost."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportPrivateUsage=false
# pyright: reportIncompatibleMethodOverride=false, reportUnnecessaryTypeIgnoreComment=false
# ruff: noqa: SLF001
# aiokafka's connection has no types, and parts of it are private.

from __future__ import annotations

import asyncio
import random
import re
import struct
import weakref
from typing import TYPE_CHECKING, Any, Final

from aiokafka.conn import READER_LIMIT, AIOKafkaConnection, AIOKafkaProtocol
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.admin import SaslAuthenticateRequest
from typing_extensions import override

from asyncrevoke.config.checks import SCRAM_MAX_ITERATIONS
from asyncrevoke.protocol.dialects.dialect import throttle_time
from asyncrevoke.runtime.net.authentication.oauthbearer import BearerExchange
from asyncrevoke.runtime.net.authentication.scram import ScramExchange
from asyncrevoke.runtime.net.sockets import FAILED_ADDRESSES, connect_socket

if TYPE_CHECKING:
    import socket
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Awaitable, Callable

_SIZE: Final = struct.Struct(">i")
# Versions of a thousand requests take 6 kB.
_LARGEST_VERSIONS: Final = 1024 * 1024
# Kerberos has the largest tokens; Kafka's brokers accept at most 512 kB from clients.
_LARGEST_SASL: Final = 64 * 1024
# In the first message of OAUTHBEARER (RFC 7628).
_TOKEN: Final = re.compile(rb"\x01auth=Bearer ([^\x01]+)\x01")
# Fractions of a session's lifetime: random, so that clients do not renew at the same time.
_RENEWED: Final = (0.8, 0.9)
_USED: Final = 0.95
_RENEWAL_PAUSE: Final = 0.5


def abort_transport(transport: asyncio.WriteTransport) -> None:
    """Close a transport without waiting for its peer.

    Early releases of Python 3.11 raise AttributeError for a TLS transport whose connection has
    ended: its TLS protocol is None then.
    """
    if getattr(transport, "_ssl_protocol", transport) is not None:
        transport.abort()


class OversizedResponseError(ConnectionError):
    """A response larger than the limit."""


class UnexpectedResponseError(ConnectionError):
    """A response without a request."""


class AuthenticatedSession:
    """How long a broker accepts requests on a connection without another authentication (KIP-368).

    By the event loop's clock: open another connection at ``renew_at``, and send no request after
    ``ends_at``.
    """

    def __init__(self, now: float, lifetime: float) -> None:
        self.renew_at = now + lifetime * random.uniform(*_RENEWED)  # noqa: S311
        self.ends_at = now + lifetime * _USED

    def renewal_failed(self, now: float) -> None:
        """Try again after a quarter of the time that is left."""
        self.renew_at = now + max(_RENEWAL_PAUSE, (self.ends_at - now) / 4)


class LimitedConnection(AIOKafkaConnection):  # type: ignore[misc]
    """Rejects a response by its declared size, before it is read; the limit is smaller until it is
    open.

    ``scram_max_iterations`` limits the work of a SCRAM exchange. ``max_response`` is the limit in
    bytes once it is open. Opening starts no thread, except for GSSAPI and the name lookup. If
    :meth:`connect` fails or is cancelled, the socket is closed without waiting for its peer.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        max_response: int,
        scram_max_iterations: int = SCRAM_MAX_ITERATIONS,
        **options: Any,  # noqa: ANN401 - of aiokafka's
    ) -> None:
        super().__init__(host, port, **options)
        self._scram_max_iterations = scram_max_iterations
        self._max_response = max_response
        self._largest = _LARGEST_VERSIONS
        self._is_open = False
        self._transport: asyncio.WriteTransport | None = None
        self.session: AuthenticatedSession | None = None
        self._throttled_until = 0.0

    @override
    async def connect(self) -> Any:
        """Open it, look up the versions, and authenticate."""
        sock = await connect_socket(self._host, self._port)
        address = None
        try:
            address = sock.getpeername()
            streams = await self._opened(sock)
        except BaseException:
            # A proxy or a firewall may accept a connection, and leave it without a response.
            if address is not None:
                FAILED_ADDRESSES.note_failure(address)
            if self._transport is not None:
                abort_transport(self._transport)
            sock.close()
            raise
        FAILED_ADDRESSES.note_success(address)
        self._largest = self._max_response
        self._is_open = True
        return streams

    async def _opened(self, sock: socket.socket) -> tuple[StreamReader, StreamWriter]:
        """Do as aiokafka's ``connect``, which tries the addresses of a host one after another and
        begins each time with the first."""
        loop = self._loop
        tls = self._ssl_context if self._security_protocol in ("SSL", "SASL_SSL") else None
        self._closed_fut = loop.create_future()
        reader = asyncio.StreamReader(limit=READER_LIMIT, loop=loop)
        protocol = AIOKafkaProtocol(self._closed_fut, reader, loop=loop)
        async with asyncio.timeout(self._request_timeout):
            transport, _ = await loop.create_connection(
                lambda: protocol, sock=sock, ssl=tls, server_hostname=tls and self._host
            )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        # Not before: a connection with a reader counts as connected, and has to be closed.
        self._reader, self._writer, self._protocol = reader, writer, protocol
        self._read_task = self._create_reader_task()
        if self._max_idle_ms is not None:
            self._idle_handle = loop.call_soon(self._idle_check, weakref.ref(self))
        try:
            await self._do_version_lookup()
            if self._security_protocol.startswith("SASL_"):
                await self._do_sasl_handshake()
        except BaseException:
            self.close()
            raise
        return reader, writer

    @override
    def send(self, request: object, expect_response: bool = True) -> Any:
        """Send a request of aiokafka's."""
        if self._loop.time() < self._throttled_until:
            return self._send_later(request, expect_response)
        sent = super().send(request, expect_response)
        if isinstance(request, SaslAuthenticateRequest):
            return self._authenticated(request, sent)
        return self._response(sent) if expect_response else sent

    async def _send_later(self, request: object, expect_response: bool) -> Any:  # noqa: ANN401
        """Send a request after the throttle time (KIP-219), which aiokafka ignores."""
        await asyncio.sleep(self._throttled_until - self._loop.time())
        return await self.send(request, expect_response)

    async def _response(self, sent: Awaitable[Any]) -> Any:  # noqa: ANN401
        response = await sent
        throttled = throttle_time(getattr(response, "throttle_time_ms", 0))
        if throttled:
            self._throttled_until = max(self._throttled_until, self._loop.time() + throttled)
        return response

    @override
    def connected(self) -> bool:
        """Whether it is open; False when its session is about to end. aiokafka's clients check this
        before each request and open another connection if it is False."""
        if not super().connected():
            return False
        if self.session is None or self._requests or self._loop.time() < self.session.renew_at:
            return True
        self.close()
        return False

    async def _authenticated(self, request: SaslAuthenticateRequest, sent: Awaitable[Any]) -> Any:  # noqa: ANN401
        response = await sent
        if response.error_message:
            response.error_message = self._without_secrets(request, response.error_message)
        lifetime = getattr(response, "session_lifetime_ms", 0) / 1000
        if lifetime > 0:
            self.session = AuthenticatedSession(self._loop.time(), lifetime)
        return response

    def _without_secrets(self, request: SaslAuthenticateRequest, message: str) -> str:
        """The broker's message without what it was sent to authenticate the client."""
        token = _TOKEN.search(request._payload)
        for secret in (self._sasl_plain_password, token and token[1].decode(errors="replace")):
            if secret:
                message = message.replace(secret, "***")
        return message

    @override
    def _create_reader_task(self) -> Any:
        self._transport = self._writer.transport
        return super()._create_reader_task()

    @override
    async def _do_sasl_handshake(self) -> None:
        self._largest = _LARGEST_SASL
        await super()._do_sasl_handshake()

    @staticmethod
    @override
    async def _read(self_ref: Callable[[], LimitedConnection | None]) -> None:
        # Like aiokafka's: holds no reference while it waits, so an unused connection is collected.
        connection = self_ref()
        if connection is None:
            return
        reader = connection._reader
        del connection
        while True:
            (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
            connection = self_ref()
            if connection is None:
                return
            connection._admit(size)
            del connection
            frame = await reader.readexactly(size)
            connection = self_ref()
            if connection is None:
                return
            connection._handle_frame(frame)
            del connection

    def _admit(self, size: int) -> None:
        if not 0 <= size <= self._largest:
            when = "" if self._is_open else " while the connection was opened"
            error = f"a response of {size} bytes{when} exceeds the limit of {self._largest}"
            if self._is_open and self._requests and not (sent := self._requests[0][-1]).done():
                # Otherwise the request fails because the connection is closed, without a reason.
                sent.set_exception(KafkaConnectionError(error))
            raise OversizedResponseError(error)
        if not self._requests:
            raise UnexpectedResponseError("a response without a request")

    @override
    def authenticator_plain(self) -> PlainExchange:
        """The client's part of PLAIN."""
        return PlainExchange(self._sasl_plain_username, self._sasl_plain_password)

    @override
    def authenticator_scram(self) -> ScramExchange:
        """The client's part of SCRAM."""
        return ScramExchange(
            self._sasl_mechanism,
            self._sasl_plain_username,
            self._sasl_plain_password,
            self._scram_max_iterations,
        )

    @override
    def authenticator_oauth(self) -> BearerExchange:
        """The client's part of OAUTHBEARER."""
        return BearerExchange(super().authenticator_oauth())


class PlainExchange:
    """PLAIN (RFC 4616): one message, whose response is empty."""

    def __init__(self, username: str, password: str) -> None:
        self._message: bytes | None = f"{username}\0{username}\0{password}".encode()

    async def step(self, _challenge: bytes | None) -> tuple[bytes, bool] | None:
        """The message; then None."""
        message, self._message = self._message, None
        return None if message is None else (message, True)


async def open_limited(
    host: str,
    port: int,
    *,
    request_timeout_ms: int,
    **options: Any,  # noqa: ANN401 - of aiokafka's
) -> LimitedConnection:
    """An open connection; ``request_timeout_ms`` also limits the time to open it.

    Raises TimeoutError, OSError and aiokafka's errors. If cancelled, the socket is closed.
    """
    connection = LimitedConnection(host, port, request_timeout_ms=request_timeout_ms, **options)
    async with asyncio.timeout(request_timeout_ms / 1000):
        await connection.connect()
    return connection
