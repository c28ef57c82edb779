"""What a crash repeats, against a real Apache Kafka: with a completion map, and without."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer

from asyncrevoke import Consumer, OffsetAndMetadata, Record, TopicPartition
from asyncrevoke.client.core.partition.completion_map import CompletionMap, decode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]

DEADLINE = 60.0
COUNT = 5000


async def produce(servers: str, topic: str, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(count):
            await producer.send(topic, b"", key=b"%d" % number, partition=0)
        await producer.flush()


@asynccontextmanager
async def stuck_member(
    servers: str, topic: str, completion_map: int
) -> AsyncGenerator[asyncio.StreamReader]:
    """A member in another process, which is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("stuck_handler.py")),
        *(servers, topic, str(completion_map)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.kill()
        await process.wait()


async def handled_offsets(output: asyncio.StreamReader, count: int) -> set[int]:
    async with asyncio.timeout(DEADLINE):
        return {int(await output.readline()) for _ in range(count)}


async def committed(servers: str, topic: str) -> OffsetAndMetadata | None:
    async with Consumer(bootstrap_servers=servers, group_id=topic) as looker:
        return (await looker.committed(TopicPartition(topic, 0)))[TopicPartition(topic, 0)]


async def committed_map(servers: str, topic: str, end: int) -> CompletionMap:
    """The map in the broker, as soon as it reaches so far."""
    async with asyncio.timeout(DEADLINE):
        while True:
            found = await committed(servers, topic)
            if found is not None:
                known = decode(found.offset, found.metadata)
                if known is not None and known.end == end:
                    return known
            await asyncio.sleep(0.1)


async def successor(servers: str, topic: str, completion_map: int, last: int) -> list[int]:
    """What the next member handles, until it has handled ``last``."""
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=topic,
        group_instance_id="only",
        completion_map=completion_map,
    )
    handled: list[int] = []

    @consumer.handler(topic)
    async def handle(record: Record) -> None:
        handled.append(record.offset)
        if record.offset == last:
            consumer.stop()

    async with asyncio.timeout(DEADLINE):
        await consumer.run()
    return handled


async def test_with_a_completion_map_only_the_stuck_record_repeats_after_a_kill(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    servers = kafka_broker.bootstrap_servers
    await produce(servers, kafka_topic, COUNT)
    async with stuck_member(servers, kafka_topic, 512) as output:
        assert await handled_offsets(output, COUNT) == set(range(COUNT))
        known = await committed_map(servers, kafka_topic, COUNT)
    assert known.runs == ((1, COUNT),)
    await produce(servers, kafka_topic, 1)
    handled = await successor(servers, kafka_topic, 512, last=COUNT)
    assert sorted(handled) == [0, COUNT]
    assert await committed(servers, kafka_topic) == OffsetAndMetadata(COUNT + 1, "", 0)


async def test_without_a_completion_map_all_records_after_the_stuck_one_repeat(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    servers = kafka_broker.bootstrap_servers
    await produce(servers, kafka_topic, COUNT)
    async with stuck_member(servers, kafka_topic, 0) as output:
        assert await handled_offsets(output, COUNT) == set(range(COUNT))
        found = await committed(servers, kafka_topic)
        assert found is None or found[:2] == (0, "")
    await produce(servers, kafka_topic, 1)
    handled = await successor(servers, kafka_topic, 0, last=COUNT)
    assert sorted(handled) == list(range(COUNT + 1))


async def test_the_next_owner_of_a_revoked_partition_skips_completed_records(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    """The stuck handler is given up when closing has waited for it long enough."""
    servers = kafka_broker.bootstrap_servers
    await produce(servers, kafka_topic, 200)
    first = Consumer(
        bootstrap_servers=servers, group_id=kafka_topic, commit_interval=60.0, close_timeout=10.0
    )
    all_but_one = asyncio.Event()
    handled: set[int] = set()

    @first.handler(kafka_topic)
    async def handle(record: Record) -> None:
        handled.add(record.offset)
        if len(handled) == 200:
            all_but_one.set()
        if record.offset == 50:
            await asyncio.Event().wait()

    async with first:
        async with asyncio.timeout(DEADLINE):
            await all_but_one.wait()
    found = await committed(servers, kafka_topic)
    assert found is not None
    assert found.offset == 50
    known = decode(found.offset, found.metadata)
    assert known is not None
    assert known.runs == ((51, 200),)
    await produce(servers, kafka_topic, 1)
    assert sorted(await successor(servers, kafka_topic, 512, last=200)) == [50, 200]
