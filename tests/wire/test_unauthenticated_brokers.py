"""What a broker may cost that nobody has authenticated: bytes, work, time and threads."""

from __future__ import annotations

import asyncio
import base64
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest
from typing_extensions import override
from wire.fake_broker import API_VERSIONS, FakeBroker, api_versions_response, framed

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Channel, Failed, FailureKind, Send
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.runtime.net.channels import Channels

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
MECHANISM = "SCRAM-SHA-256"
REQUEST = messages.HeartbeatRequest(
    group_id="g", generation=1, member_id="m", group_instance_id=None
)
SASL = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": MECHANISM,
    "sasl_plain_username": "user",
    "sasl_plain_password": "pencil",
}


class HostileBroker(FakeBroker):
    """Responds to what opens a connection as ``on`` says, by the requests' keys; else as it should.

    A function of ``on`` gets the request's body and gives a frame, or writes one by itself.
    """

    def __init__(self) -> None:
        super().__init__(self.no_response)
        self.on: dict[int, Callable[[int, bytes], bytes]] = {}
        self.versions |= {SASL_HANDSHAKE: (1, 1), SASL_AUTHENTICATE: (0, 1)}
        self.asked: list[int] = []
        self.mechanism = MECHANISM

    async def no_response(self, _correlation: int, _writer: asyncio.StreamWriter) -> None:
        """There is no response after the opening."""

    @override
    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        data = await reader.readexactly(size)
        api, version, correlation = struct.unpack_from(">hhi", data)
        self.asked.append(api)
        if api in self.on:
            writer.write(self.on[api](correlation, data))
        elif api == API_VERSIONS:
            writer.write(api_versions_response(correlation, self.versions, version))
        elif api == SASL_HANDSHAKE:
            mechanism = self.mechanism.encode()
            body = struct.pack(">ihih", correlation, 0, 1, len(mechanism)) + mechanism
            writer.write(framed(body))


def scram_challenge(iterations: int, *, salt: bytes = bytes(16)) -> Callable[[int, bytes], bytes]:
    """The first message of a server, to the client's first."""

    def respond(correlation: int, data: bytes) -> bytes:
        nonce = data.rpartition(b",r=")[2]
        message = b"r=%sX,s=%s,i=%d" % (nonce, base64.b64encode(salt), iterations)
        return authenticated(correlation, message)

    return respond


def authenticated(correlation: int, message: bytes, lifetime: int = 0) -> bytes:
    body = struct.pack(">ihhi", correlation, 0, -1, len(message)) + message
    return framed(body + struct.pack(">q", lifetime))


Opening: TypeAlias = Callable[..., Awaitable[tuple[HostileBroker, Channels, Send]]]


@pytest.fixture
async def opening() -> AsyncIterator[Opening]:
    running: list[tuple[HostileBroker, Channels]] = []

    async def start(
        broker: HostileBroker, *, within: float = 20.0, **options: object
    ) -> tuple[HostileBroker, Channels, Send]:
        node = await broker.start()
        config = ConsumerConfig.from_options(bootstrap_servers="127.0.0.1:1", **options)
        channels = Channels(config)
        running.append((broker, channels))
        return broker, channels, Send(1, REQUEST, node, Channel.HEARTBEAT, within)

    yield start
    for broker, channels in running:
        await channels.close()
        await broker.stop()


def failed(outcome: object) -> tuple[FailureKind, str]:
    assert isinstance(outcome, Failed), outcome
    return outcome.kind, outcome.detail


@pytest.mark.timeout(30)
async def test_scram_with_2_to_31_iterations_is_rejected_by_the_name_of_the_option(
    opening: Opening,
) -> None:
    threads = set(threading.enumerate())
    broker = HostileBroker()
    broker.on[SASL_AUTHENTICATE] = scram_challenge(2**31)
    _, channels, send = await opening(broker, **SASL)
    for _ in range(3):
        kind, detail = failed(await channels.request(send))
        assert kind is FailureKind.AUTHENTICATION
        assert f"broker 1 at 127.0.0.1:{send.node.port}" in detail
        assert "asks for 2147483648 iterations" in detail
        assert "sasl_scram_max_iterations=100000" in detail
        assert "pencil" not in detail
    assert set(threading.enumerate()) <= threads


