"""A cluster of three brokers: reading from a replica nearby, and a log that is cut."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from broker.groups.recorded_requests import change_responses, note_requests
from broker.topics.partition_replicas import replicas

from asyncrevoke import Consumer, LogTruncationError, TopicPartition
from asyncrevoke.client.core.io.effects import Replied
from asyncrevoke.client.protocol.messages import (
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.broker import KafkaBroker, KafkaCluster
    from asyncrevoke.client.core.io.effects import Failed, Send
    from asyncrevoke.client.protocol.messages import Response
    from benchmarks.clients.aiokafka_types import Sender


pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

PATIENCE = 90.0


def broker(cluster: KafkaCluster, node_id: int) -> KafkaBroker:
    (found,) = (each for each in cluster.brokers if each.node_id == node_id)
    return found


async def send(addresses: str, topic: str, values: Iterable[str], acks: int | str = "all") -> None:
    client = AIOKafkaProducer(bootstrap_servers=addresses, acks=acks)
    async with cast("Sender", client) as producer:
        for value in values:
            await (await producer.send(topic, value.encode(), partition=0))


async def read(consumer: Consumer, count: int) -> list[str]:
    values: list[str] = []
    while len(values) < count:
        batch = await anext(consumer)
        values += [(record.value or b"").decode() for record in batch.records]
    return values


async def test_records_are_fetched_from_the_replica_in_the_same_rack(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_node: list[int] = []

    def note(send: Send, reply: Replied | Failed) -> None:
        if isinstance(reply, Replied) and isinstance(reply.message, FetchResponse):
            brought = any(fetched.records for fetched in reply.message.partitions)
            from_node.extend([send.node.node_id] if brought else [])

    note_requests(monkeypatch, note)
    topic = f"nearby-{uuid.uuid4().hex[:8]}"
    kafka_cluster.create_topic(topic)
    address = kafka_cluster.bootstrap_servers
    leader, all_of_them, _ = replicas(kafka_cluster, topic)
    follower = next(node for node in all_of_them if node != leader)
    await send(address, topic, map(str, range(50)))
    async with (
        asyncio.timeout(PATIENCE),
        Consumer(topic, bootstrap_servers=address, client_rack=f"rack-{follower}") as consumer,
    ):
        assert await read(consumer, 50) == [str(number) for number in range(50)]
        await send(address, topic, map(str, range(50, 60)))
        assert await read(consumer, 10) == [str(number) for number in range(50, 60)]
    assert set(from_node) == {follower}


async def test_the_leader_is_fetched_from_until_metadata_lists_the_preferred_replica(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[FetchRequest | MetadataRequest] = []
    from_node: list[int] = []
    topic = f"unlisted-{uuid.uuid4().hex[:8]}"
    kafka_cluster.create_topic(topic)
    address = kafka_cluster.bootstrap_servers
    leader, all_of_them, _ = replicas(kafka_cluster, topic)
    follower = next(node for node in all_of_them if node != leader)
    unlisted = {follower}

    def note(send: Send, reply: Replied | Failed) -> None:
        if isinstance(send.message, (FetchRequest, MetadataRequest)):
            asked.append(send.message)
        if isinstance(reply, Replied) and isinstance(reply.message, FetchResponse):
            brought = any(fetched.records for fetched in reply.message.partitions)
            from_node.extend([send.node.node_id] if brought else [])

    def leave_out(message: Response) -> Response:
        if isinstance(message, MetadataResponse):
            listed = tuple(each for each in message.brokers if each.node_id not in unlisted)
            return msgspec.structs.replace(message, brokers=listed)
        return message

    change_responses(monkeypatch, leave_out)
    note_requests(monkeypatch, note)
    await send(address, topic, map(str, range(50)))
    async with (
        asyncio.timeout(PATIENCE),
        Consumer(topic, bootstrap_servers=address, client_rack=f"rack-{follower}") as consumer,
    ):
        assert await read(consumer, 50) == [str(number) for number in range(50)]
        for number in range(50, 60):
            await send(address, topic, [str(number)])
            assert await read(consumer, 1) == [str(number)]
        assert set(from_node) == {leader}
        with_rack = [each for each in asked if isinstance(each, FetchRequest) and each.rack]
        assert 1 <= len(with_rack) <= 20
        assert 2 <= sum(isinstance(each, MetadataRequest) for each in asked) <= 20
        unlisted.clear()
        number = 60
        while from_node[-1] != follower:
            await send(address, topic, [str(number)])
            assert await read(consumer, 1) == [str(number)]
            number += 1


@pytest.mark.slow
async def test_after_an_unclean_election_no_record_of_the_new_leaders_log_is_skipped(
    kafka_cluster: KafkaCluster,
) -> None:
    cluster, topic = kafka_cluster, f"cut-{uuid.uuid4().hex[:8]}"
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    await asyncio.to_thread(lambda: cluster.create_topic(topic, replication=2, config=config))
    address = cluster.bootstrap_servers
    leader, both, _ = replicas(cluster, topic)
    (behind,) = (node for node in both if node != leader)
    (third,) = {1, 2, 3} - set(both)
    partition = TopicPartition(topic, 0)
    await send(address, topic, (f"both {n}" for n in range(10)))
    try:
        async with (
            asyncio.timeout(PATIENCE),
            Consumer(topic, bootstrap_servers=address, metadata_max_age=2.0) as consumer,
            Consumer(
                bootstrap_servers=address, metadata_max_age=2.0, auto_offset_reset="error"
            ) as strict,
        ):
            strict.assign([partition])
            strict.seek(partition, 0)
            await asyncio.to_thread(broker(cluster, behind).kill)
            await in_sync(cluster, topic, [leader])
            await send(address, topic, (f"lost {n}" for n in range(5)))
            assert len(await read(consumer, 15)) == 15
            assert len(await read(strict, 15)) == 15

            await asyncio.to_thread(broker(cluster, leader).kill)
            returning = broker(cluster, behind)
            await asyncio.to_thread(returning.launch)
            await asyncio.to_thread(returning.wait_until_ready, {behind, third})
            # More than were lost: the position lies within the new log.
            await send(address, topic, (f"new {n}" for n in range(8)), acks=1)
            assert await read(consumer, 8) == [f"new {n}" for n in range(8)]
            with pytest.raises(LogTruncationError) as caught:
                await read(strict, 1)
    finally:
        await asyncio.to_thread(cluster.start)
    assert caught.value.partitions == {partition}
    assert (caught.value.position, caught.value.truncated_to) == (15, 10)


async def in_sync(cluster: KafkaCluster, topic: str, expected: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE
    while (await asyncio.to_thread(replicas, cluster, topic)).in_sync != expected:
        assert time.monotonic() < deadline, "the other replica stays in sync"
        await asyncio.sleep(0.1)
