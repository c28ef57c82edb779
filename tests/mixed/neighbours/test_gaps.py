"""Stops this library while a slow key has records to be handled, below records that are done. A
member of another client gets the partition, and reads no completion map."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from mixed.neighbours.clients import ASSIGNORS, group_with, running_member

from asyncrevoke import Consumer, Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mixed.group import Client

    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(120),
    pytest.mark.kafka_topic(partitions=2),
]

DEADLINE = 60.0
COUNT = 100


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("leads", ["asyncrevoke", "the other client"])
@pytest.mark.parametrize("client", ASSIGNORS)
async def test_a_stop_processes_the_gap_and_the_other_client_repeats_nothing(
    tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str, client: Client, leads: str
) -> None:
    group = group_with(client, tmp_path, kafka_broker, kafka_topic)
    assignor = ASSIGNORS[client][-1]
    first, later = asyncio.Event(), asyncio.Event()
    handled: list[int] = []
    consumer = Consumer(
        bootstrap_servers=kafka_broker.bootstrap_servers,
        group_id=group.name,
        assignors=(assignor,),
        heartbeat_interval=0.3,
    )

    @consumer.handler(kafka_topic)
    async def handle(record: Record) -> None:
        if record.key == b"slow":
            await (later if record.offset else first).wait()
        handled.append(record.offset)

    async with AsyncExitStack() as stack:
        producer = AIOKafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers)
        await stack.enter_async_context(producer)
        if leads == "asyncrevoke":
            await stack.enter_async_context(consumer)
            await until(lambda: len(consumer.assignment()) == 2)
        other = await stack.enter_async_context(running_member(group, client, assignor))
        if leads != "asyncrevoke":
            await until(lambda: len(other.owned) == 2)
            await stack.enter_async_context(consumer)
        await until(lambda: len(consumer.assignment()) == len(other.owned) == 1)
        (ours,) = consumer.assignment()
        for offset in range(COUNT):
            key = b"%d" % offset if offset % 10 else b"slow"
            await producer.send(kafka_topic, b"%d" % offset, key=key, partition=ours.partition)
        await until(lambda: len(handled) == COUNT * 9 // 10)

        stopping = asyncio.create_task(consumer.aclose())
        first.set()
        await until(lambda: 0 in handled)
        assert ours not in other.owned, "the rest of the slow key is processed first"
        later.set()
        await stopping
        assert sorted(handled) == list(range(COUNT))
        await until(lambda: ours in other.owned)
        await producer.send_and_wait(kafka_topic, b"%d" % COUNT, partition=ours.partition)
        await until(lambda: bool(other.seen))
        assert [(seen.partition, seen.offset) for seen in other.seen] == [(ours.partition, COUNT)]
