"""A host with several addresses is reached as long as one of them answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from wire.channels.broker_channels import well
from wire.fake_broker import FakeBroker

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import FailureKind, Node
from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffers
from asyncrevoke.client.runtime.net import sockets
from asyncrevoke.client.runtime.net.connection import Connection, RequestFailed
from asyncrevoke.client.runtime.net.decode_threads import DecodeThreads
from asyncrevoke.client.runtime.net.handshake import open_connection
from asyncrevoke.client.runtime.net.sockets import FailedAddresses, connect_socket

if TYPE_CHECKING:
    from collections.abc import Generator

HOST = "brokers.example"
# Quick on a loopback, and much shorter than the kernel tries.
WITHIN = 3.0


@pytest.fixture(autouse=True)
def nothing_has_failed(monkeypatch: pytest.MonkeyPatch) -> FailedAddresses:
    failed = FailedAddresses()
    monkeypatch.setattr(sockets, "FAILED_ADDRESSES", failed)
    monkeypatch.setattr("asyncrevoke.client.runtime.net.handshake.FAILED_ADDRESSES", failed)
    return failed


def resolve(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let HOST have these addresses, in this order."""
    loop = asyncio.get_running_loop()

    async def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        assert host == HOST
        kind = (socket.SOCK_STREAM, 6, "")
        return [(socket.AF_INET, *kind, (address, port)) for address in addresses]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)


@contextmanager
def dropping_packets(address: str, port: int) -> Generator[None]:
    """A listener whose backlog is full: the kernel drops further SYN packets."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(0)
        for filling in (first, second):
            filling.setblocking(False)
            filling.connect_ex((address, port))
        yield


@contextmanager
def accepting_without_response(address: str, port: int) -> Generator[socket.socket]:
    """A listener whose kernel accepts connections, and no process reads from them."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(10)
        yield listener


async def open_to(port: int, within: float = WITHIN) -> Connection:
    return await Connection.open(
        Node(7, HOST, port), ConsumerConfig(), DecodeThreads(), ReceiveBuffers(0), within=within
    )


async def test_an_address_that_drops_packets_costs_a_head_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = FakeBroker(well)
    node = await broker.start()
    resolve(monkeypatch, "127.0.0.2", "127.0.0.3", "127.0.0.1")
    with dropping_packets("127.0.0.2", node.port), dropping_packets("127.0.0.3", node.port):
        connection = await open_to(node.port)
        assert connection.connected
        await connection.close()
    await broker.stop()


async def test_the_next_attempt_begins_with_another_address_than_the_one_without_a_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = FakeBroker(well)
    node = await broker.start()
    resolve(monkeypatch, "127.0.0.2", "127.0.0.1")
    with accepting_without_response("127.0.0.2", node.port):
        with pytest.raises(RequestFailed):
            await open_to(node.port, within=0.5)
        connection = await open_to(node.port)
        assert connection.connected
        await connection.close()
    await broker.stop()


async def test_each_refused_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        resolve(monkeypatch, "127.0.0.2", "127.0.0.3")
        with pytest.raises(OSError, match=r"127\.0\.0\.2.*127\.0\.0\.3"):
            await connect_socket(HOST, port)


async def test_a_cancelled_attempt_closes_all_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []
    both = asyncio.Event()
    create = socket.socket

    def socket_of(*arguments: int) -> socket.socket:
        opened.append(create(*arguments))
        if len(opened) == 2:
            both.set()
        return opened[-1]

    resolve(monkeypatch, "127.0.0.2", "127.0.0.3")
    with accepting_without_response("127.0.0.4", 0) as unused:
        port = unused.getsockname()[1]
        with dropping_packets("127.0.0.2", port), dropping_packets("127.0.0.3", port):
            monkeypatch.setattr("asyncrevoke.client.runtime.net.sockets.socket.socket", socket_of)
            connecting = asyncio.create_task(connect_socket(HOST, port))
            async with asyncio.timeout(10):
                await both.wait()
            connecting.cancel()
            await asyncio.wait([connecting])
            await asyncio.sleep(0)
            monkeypatch.undo()
    assert [each.fileno() for each in opened] == [-1, -1]


async def test_the_sockets_of_slower_addresses_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve(monkeypatch, "127.0.0.2", "127.0.0.1")
    with accepting_without_response("127.0.0.1", 0) as answering:
        port = answering.getsockname()[1]
        with dropping_packets("127.0.0.2", port):
            sock = await connect_socket(HOST, port)
            assert sock.getpeername() == ("127.0.0.1", port)
            sock.close()
            await asyncio.sleep(0)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert all(task.cancelling() or task.done() for task in others)


async def test_a_socket_that_was_reset_at_once_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    sock = socket.socket()  # is not connected any more, so it has no peer

    async def connect(_host: str, _port: int) -> socket.socket:
        return sock

    monkeypatch.setattr("asyncrevoke.client.runtime.net.handshake.connect_socket", connect)
    with pytest.raises(OSError, match="not connected"):
        await open_connection(Node(7, HOST, 9092), ConsumerConfig(), ReceiveBuffers(0))
    assert sock.fileno() == -1


async def test_a_server_that_closes_during_the_tls_handshake_fails_the_connection() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = ConsumerConfig(security_protocol="SSL", ssl_context=ssl.create_default_context())
    async with server:
        with pytest.raises(ConnectionResetError):
            await open_connection(Node(7, "127.0.0.1", port), config, ReceiveBuffers(0))


def test_addresses_that_failed_are_tried_last_and_the_first_to_fail_before_the_others() -> None:
    failed = FailedAddresses()
    one, two, three = (
        sockets._Address(socket.AF_INET, (f"10.0.0.{number}", 9092)) for number in (1, 2, 3)
    )
    failed.note_failure(one.address)
    assert failed.sorted([one, two, three]) == [two, three, one]
    failed.note_failure(three.address)
    assert failed.sorted([one, two, three]) == [two, one, three]
    failed.note_failure(two.address)
    failed.note_failure(one.address)
    assert failed.sorted([one, two, three]) == [three, two, one]
    failed.note_success(one.address)
    assert failed.sorted([one, two, three]) == [one, three, two]


def test_families_take_turns() -> None:
    four = [sockets._Address(socket.AF_INET, (f"10.0.0.{number}", 1)) for number in (1, 2, 3)]
    six = [sockets._Address(socket.AF_INET6, ("::1", 1, 0, 0))]
    assert sockets._interleaved([*six, *four]) == [six[0], *four]
    assert sockets._interleaved([*four, *six]) == [four[0], six[0], *four[1:]]


def test_failed_addresses_do_not_grow_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_MOST_FAILED", 3)
    failed = FailedAddresses()
    for number in range(10):
        failed.note_failure((f"10.0.0.{number}", 9092))
    assert len(failed._failed) == 3


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "kafka..example"])
async def test_a_host_that_a_broker_names_wrongly_does_not_count_as_rejected_credentials(
    host: str,
) -> None:
    config = ConsumerConfig(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="user",
        sasl_plain_password="pencil",
    )
    threads, buffers = DecodeThreads(), ReceiveBuffers(0)
    with pytest.raises(RequestFailed, match="it is not a host name") as failed:
        await Connection.open(Node(7, host, 9092), config, threads, buffers, within=WITHIN)
    assert failed.value.kind is FailureKind.UNREACHABLE
