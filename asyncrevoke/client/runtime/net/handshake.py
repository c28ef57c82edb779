"""Opens a connection: TCP, TLS, the versions of requests that the broker offers, and SASL.

The versions are asked for with version 3 of ApiVersions. A broker that lacks it says so, or its
server or proxy closes the connection or sends something else: it is then asked in a lower version,
and what an address has answered is remembered for the next connection. If it has offered version 5,
that one is used where the cluster and the broker are known: a broker that is another one says so,
and nothing is read from it or written to it.

Until the broker is authenticated, its responses have smaller limits, and are rejected by their
declared size, before memory is taken for them.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final, cast

from msgspec.structs import replace

from asyncrevoke.client.config.software import __version__
from asyncrevoke.client.model import Value
from asyncrevoke.client.protocol import codec
from asyncrevoke.client.protocol.codec import MalformedResponse
from asyncrevoke.client.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ErrorCode,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from asyncrevoke.client.runtime.net.authentication.errors import (
    AuthenticationRejectedError,
    MechanismNotEnabledError,
    without_secrets,
)
from asyncrevoke.client.runtime.net.fatal_errors import NoKafkaBrokerError, OtherBrokerError
from asyncrevoke.client.runtime.net.frames import Frames, FrameTooLargeError
from asyncrevoke.client.runtime.net.sockets import FAILED_ADDRESSES, abort_transport, connect_socket

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.protocol.messages import Request, Response
    from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffers
    from asyncrevoke.client.runtime.net.sockets import SocketAddress

# What brokers count their clients by (KIP-511).
_SOFTWARE: Final = ApiVersionsRequest(software_name="asyncrevoke", software_version=__version__)
_VERSIONS: Final = codec.versions(ApiVersionsRequest)
# Names the broker that is expected (KIP-1242).
_NAMES_BROKER: Final = _VERSIONS[0]
# Of an address that has not answered yet.
_FIRST: Final = _VERSIONS[1]
# All servers answer it.
_OLDEST: Final = _VERSIONS[-1]
# Versions of a thousand requests take 6 kB.
_LARGEST_VERSIONS: Final = 1024 * 1024
# Kerberos has the largest tokens; Kafka's brokers accept at most 512 kB from clients.
_LARGEST_SASL: Final = 64 * 1024
_MOST_ADDRESSES: Final = 1_000


# Fractions of a session's lifetime: random, so that clients do not renew at the same time.
_RENEWED: Final = (0.8, 0.9)
_USED: Final = 0.95
_RENEWAL_PAUSE: Final = 0.5


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


class OpenedConnection(Value, frozen=True):
    """A connection over which requests may be sent.

    ``versions`` are those that the broker offers, by API key; ``session`` is None if it never has
    to be authenticated again. Nothing is to be sent before ``throttled_until`` (KIP-219).
    """

    frames: Frames
    transport: asyncio.Transport
    versions: Mapping[int, tuple[int, int]]
    session: AuthenticatedSession | None
    throttled_until: float


class _AskLowerError(Exception):
    """This address is to be asked on another connection, with a lower version of ApiVersions."""


class AnsweredVersions:
    """The version of ApiVersions to ask each address in, for all connections of the process."""

    def __init__(self) -> None:
        # Of the addresses that are to be asked in a version below the first.
        self._versions: dict[SocketAddress, int] = {}
        # Those that have answered neither the first nor the oldest when they were asked last.
        self._without_answer: set[SocketAddress] = set()
        # Those that compare themselves with the broker that is expected.
        self._comparing: set[SocketAddress] = set()

    def to_ask(self, address: SocketAddress, *, names_broker: bool = False) -> int:
        """The version that it has answered, or the first; if the request ``names_broker``, the one
        that has it, if the address offers that."""
        if names_broker and address in self._comparing:
            return _NAMES_BROKER
        return self._versions.get(address, _FIRST)

    def answered(self, address: SocketAddress, version: int, highest: int = 0) -> None:
        """Ask it in this version from now on; ``highest`` is the highest that it offers."""
        self._without_answer.discard(address)
        self._note(address, version)
        if version >= _FIRST and highest >= _NAMES_BROKER:
            self._comparing.add(address)

    def not_answered(self, address: SocketAddress, version: int) -> bool:
        """Ask it in the oldest version next, or in the first if this was the oldest. Returns
        whether to ask at once: a server that hangs up gets no more than one connection for each
        attempt, except for the first."""
        at_once = version != _OLDEST and address not in self._without_answer
        if version == _OLDEST:
            self._without_answer.add(address)
        self._note(address, _FIRST if version == _OLDEST else _OLDEST)
        return at_once

    def _note(self, address: SocketAddress, version: int) -> None:
        known = (self._versions, self._without_answer, self._comparing)
        if sum(map(len, known)) > _MOST_ADDRESSES:
            for candidate in known:
                candidate.clear()
        self._comparing.discard(address)
        if version >= _FIRST:
            self._versions.pop(address, None)
        else:
            self._versions[address] = version


ANSWERED_VERSIONS: Final = AnsweredVersions()


async def open_connection(
    node: Node, config: ConsumerConfig, buffers: ReceiveBuffers, cluster_id: str | None = None
) -> OpenedConnection:
    """Open a connection to ``node`` with the security options of ``config``; large frames are
    received in ``buffers``. ``cluster_id``: the cluster in which the broker has the node's id.

    Raises OSError, NoKafkaBrokerError, OtherBrokerError, UnsupportedVersion, and the errors of
    :mod:`asyncrevoke.client.runtime.net.authentication.errors`. Has no time limit of its own; if
    cancelled, the socket is closed without waiting for its peer. Starts no thread, except for
    GSSAPI and the name lookup.
    """
    while True:
        try:
            return await _attempt(node, config, buffers, cluster_id)
        except _AskLowerError:
            continue


async def _attempt(
    node: Node, config: ConsumerConfig, buffers: ReceiveBuffers, cluster_id: str | None
) -> OpenedConnection:
    loop = asyncio.get_running_loop()
    sock = await connect_socket(node.host, node.port)
    handshake = Handshake(config, buffers)
    address = None
    try:
        address = sock.getpeername()
        tls = config.ssl_context if config.security_protocol.endswith("SSL") else None
        await loop.create_connection(
            lambda: handshake.frames,
            sock=sock,
            ssl=tls,
            server_hostname=None if tls is None else node.host,
        )
        opened = await handshake.run(address, node, cluster_id)
    except BaseException as error:
        # A proxy or a firewall may accept a connection, and leave it without a response.
        if address is not None and not isinstance(error, _AskLowerError):
            FAILED_ADDRESSES.note_failure(address)
        if handshake.frames.transport is not None:
            abort_transport(handshake.frames.transport)
        sock.close()
        raise
    FAILED_ADDRESSES.note_success(address)
    return opened


class Handshake:
    """The requests that open a connection, one after another."""

    def __init__(self, config: ConsumerConfig, buffers: ReceiveBuffers) -> None:
        self.frames = Frames(_LARGEST_VERSIONS, buffers, self)
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._correlation = 0
        self._response: asyncio.Future[bytes | memoryview] | None = None
        # Why there is no further response.
        self._failure: NoKafkaBrokerError | None = None
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._session: AuthenticatedSession | None = None
        self._throttled_until = float("-inf")

    async def run(
        self, address: SocketAddress, node: Node, cluster_id: str | None
    ) -> OpenedConnection:
        """Look up the versions, and authenticate; to be called when TLS is done.

        The principal of Kerberos has the host of ``node``.
        """
        request = _SOFTWARE
        if cluster_id is not None and node.node_id >= 0:
            request = replace(_SOFTWARE, cluster_id=cluster_id, node_id=node.node_id)
        await self._look_up_versions(address, request)
        if self._config.security_protocol.startswith("SASL_"):
            self.frames.limit(_LARGEST_SASL)
            await self._authenticate(node.host)
        if self._failure is not None:
            raise self._failure
        transport = cast("asyncio.Transport", self.frames.transport)
        return OpenedConnection(
            self.frames, transport, self._versions, self._session, self._throttled_until
        )

    # --- versions --------------------------------------------------------------------------------

    async def _look_up_versions(self, address: SocketAddress, request: ApiVersionsRequest) -> None:
        named = request.cluster_id is not None
        version = ANSWERED_VERSIONS.to_ask(address, names_broker=named)
        try:
            while True:
                response = cast("ApiVersionsResponse", await self._request(request, version))
                if response.error is ErrorCode.none:
                    break
                version = _lower(version, response)
        except _NoAnswerError as error:
            if ANSWERED_VERSIONS.not_answered(address, version):
                raise _AskLowerError from error
            raise
        _, highest = response.ranges.get(codec.api_key(ApiVersionsRequest), (0, 0))
        ANSWERED_VERSIONS.answered(address, version, highest)
        self._versions = response.ranges

    # --- SASL ------------------------------------------------------------------------------------

    async def _authenticate(self, host: str) -> None:
        from asyncrevoke.client.runtime.net.authentication.mechanisms import begin_exchange

        mechanism = self._config.sasl_mechanism
        message = SaslHandshakeRequest(mechanism=mechanism)
        version = codec.choose_version(SaslHandshakeRequest, self._versions)
        answer = cast("SaslHandshakeResponse", await self._request(message, version))
        if answer.error is ErrorCode.unsupported_sasl_mechanism or (
            answer.error is ErrorCode.none and mechanism not in answer.mechanisms
        ):
            raise MechanismNotEnabledError(answer.mechanisms)
        _check(answer.error, "", "SaslHandshake")
        exchange = begin_exchange(self._config, host)
        version = codec.choose_version(SaslAuthenticateRequest, self._versions)
        challenge: bytes | None = None
        while (data := await exchange.step(challenge)) is not None:
            request = SaslAuthenticateRequest(auth_bytes=data)
            response = cast("SaslAuthenticateResponse", await self._request(request, version))
            said = without_secrets(exchange.secrets, response.error_message or "")
            _check(response.error, said, "SaslAuthenticate")
            challenge = response.auth_bytes
            if response.session_lifetime:
                self._session = AuthenticatedSession(self._loop.time(), response.session_lifetime)

    # --- requests --------------------------------------------------------------------------------

    async def _request(self, message: Request, version: int) -> Response:
        """The response. Raises _NoAnswerError."""
        # The broker would not read it before (KIP-219).
        if (wait := self._throttled_until - self._loop.time()) > 0:
            await asyncio.sleep(wait)
        if self._failure is not None:
            raise self._failure
        self._correlation += 1
        data = codec.encode_version(message, version, self._correlation, self._config.client_id)
        self._response = self._loop.create_future()
        cast("asyncio.Transport", self.frames.transport).write(data)
        frame = await self._response
        if isinstance(message, ApiVersionsRequest) and _is_unsupported(frame):
            version = _OLDEST
        try:
            correlation = codec.correlation_id(frame)
            if correlation != self._correlation:
                raise MalformedResponse(f"it responds to request {correlation}, not to this one")
            decoded = codec.decode_response(type(message), version, frame, message)
        except MalformedResponse as error:
            raise _NoAnswerError(str(error)) from error
        if decoded.throttle_time:
            self._throttled_until = self._loop.time() + decoded.throttle_time
        return decoded.message

    def frame_received(self, frame: bytes | memoryview) -> bool:
        """See :meth:`FrameReceiver.frame_received`."""
        if self._response is None or self._response.done():
            self._fail(NoKafkaBrokerError("it sent a response without a request"))
            return False
        self._response.set_result(frame)
        return True

    def frames_ended(self, error: Exception | None) -> None:
        """See :meth:`FrameReceiver.frames_ended`."""
        if isinstance(error, FrameTooLargeError):
            failure = NoKafkaBrokerError(
                f"a response of {error.size} bytes while the connection was opened exceeds the"
                f" limit of {error.limit}"
            )
        elif error is None:
            failure = _NoAnswerError("it closed the connection")
        else:
            kind = _NoAnswerError if isinstance(error, ConnectionError) else NoKafkaBrokerError
            failure = kind(repr(error))
            failure.__cause__ = error
        self._fail(failure)

    def _fail(self, failure: NoKafkaBrokerError) -> None:
        if self._failure is None:
            self._failure = failure
        if self._response is not None and not self._response.done():
            self._response.set_exception(self._failure)


class _NoAnswerError(NoKafkaBrokerError):
    """The server has closed the connection instead of an answer, or the answer is not one: it may
    be that it does not know this version of the request."""


def _is_unsupported(frame: bytes | memoryview) -> bool:
    """Whether a broker answers that it lacks the version of ApiVersions."""
    code = bytes(frame[4:6])
    return code == int(ErrorCode.unsupported_version).to_bytes(2, "big")


def _lower(version: int, response: ApiVersionsResponse) -> int:
    """The version to ask in after this error. Raises NoKafkaBrokerError if there is none, and
    OtherBrokerError if another broker was expected."""
    if version == _NAMES_BROKER and response.error is ErrorCode.rebootstrap_required:
        raise OtherBrokerError
    name = response.error.name.upper()
    if version == _OLDEST:
        raise NoKafkaBrokerError(f"it responds to ApiVersions with {name}")
    if response.error is not ErrorCode.unsupported_version:
        return _OLDEST
    lowest, highest = response.ranges.get(codec.api_key(ApiVersionsRequest), (_OLDEST, _OLDEST))
    if lowest > version:
        raise NoKafkaBrokerError(
            f"it offers versions {lowest} to {highest} of ApiVersions, this client asks in"
            f" {_OLDEST} to {version}: upgrade asyncrevoke"
        )
    return max(
        (known for known in _VERSIONS if known <= highest and known < version), default=_OLDEST
    )


def _check(error: ErrorCode, said: str, request: str) -> None:
    """Raise what an error code in a response of SASL means, of which the broker has said more."""
    if error is ErrorCode.none:
        return
    name = error.name.upper()
    reason = f"{name}: {said}" if said else name
    if error is ErrorCode.illegal_sasl_state:
        raise AuthenticationRejectedError(f"{reason} (is SASL enabled on this listener?)")
    if error is ErrorCode.sasl_authentication_failed:
        raise AuthenticationRejectedError(reason)
    raise NoKafkaBrokerError(f"it responds to {request} with {reason}")
