"""aiokafka's connection with limits on what a broker may cost before it has been authenticated."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
# pyright: reportIncompatibleMethodOverride=false, reportUnnecessaryTypeIgnoreComment=false
# ruff: noqa: SLF001
# aiokafka's connection has no types, and parts of it are private.

from __future__ import annotations

import asyncio
import random
import struct
from typing import TYPE_CHECKING, Any, Final

from aiokafka.conn import AIOKafkaConnection
from aiokafka.protocol.admin import SaslAuthenticateRequest
from typing_extensions import override

from asyncrevoke.config.checks import SCRAM_MAX_ITERATIONS
from asyncrevoke.runtime.net.authentication.oauthbearer import BearerExchange
from asyncrevoke.runtime.net.authentication.scram import ScramExchange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["AuthenticatedSession", "LimitedConnection", "OversizedAnswerError", "open_limited"]

_SIZE: Final = struct.Struct(">i")
# A broker that knows a thousand requests sends 6 kB of versions.
_LARGEST_VERSIONS: Final = 1024 * 1024
# Kerberos has the largest tokens; Kafka's brokers take at most 512 kB from clients.
_LARGEST_SASL: Final = 64 * 1024
# Of a session's lifetime: not all clients renew at once, and clocks and networks take their part.
_RENEWED: Final = (0.8, 0.9)
_USED: Final = 0.95
_RENEWAL_PAUSE: Final = 0.5


class OversizedAnswerError(ConnectionError):
    """An answer larger than a broker may send before it has authenticated a client."""


class UnexpectedAnswerError(ConnectionError):
    """An answer that nothing was asked for."""


class AuthenticatedSession:
    """How long a broker keeps a connection before it asks for authentication again (KIP-368).

    Times are those of the event loop's clock: another connection should be opened at ``renew_at``,
    and no request should be sent after ``ends_at``.
    """

    def __init__(self, now: float, lifetime: float) -> None:
        self.renew_at = now + lifetime * random.uniform(*_RENEWED)  # noqa: S311
        self.ends_at = now + lifetime * _USED

    def renewal_failed(self, now: float) -> None:
        """Try again later, the sooner the less time is left."""
        self.renew_at = now + max(_RENEWAL_PAUSE, (self.ends_at - now) / 4)


class LimitedConnection(AIOKafkaConnection):  # type: ignore[misc]
    """Refuses an answer by the size that it declares, before it is read, until it is open.

    ``scram_max_iterations`` bounds the work of a SCRAM exchange. Opening starts no thread, but for
    GSSAPI and the name lookup. If :meth:`connect` fails or is cancelled, the socket is closed
    without waiting for its peer.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        scram_max_iterations: int = SCRAM_MAX_ITERATIONS,
        **options: Any,  # noqa: ANN401 - of aiokafka's
    ) -> None:
        super().__init__(host, port, **options)
        self._scram_max_iterations = scram_max_iterations
        self._largest: int | None = _LARGEST_VERSIONS
        self._transport: asyncio.WriteTransport | None = None
        self.session: AuthenticatedSession | None = None

    @override
    async def connect(self) -> Any:
        """Open it, ask for the versions, and authenticate."""
        try:
            streams = await super().connect()
        except BaseException:
            if self._transport is not None:
                self._transport.abort()
            raise
        self._largest = None
        return streams

    @override
    def send(self, request: object, expect_response: bool = True) -> Any:
        """Send a request of aiokafka's."""
        answer = super().send(request, expect_response)
        if isinstance(request, SaslAuthenticateRequest):
            return self._authenticated(answer)
        return answer

    @override
    def connected(self) -> bool:
        """Whether it is open. aiokafka's clients ask before each request, and open another one if
        it is not: that is how they replace one whose session is about to end."""
        if not super().connected():
            return False
        if self.session is None or self._requests or self._loop.time() < self.session.renew_at:
            return True
        self.close()
        return False

    async def _authenticated(self, answer: Awaitable[Any]) -> Any:  # noqa: ANN401
        response = await answer
        lifetime = getattr(response, "session_lifetime_ms", 0) / 1000
        if lifetime > 0:
            self.session = AuthenticatedSession(self._loop.time(), lifetime)
        return response

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
        # As aiokafka's: a connection that nobody holds is collected while this waits.
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
        if size < 0 or (self._largest is not None and size > self._largest):
            raise OversizedAnswerError(
                f"an answer of {size} bytes while the connection was opened, where at most"
                f" {self._largest} are taken"
            )
        if not self._requests:
            raise UnexpectedAnswerError("an answer to nothing that was asked")

    # --- SASL ------------------------------------------------------------------------------------

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
    """PLAIN (RFC 4616): one message, whose answer is empty."""

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
    """An open connection; ``request_timeout_ms`` bounds all of opening, too.

    Raises TimeoutError, OSError and aiokafka's errors. If cancelled, the socket is closed.
    """
    connection = LimitedConnection(host, port, request_timeout_ms=request_timeout_ms, **options)
    async with asyncio.timeout(request_timeout_ms / 1000):
        await connection.connect()
    return connection