@pytest.mark.timeout(30)
async def test_scram_that_is_allowed_to_take_long_ends_with_the_request_timeout(
    opening: Opening,
) -> None:
    threads = set(threading.enumerate())
    broker = HostileBroker()
    broker.on[SASL_AUTHENTICATE] = scram_challenge(2**31 - 1)
    options: dict[str, Any] = {"request_timeout": 0.3, "fetch_max_wait": 0.1, **SASL}
    _, channels, send = await opening(
        broker, sasl_scram_max_iterations=2**31 - 1, within=0.3, **options
    )
    kind, detail = failed(await channels.request(send))
    assert kind is FailureKind.UNREACHABLE
    assert "within 0.3 s" in detail
    await broker.until(lambda: broker.open == 0)
    assert set(threading.enumerate()) <= threads
    async with asyncio.timeout(10):
        while any("connect" in task.get_name() for task in asyncio.all_tasks()):  # noqa: ASYNC110 - tasks have no event
            await asyncio.sleep(0.01)


@pytest.mark.timeout(30)
async def test_an_application_that_ends_does_not_wait_for_a_password_to_be_hashed(
    opening: Opening,
) -> None:
    broker = HostileBroker()
    broker.on[SASL_AUTHENTICATE] = scram_challenge(2**31 - 1)
    _, channels, send = await opening(broker, sasl_scram_max_iterations=2**31 - 1, **SASL)
    asking = asyncio.create_task(channels.request(send))
    await broker.until(lambda: SASL_AUTHENTICATE in broker.asked)
    async with asyncio.timeout(10):
        await channels.close()
        assert failed(await asking)[0] is FailureKind.UNREACHABLE
    await broker.until(lambda: broker.open == 0)


@pytest.mark.parametrize(
    ("api", "size"),
    [(API_VERSIONS, 60_000_000), (API_VERSIONS, 2**20 + 1), (SASL_HANDSHAKE, 2**16 + 1)],
)
@pytest.mark.parametrize("more", [2**31 - 1, None], ids=["the largest", "as large"])
async def test_a_large_response_before_authentication_is_rejected_by_its_size(
    opening: Opening, api: int, size: int, more: int | None
) -> None:
    broker = HostileBroker()
    # Nothing but the size: who waited for the rest would not be done within the test's time.
    broker.on[api] = lambda _correlation, _data: struct.pack(">i", more or size)
    _, channels, send = await opening(broker, **SASL)
    kind, detail = failed(await channels.request(send))
    assert kind is FailureKind.UNREACHABLE
    assert f"a response of {more or size} bytes while the connection was opened" in detail
    await broker.until(lambda: broker.open == 0)


async def test_a_response_to_sasl_is_bounded_like_the_one_before(opening: Opening) -> None:
    broker = HostileBroker()
    broker.on[SASL_AUTHENTICATE] = lambda _correlation, _data: struct.pack(">i", 2**20)
    _, channels, send = await opening(broker, **SASL)
    kind, detail = failed(await channels.request(send))
    assert kind is FailureKind.UNREACHABLE
    assert "a response of 1048576 bytes while the connection was opened" in detail


async def test_a_response_that_nothing_was_asked_for_ends_the_opening(
    opening: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    broker = HostileBroker()
    broker.on[API_VERSIONS] = lambda correlation, data: (
        2 * api_versions_response(correlation, broker.versions, data[3])
    )
    broker.on[SASL_HANDSHAKE] = lambda _correlation, _data: b""
    _, channels, send = await opening(broker, **SASL)
    assert failed(await channels.request(send))[0] is FailureKind.UNREACHABLE
    assert "Unexpected exception" not in caplog.text


@pytest.mark.parametrize("silent", [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE])
async def test_each_step_of_opening_ends_with_the_request_timeout(
    opening: Opening, silent: int
) -> None:
    broker = HostileBroker()
    broker.on[SASL_AUTHENTICATE] = scram_challenge(4096)
    broker.on[silent] = lambda _correlation, _data: b""
    _, channels, send = await opening(
        broker, within=5, request_timeout=0.2, fetch_max_wait=0.1, **SASL
    )
    kind, detail = failed(await channels.request(send))
    assert (kind, "within" in detail) == (FailureKind.UNREACHABLE, True)
    await broker.until(lambda: broker.open == 0)


async def test_a_password_that_a_broker_sends_back_is_left_out_of_the_error(
    opening: Opening,
) -> None:
    def echo(correlation: int, _data: bytes) -> bytes:
        message = b"pencil is not the password"
        return framed(struct.pack(">ihh", correlation, 58, len(message)) + message + bytes(12))

    broker = HostileBroker()
    broker.on[SASL_AUTHENTICATE] = echo
    _, channels, send = await opening(broker, **SASL)
    kind, detail = failed(await channels.request(send))
    assert kind is FailureKind.AUTHENTICATION
    assert "*** is not the password" in detail
    assert "pencil" not in detail
