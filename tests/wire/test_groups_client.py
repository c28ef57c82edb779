"""Requests about groups over a consumer's connections, with their limits and threads."""

from __future__ import annotations

import struct
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.find_coordinator.v2 import response as coordinator2
from kio.schema.list_groups.v5 import response as listed5
from kio.schema.metadata.v13 import response as metadata13
from kio.schema.offset_fetch.v9 import response as offsets9
from typing_extensions import override
from wire.fake_broker import API_VERSIONS, FakeBroker, api_versions_response, framed
from wire.frames import response_frames as frames

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.groups import errors, requests
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.errors import GroupsError, UnsupportedRequestError
from asyncrevoke.client.protocol import codec
from asyncrevoke.client.protocol.messages import ApiVersionsRequest, ErrorCode, OffsetFetchResponse

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator

    from asyncrevoke.client.core.io.effects import Node

METADATA, OFFSET_FETCH, FIND_COORDINATOR, LIST_GROUPS = 3, 9, 10, 16
COMMITTED = requests.committed("g")
# kio's types of numbers and names are stricter than their constructors.
metadata: Any = metadata13
coordinator: Any = coordinator2
offsets: Any = offsets9
listed: Any = listed5


class GroupBroker(FakeBroker):
    """The only broker of a cluster. ``responses`` has them by API key, in their order; the
    last one is repeated."""

    def __init__(self) -> None:
        super().__init__(self._unexpected)
        self.responses: dict[int, list[bytes]] = {}
        self.asked: list[int] = []
        self.versions[LIST_GROUPS] = (0, 5)

    async def _unexpected(self, _correlation: int, _writer: asyncio.StreamWriter) -> None:
        raise AssertionError("every request has a response of its own")

    @override
    async def start(self, tls: Any = None) -> Node:
        node = await super().start(tls)
        self.responses[METADATA] = [b"\0" + metadata_body(node)]
        return node

    @override
    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        api, version, correlation = struct.unpack_from(">hhi", await reader.readexactly(size))
        if api == API_VERSIONS:
            writer.write(api_versions_response(correlation, self.versions, version))
            return
        self.asked.append(api)
        responses = self.responses[api]
        body = responses.pop(0) if len(responses) > 1 else responses[0]
        writer.write(framed(struct.pack(">i", correlation) + body))


def metadata_body(*nodes: Node, error: ErrorCode = ErrorCode.none) -> bytes:
    brokers = tuple(
        metadata.MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port)
        for node in nodes
    )
    return frames.body(
        metadata.MetadataResponse(
            throttle_time=frames.NO_THROTTLE,
            brokers=brokers,
            cluster_id="c",
            controller_id=1,
            error_code=error,
            topics=(),
        )
    )


def committed_body(partitions: int) -> bytes:
    topic = offsets.OffsetFetchResponseTopics(
        name="orders",
        partitions=tuple(
            offsets.OffsetFetchResponsePartitions(
                partition_index=number,
                committed_offset=number,
                committed_leader_epoch=0,
                metadata="",
                error_code=ErrorCode.none,
            )
            for number in range(partitions)
        ),
    )
    group = offsets.OffsetFetchResponseGroup(
        group_id="g", topics=(topic,), error_code=ErrorCode.none
    )
    response = offsets.OffsetFetchResponse(throttle_time=frames.NO_THROTTLE, groups=(group,))
    return b"\0" + frames.body(response)


def coordinator_body(error: ErrorCode, node: Node) -> bytes:
    return frames.body(
        coordinator.FindCoordinatorResponse(
            throttle_time=frames.NO_THROTTLE,
            error_code=error,
            error_message=None,
            node_id=node.node_id,
            host=node.host,
            port=node.port,
        )
    )


