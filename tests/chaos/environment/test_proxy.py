"""The proxy of chaos runs does to connections what a network does; a server here repeats frames."""

from __future__ import annotations

import asyncio
import struct
import time
from typing import TYPE_CHECKING, TypeAlias

import pytest
import pytest_asyncio
from chaos.environment.proxy import BOTH, HOST, Direction, Proxy

from asyncrevoke.broker.listeners.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

DEADLINE = 20.0
SOON = 0.3


class Client:
    """A connection through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, body: bytes) -> None:
        self.writer.write(struct.pack(">i", len(body)) + body)

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def ask(self, body: bytes) -> bytes:
        self.send(body)
        async with asyncio.timeout(DEADLINE):
            return await self.receive()

    async def is_silent(self, body: bytes) -> bool:
        """Whether this gets no response, and the connection stays open."""
        self.send(body)
        try:
            async with asyncio.timeout(SOON):
                await self.receive()
        except TimeoutError:
            return True
        return False


Connect: TypeAlias = "Callable[[Proxy], Awaitable[Client]]"


@pytest_asyncio.fixture
async def broker_port() -> AsyncIterator[int]:
    """Where a server sends every frame back."""
    serving: set[asyncio.Task[None]] = set()

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            while head := await reader.readexactly(4):
                (size,) = struct.unpack(">i", head)
                writer.write(head + await reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    port = next(free_ports())
    server = await asyncio.start_server(repeat, HOST, port)
    yield port
    server.close()
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*serving)


@pytest_asyncio.fixture
async def proxy(broker_port: int) -> AsyncIterator[Proxy]:
    async with Proxy(next(free_ports()), broker_port) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[Client] = []

    async def connect(proxy: Proxy) -> Client:
        client = Client(*await asyncio.open_connection(HOST, proxy.port))
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.writer.transport.abort()


async def test_frames_pass(proxy: Proxy, connect: Connect) -> None:
    client = await connect(proxy)
    for body in (b"one", b"", b"x" * 300_000):
        assert await client.ask(body) == body


@pytest.mark.parametrize("directions", [BOTH, (Direction.TO_BROKER,), (Direction.TO_CLIENT,)])
async def test_held_bytes_arrive_when_the_network_is_healed(
    proxy: Proxy, connect: Connect, directions: tuple[Direction, ...]
) -> None:
    old = await connect(proxy)
    assert await old.ask(b"before") == b"before"
    proxy.hold(*directions)
    new = await connect(proxy)
    for client in (old, new):
        assert await client.is_silent(b"held")
    await proxy.heal()
    for client in (old, new):
        async with asyncio.timeout(DEADLINE):
            assert await client.receive() == b"held"
        assert await client.ask(b"after") == b"after"


async def test_a_black_hole_silences_present_connections_and_new_ones_work(
    proxy: Proxy,
    connect: Connect,
) -> None:
    old = await connect(proxy)
    assert await old.ask(b"before") == b"before"
    proxy.black_hole()
    assert await old.is_silent(b"vanishes")
    assert await (await connect(proxy)).ask(b"new") == b"new"
    await proxy.heal()
    assert await old.is_silent(b"vanishes too")
    assert not old.reader.at_eof()


async def test_a_delay_applies_to_each_direction_and_does_not_accumulate(
    proxy: Proxy, connect: Connect
) -> None:
    client = await connect(proxy)
    proxy.delay(0.2, *BOTH)
    begin = time.monotonic()
    for number in range(20):
        client.send(b"%d" % number)
    async with asyncio.timeout(DEADLINE):
        assert [await client.receive() for _ in range(20)] == [b"%d" % n for n in range(20)]
    assert time.monotonic() - begin >= 0.4
    await proxy.heal()


async def test_a_throttled_connection_carries_all_bytes_at_its_rate(
    proxy: Proxy, connect: Connect
) -> None:
    client = await connect(proxy)
    proxy.throttle(20_000, Direction.TO_CLIENT)
    begin = time.monotonic()
    assert await client.ask(b"x" * 10_000) == b"x" * 10_000
    assert time.monotonic() - begin >= 0.4


async def test_a_cut_ends_a_connection_in_the_middle_of_its_next_response(
    proxy: Proxy, connect: Connect
) -> None:
    old, idle = await connect(proxy), await connect(proxy)
    for client in (old, idle):
        assert await client.ask(b"before") == b"before"
    proxy.cut()
    old.send(b"0123456789")
    async with asyncio.timeout(DEADLINE):
        head = await old.reader.readexactly(4)
        assert struct.unpack(">i", head) == (10,)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await old.reader.readexactly(10)
    assert await (await connect(proxy)).ask(b"new") == b"new"
    await proxy.heal()
    assert await idle.ask(b"after") == b"after"


async def test_refusing_resets_all_connections_and_rejects_new_ones_until_healed(
    proxy: Proxy,
    connect: Connect,
) -> None:
    old = await connect(proxy)
    assert await old.ask(b"before") == b"before"
    await proxy.refuse()
    async with asyncio.timeout(DEADLINE):
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await old.receive()
    with pytest.raises(ConnectionError):
        await connect(proxy)
    await proxy.heal()
    assert await (await connect(proxy)).ask(b"new") == b"new"


async def test_a_connection_to_a_broker_that_does_not_listen_is_reset(
    connect: Connect,
) -> None:
    ports = free_ports()
    async with Proxy(next(ports), next(ports)) as proxy:
        client = await connect(proxy)
        async with asyncio.timeout(DEADLINE):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.receive()
