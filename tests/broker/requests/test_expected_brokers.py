"""A real broker compares itself with the one that is expected (KIP-1242)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from broker.kafka_release import kafka_release

from asyncrevoke import Consumer
from asyncrevoke.client.core.io.effects import Channel, Failed, Node, OtherBroker, Replied, Send
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.runtime.net.channels import Channels
from asyncrevoke.client.runtime.net.handshake import Handshake

if TYPE_CHECKING:
    from broker.requests.wire_client import WireClient

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.protocol.messages import Request, Response

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(180),
    pytest.mark.skipif(kafka_release() < (4, 4), reason="offers ApiVersions 4"),
]

METADATA = messages.MetadataRequest(topics=())
WITHIN = 60.0


async def test_it_accepts_its_own_cluster_and_id_and_no_others(client: WireClient) -> None:
    described = await client.ask(METADATA, messages.MetadataResponse)
    (broker,) = described.brokers
    client.node = Node(broker.node_id, broker.host, broker.port)
    await client.ask(METADATA, messages.MetadataResponse, Channel.COMMIT)
    other = client.node._replace(node_id=broker.node_id + 1)
    failed = await client.channels.request(Send(1, METADATA, other, Channel.METADATA, 20))
    assert isinstance(failed, Failed)
    assert "REBOOTSTRAP_REQUIRED" in failed.detail
    assert await client.channels.report() == OtherBroker(other)


async def test_joining_a_group_of_one_asks_each_connection_once(
    kafka_broker: RunningBroker, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Handshake, int]] = []
    request = Handshake._request

    async def note(self: Handshake, message: Request, version: int) -> Response:
        asked.append((self, version))
        return await request(self, message, version)

    monkeypatch.setattr(Handshake, "_request", note)
    async with (
        asyncio.timeout(WITHIN),
        Consumer(
            kafka_topic, bootstrap_servers=kafka_broker.bootstrap_servers, group_id=kafka_topic
        ) as consumer,
    ):
        while not consumer.assignment():
            await consumer.poll(timeout=0.1)
    assert len({id(handshake) for handshake, _ in asked}) == len(asked)
    assert 5 in [version for _, version in asked]


async def test_a_consumer_starts_again_from_the_bootstrap_addresses_if_its_broker_is_another_one(
    kafka_broker: RunningBroker,
    kafka_topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    replied, described = Channels._replied, 0

    def of_another_cluster(self: Channels, request_id: int, response: Response) -> Replied:
        nonlocal described
        if isinstance(response, messages.MetadataResponse):
            described += 1
            if described == 1:
                response = msgspec.structs.replace(response, cluster_id="another")
        return replied(self, request_id, response)

    monkeypatch.setattr(Channels, "_replied", of_another_cluster)
    async with (
        asyncio.timeout(WITHIN),
        Consumer(
            kafka_topic, bootstrap_servers=kafka_broker.bootstrap_servers, group_id=kafka_topic
        ) as consumer,
    ):
        while not consumer.assignment():
            await consumer.poll(timeout=0.1)
    assert caplog.text.count("connecting to the bootstrap addresses again") == 1
    assert "is not broker 1 of the cluster any more" in caplog.text