@asynccontextmanager
async def connected(broker: GroupBroker, *before: str) -> AsyncGenerator[tuple[GroupsClient, Node]]:
    """A client whose bootstrap servers are ``before`` and the broker."""
    node = await broker.start()
    servers = (*before, f"{node.host}:{node.port}")
    try:
        async with GroupsClient(ConsumerConfig(bootstrap_servers=servers)) as client:
            yield client, node
    finally:
        await broker.stop()
        for thread in threading.enumerate():
            if thread.name.startswith("asyncrevoke-decode"):
                thread.join(20)
                assert not thread.is_alive()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that decode."""
    found: list[int] = []
    decode: Any = codec.decode_response

    def noted(kind: Any, *arguments: Any) -> Any:
        if kind is not ApiVersionsRequest:
            found.append(threading.get_ident())
        return decode(kind, *arguments)

    monkeypatch.setattr(codec, "decode_response", noted)
    return found


@pytest.mark.parametrize(("partitions", "elsewhere"), [(3, False), (10_000, True)])
async def test_only_a_large_response_is_decoded_in_another_thread(
    threads: list[int], partitions: int, elsewhere: bool
) -> None:
    broker = GroupBroker()
    broker.responses[OFFSET_FETCH] = [committed_body(partitions)]
    async with connected(broker) as (client, node):
        threads.clear()
        found = await client.send(node.node_id, COMMITTED, OffsetFetchResponse)
    assert len(found.offsets) == partitions
    assert [thread != threading.get_ident() for thread in threads] == [elsewhere]


@pytest.mark.parametrize("partitions", [3, 10_000])
async def test_a_malformed_response_is_an_error(partitions: int) -> None:
    broker = GroupBroker()
    broker.responses[OFFSET_FETCH] = [committed_body(partitions)[:-5]]
    async with connected(broker) as (client, node):
        with pytest.raises(GroupsError, match="no OffsetFetchResponse"):
            await client.send(node.node_id, COMMITTED, OffsetFetchResponse)


async def test_a_response_of_kio_is_decoded_and_a_hostile_one_rejected() -> None:
    broker = GroupBroker()
    response = listed.ListGroupsResponse(
        throttle_time=frames.NO_THROTTLE, error_code=ErrorCode.none, groups=()
    )
    hostile = b"\0" + bytes(6) + b"\xff\xff\xff\xff\x0f"
    broker.responses[LIST_GROUPS] = [b"\0" + frames.body(response), hostile]
    async with connected(broker) as (client, node):
        assert await client.ask(node.node_id, requests.ListGroupsRequest()) == response
        with pytest.raises(GroupsError, match="no ListGroupsResponse"):
            await client.ask(node.node_id, requests.ListGroupsRequest())


async def test_a_request_that_the_broker_does_not_offer_is_not_sent() -> None:
    broker = GroupBroker()
    broker.versions[LIST_GROUPS] = (0, 2)
    async with connected(broker) as (client, node):
        for request in (
            requests.ListGroupsRequest(),
            requests.ConsumerGroupDescribeRequest(group_ids=("g",)),
        ):
            with pytest.raises(UnsupportedRequestError, match="offer"):
                await client.ask(node.node_id, request)
    assert broker.asked == [METADATA]


async def test_metadata_with_an_error_is_an_error() -> None:
    broker = GroupBroker()
    async with connected(broker) as (client, node):
        rejected = metadata_body(node, error=ErrorCode.rebootstrap_required)
        broker.responses[METADATA] = [b"\0" + rejected]
        with pytest.raises(GroupsError, match="rebootstrap_required"):
            await client.metadata(())
        assert client.brokers()[node.node_id] == f"{node.host}:{node.port}"


async def test_a_coordinator_is_looked_up_again_while_it_is_not_available(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(errors, "_FIRST", 0.001)
    broker = GroupBroker()
    async with connected(broker) as (client, node):
        missing = coordinator_body(ErrorCode.coordinator_not_available, node)
        found = coordinator_body(ErrorCode.none, node._replace(node_id=5))
        broker.responses[FIND_COORDINATOR] = [missing, missing, found]
        assert await client.coordinator("g") == 5
        assert client.brokers()[5] == f"{node.host}:{node.port}"
        rejected = coordinator_body(ErrorCode.group_authorization_failed, node)
        broker.responses[FIND_COORDINATOR] = [rejected]
        with pytest.raises(GroupsError, match="grant DESCRIBE"):
            await client.coordinator("g")
    assert broker.asked.count(FIND_COORDINATOR) == 4


async def test_a_bootstrap_server_that_does_not_respond_is_skipped() -> None:
    async with connected(GroupBroker(), "127.0.0.1:1") as (client, node):
        assert client.brokers() == {node.node_id: f"{node.host}:{node.port}"}
        with pytest.raises(GroupsError, match="the cluster has no broker 7"):
            await client.ask(7, requests.ListGroupsRequest())
