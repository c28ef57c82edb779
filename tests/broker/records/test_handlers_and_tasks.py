"""Handlers and task groups complete records on a real broker."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict

import pytest
from broker.records.kafka_topic_records import DEADLINE, TopicRecords, numbers, read, rest

from asyncrevoke import (
    Consumer,
    Record,
)

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


async def test_handlers_handle_each_record_once_and_keep_the_order_of_keys(
    kafka: TopicRecords,
) -> None:
    await kafka.produce(300)
    consumer = Consumer(bootstrap_servers=kafka.bootstrap, group_id=kafka.group, concurrency=16)
    handled: defaultdict[bytes | None, list[int]] = defaultdict(list)

    @consumer.handler(kafka.topic)
    async def handle(value: bytes, record: Record) -> None:
        await asyncio.sleep(0.001 * (int(value) % 5))
        handled[record.key].append(int(value))
        if sum(map(len, handled.values())) == 300:
            consumer.stop()

    async with asyncio.timeout(DEADLINE):
        await consumer.run()
    assert all(numbers == sorted(numbers) for numbers in handled.values())
    assert sorted(itertools.chain(*handled.values())) == list(range(300))
    assert await kafka.committed() == 300


async def test_a_failed_handler_leaves_its_record_to_the_next_owner(kafka: TopicRecords) -> None:
    await kafka.produce(20)
    consumer = Consumer(
        bootstrap_servers=kafka.bootstrap, group_id=kafka.group, order_by="partition"
    )
    handled: set[bytes] = set()

    @consumer.handler(kafka.topic)
    async def handle(value: bytes) -> None:
        if value == b"7":
            raise ZeroDivisionError
        handled.add(value)

    async with asyncio.timeout(DEADLINE):
        with pytest.raises(ZeroDivisionError):
            await consumer.run()
    async with kafka.consumer() as successor:
        again = await read(successor, 1) + await rest(successor)
    assert b"7" in again
    assert set(again) | handled == set(numbers(20))
    assert not set(again) & handled


async def test_records_of_a_task_group_are_completed_when_their_tasks_end(
    kafka: TopicRecords,
) -> None:
    await kafka.produce(100)
    done: list[bytes] = []

    async def work(record: Record, suffix: bytes) -> None:
        await asyncio.sleep(0.002)
        done.append((record.value or b"") + suffix)

    async with (
        asyncio.timeout(DEADLINE),
        kafka.consumer() as consumer,
        consumer.task_group(concurrency=32) as tasks,
    ):
        submitted = 0
        async for batch in consumer:
            for record in batch.records:
                assert await tasks.submit(work, record, b"!")
                submitted += 1
            if submitted == 100:
                break  # leaving the group waits for its tasks, whose records count
    assert Counter(done) == Counter({value + b"!": 1 for value in numbers(100)})
    assert await kafka.committed() == 100
