"""A broker that offers version 5 of ApiVersions compares itself with the one that is expected."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from wire.fake_broker import API_VERSIONS, api_versions_response, framed
from wire.opening.opening_server import LONG, Server

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import (
    Channel,
    Failed,
    FailureKind,
    Node,
    OtherBroker,
    Replied,
    Send,
)
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

METADATA = 3
UNSUPPORTED_VERSION, REBOOTSTRAP_REQUIRED = 35, 129
CLUSTER = b"cluster"
# What ApiVersions ends with.
EXPECTED = b"\x08" + CLUSTER + struct.pack(">i", 1) + b"\0"


class Broker(Server):
    """Broker 1 of a cluster, which offers Metadata 7."""

    def __init__(self) -> None:
        super().__init__()
        self.versions |= {API_VERSIONS: (0, 5), METADATA: (7, 7)}
        self.on[METADATA] = lambda _, __, correlation, ___: metadata_response(correlation)


def metadata_response(correlation: int) -> bytes:
    """Version 7, without brokers and topics."""
    cluster = struct.pack(">h", len(CLUSTER)) + CLUSTER
    return framed(struct.pack(">iii", correlation, 0, 0) + cluster + struct.pack(">ii", 1, 0))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    running = Broker()
    yield running
    await running.stop()


class Client:
    """Requests for metadata, each over a connection of its own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.channels = Channels(ConsumerConfig())
        self._unused = list(Channel)

    async def ask(self, node_id: int) -> Replied | Failed:
        assert self._server._server is not None
        host, port = self._server._server.sockets[0].getsockname()
        node = self.node = Node(node_id, host, port)
        message = messages.MetadataRequest(topics=())
        return await self.channels.request(Send(1, message, node, self._unused.pop(), LONG))


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    await server.start()
    asking = Client(server)
    yield asking
    await asking.channels.close()


async def test_it_is_named_as_soon_as_the_cluster_and_what_the_address_offers_are_known(
    server: Server, client: Client
) -> None:
    for node_id in (-1, 1, -1, 1):
        assert isinstance(await client.ask(node_id), Replied)
    # One request for each connection.
    assert server.versions_asked == [(1, 3), (2, 5), (3, 3), (4, 5)]
    first, named, *_ = (data for data in server.received if data[:2] == b"\0\x12")
    assert named.endswith(EXPECTED)
    assert CLUSTER not in first


async def test_another_broker_is_reported_and_gets_no_request(
    server: Server, client: Client
) -> None:
    await client.ask(-1)
    server.on[API_VERSIONS] = lambda _, version, correlation, __: api_versions_response(
        correlation, server.versions, version, error=REBOOTSTRAP_REQUIRED if version == 5 else 0
    )
    failed = await client.ask(1)
    assert isinstance(failed, Failed)
    assert failed.kind is FailureKind.UNREACHABLE
    assert "is another broker now, or in another cluster" in failed.detail
    assert await client.channels.report() == OtherBroker(client.node)
    assert server.asked[-1] == (2, API_VERSIONS, 5)
    assert isinstance(await client.ask(-1), Replied)


async def test_a_broker_that_was_downgraded_is_asked_in_its_own_version(
    server: Server, client: Client
) -> None:
    await client.ask(-1)

    def older(_: int, version: int, correlation: int, __: bytes) -> bytes:
        server.versions[API_VERSIONS] = (0, 4)
        if version > 4:
            own = {API_VERSIONS: (0, 4)}
            return api_versions_response(correlation, own, error=UNSUPPORTED_VERSION)
        return api_versions_response(correlation, server.versions, version)

    server.on[API_VERSIONS] = older
    for _ in range(2):
        assert isinstance(await client.ask(1), Replied)
    assert server.versions_asked == [(1, 3), (2, 5), (2, 3), (3, 3)]


async def test_a_server_that_hangs_up_at_version_5_is_asked_in_version_0(
    server: Server, client: Client
) -> None:
    await client.ask(-1)
    server.on[API_VERSIONS] = lambda _, version, correlation, __: (
        None if version > 3 else api_versions_response(correlation, server.versions, version)
    )
    for _ in range(2):
        assert isinstance(await client.ask(1), Replied)
    assert server.versions_asked == [(1, 3), (2, 5), (3, 0), (4, 0)]


async def test_a_broker_that_does_not_offer_version_5_is_asked_as_before(
    server: Server, client: Client
) -> None:
    server.versions[API_VERSIONS] = (0, 4)
    for node_id in (-1, 1, 1):
        assert isinstance(await client.ask(node_id), Replied)
    assert [version for _, version in server.versions_asked] == [3, 3, 3]
