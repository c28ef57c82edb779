"""Members that join, leave and delay revocations, on a real broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from broker.records.kafka_topic_records import DEADLINE, TopicRecords, numbers, read

from asyncrevoke import (
    Consumer,
    IllegalStateError,
    InconsistentGroupError,
    RebalanceListener,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


async def test_a_second_member_gets_half_the_partitions_and_no_record_repeats(
    kafka: TopicRecords,
) -> None:
    seen: list[tuple[int, bytes]] = []
    revoked: list[TopicPartition] = []
    lost: list[TopicPartition] = []
    first, second = kafka.consumer(), kafka.consumer()

    async def loop(number: int, consumer: Consumer) -> None:
        async with consumer:
            async for records, to_be_revoked, gone in consumer:
                seen.extend((number, record.value or b"") for record in records)
                revoked.extend(to_be_revoked)
                lost.extend(gone)

    async with kafka.producing() as produce, asyncio.timeout(DEADLINE):
        await produce(100)
        one = asyncio.create_task(loop(1, first))
        await _until(lambda: len(seen) == 100)
        two = asyncio.create_task(loop(2, second))
        while {number for number, _ in seen} != {1, 2}:
            await produce(4)
            await asyncio.sleep(0.01)
        assert len(first.assignment()) == len(second.assignment()) == 2
        assert not first.assignment() & second.assignment()
        second.stop()
        await two
        await _has(first, 4)
        await produce(100)
        await _until(lambda: len(seen) == kafka.sent)
        first.stop()
        await one
    assert Counter(value for _, value in seen) == numbers(kafka.sent)
    assert len(set(revoked)) == 2
    assert lost == []
    assert await kafka.committed() == kafka.sent


async def test_kept_partitions_are_read_while_a_revocation_is_delayed(kafka: TopicRecords) -> None:
    delayed: set[TopicPartition] = set()
    flowed: Counter[TopicPartition] = Counter()
    enough, results = asyncio.Event(), set[bool]()
    first, second = kafka.consumer(), kafka.consumer()

    async def loop(consumer: Consumer) -> None:
        async with consumer:
            async for records, to_be_revoked, _ in consumer:
                if to_be_revoked and not enough.is_set():
                    delayed.update(to_be_revoked)
                    results.add(consumer.delay_revoke(to_be_revoked))
                if delayed and consumer is first:
                    flowed.update(record.topic_partition for record in records)

    async with asyncio.timeout(DEADLINE), kafka.producing() as produce:
        loops = [asyncio.create_task(loop(first))]
        await _has(first, 4)
        loops.append(asyncio.create_task(loop(second)))
        while not delayed or sum(flowed.values()) < 50:
            await produce(10)
            await asyncio.sleep(0.01)
        assert len(first.assignment()) == 4
        assert not delayed & set(flowed)
        enough.set()
        await _has(second, 2)
        assert second.assignment() == delayed
        first.stop()
        second.stop()
        await asyncio.gather(*loops)
    assert results == {True}


async def test_an_eager_rebalance_revokes_all_partitions_and_loses_no_record(
    kafka: TopicRecords,
) -> None:
    seen: Counter[bytes] = Counter()
    first = kafka.consumer(assignors=("range",))
    second = kafka.consumer(assignors=("range",))

    async def loop(consumer: Consumer) -> None:
        async with consumer:
            async for batch in consumer:
                seen.update(record.value or b"" for record in batch.records)

    async with asyncio.timeout(DEADLINE), kafka.producing() as produce:
        await produce(100)
        loops = [asyncio.create_task(loop(first))]
        await _until(lambda: seen.total() == 100)
        loops.append(asyncio.create_task(loop(second)))
        await _has(second, 2)
        await produce(100)
        await _until(lambda: seen.total() == kafka.sent)
        first.stop()
        second.stop()
        await asyncio.gather(*loops)
    assert seen == numbers(kafka.sent)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - a condition without an event
            await asyncio.sleep(0.01)


async def _has(consumer: Consumer, partitions: int) -> None:
    """Wait until the consumer, which may not be entered yet, has so many partitions."""

    def so_many() -> bool:
        try:
            return len(consumer.assignment()) == partitions
        except IllegalStateError:
            return False

    await _until(so_many)


async def test_no_common_assignor_is_a_fatal_error_that_names_the_fix(
    kafka: TopicRecords,
) -> None:
    async with asyncio.timeout(DEADLINE), kafka.consumer(assignors=("range",)) as first:
        await first.poll(timeout=0)
        while len(first.assignment()) < 4:
            await first.poll(timeout=0.1)
        with pytest.raises(InconsistentGroupError, match="uses the assignor 'range'"):
            async with kafka.consumer() as second:
                await anext(second)


async def test_listener_callbacks_are_called_in_order(kafka: TopicRecords) -> None:
    heard: list[tuple[str, int]] = []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            await asyncio.sleep(0)
            heard.append(("assigned", len(assigned)))

        def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
            heard.append(("revoked", len(revoked)))

    await kafka.produce(1)
    consumer = Consumer(
        kafka.topic,
        listener=Listener(),
        bootstrap_servers=kafka.bootstrap,
        group_id=kafka.group,
    )
    async with consumer:
        await read(consumer, 1)
        await consumer.poll(timeout=0.5)
    total = Counter[str]()
    for name, count in heard:
        total[name] += count
    assert total == {"assigned": 4, "revoked": 4}
    assert heard[0][0] == "assigned"
