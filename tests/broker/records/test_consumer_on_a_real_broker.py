"""The consumer as users have it, against a real Apache Kafka."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict

import pytest
from broker.records.kafka_topic_records import DEADLINE, TopicRecords, numbers, read, rest

from asyncrevoke import (
    Consumer,
    OffsetAndMetadata,
    PartitionLostError,
    Record,
    TopicPartition,
)

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


async def test_a_member_reads_all_records_and_its_successor_starts_at_the_committed_offset(
    kafka: TopicRecords,
) -> None:
    await kafka.produce(100)
    seen: list[bytes] = []
    async with kafka.consumer() as consumer:
        async for batch in consumer:
            seen.extend(record.value or b"" for record in batch.records)
            if len(seen) >= 100:
                consumer.stop()
    assert Counter(seen) == numbers(100)
    assert await kafka.committed() == 100
    await kafka.produce(10)
    async with kafka.consumer() as consumer:
        assert Counter(await read(consumer, 10)) == numbers(10, 100)


async def test_leaving_the_loop_by_break_does_not_complete_the_last_batch(
    kafka: TopicRecords,
) -> None:
    await kafka.produce(50)
    async with kafka.consumer() as consumer:
        assert Counter(await read(consumer, 50)) == numbers(50)
    async with kafka.consumer() as consumer:
        again = await read(consumer, 1)
        again += await rest(consumer)
    assert set(again) <= set(numbers(50))
    assert again


async def test_an_exception_does_not_complete_the_last_batch_and_leaves_the_group(
    kafka: TopicRecords,
) -> None:
    await kafka.produce(10)
    with pytest.raises(ZeroDivisionError):
        async with kafka.consumer(max_poll_records=10) as consumer:
            await read(consumer, 10)
            raise ZeroDivisionError
    async with asyncio.timeout(20), kafka.consumer() as consumer:
        # The first member has left, so this one does not wait for its session (45 s).
        assert await read(consumer, 1)


async def test_commit_includes_the_batch_that_the_next_poll_completed(kafka: TopicRecords) -> None:
    await kafka.produce(20)
    async with kafka.consumer(commit_interval=60) as consumer:
        await read(consumer, 20)
        await consumer.poll(timeout=0)
        await consumer.commit()
        found = await consumer.committed()
        assert sum(offset.offset for offset in found.values() if offset) == 20


async def test_cancelling_a_waiting_poll_loses_no_record(kafka: TopicRecords) -> None:
    seen: list[bytes] = []
    timeouts = 0
    async with kafka.consumer() as consumer, kafka.producing() as produce:

        async def trickle() -> None:
            for _ in range(40):
                await produce(5)

        trickling = asyncio.create_task(trickle())
        async with asyncio.timeout(DEADLINE):
            while len(seen) < 200:
                try:
                    async with asyncio.timeout(0.005):
                        batch = await anext(consumer)
                except TimeoutError:
                    timeouts += 1
                    continue
                seen.extend(record.value or b"" for record in batch.records)
        await trickling
    assert Counter(seen) == numbers(200)
    assert timeouts > 0


async def test_single_records_are_completed_one_by_one(kafka: TopicRecords) -> None:
    await kafka.produce(30)
    seen: list[bytes] = []
    async with kafka.consumer() as consumer:
        async for record in consumer.records():
            seen.append(record.value or b"")
            if len(seen) == 11:
                break  # the eleventh is not done
    assert await kafka.committed() == 10
    async with kafka.consumer() as consumer:
        async for record in consumer.records():
            seen.append(record.value or b"")
            if len(seen) == 15:
                break
        # Whole batches from here on: nothing is left out.
        seen += await read(consumer, 1) + await rest(consumer)
    assert Counter(seen) == numbers(30) + Counter([seen[10]])


async def test_records_of_one_partition_are_delivered_in_order_without_gaps(
    kafka: TopicRecords,
) -> None:
    await kafka.produce(1000)
    offsets: defaultdict[int, list[int]] = defaultdict(list)
    async with kafka.consumer(max_poll_records=37) as consumer, asyncio.timeout(DEADLINE):
        async for batch in consumer:
            assert len(batch.records) <= 37
            for record in batch.records:
                offsets[record.partition].append(record.offset)
            if sum(map(len, offsets.values())) == 1000:
                break
    assert all(found == list(range(len(found))) for found in offsets.values())


async def test_acked_records_are_committed_as_far_as_they_are_contiguous(
    kafka: TopicRecords,
) -> None:
    await kafka.produce(40)
    async with kafka.consumer(commit_mode="ack") as consumer:
        records: list[Record] = []
        async with asyncio.timeout(DEADLINE):
            while len(records) < 40:
                records.extend((await anext(consumer)).records)
        for record in reversed(records):
            if record.offset != 1:
                assert consumer.ack(record)
                assert consumer.ack(record)  # twice does no harm
    partitions = {record.partition for record in records if record.offset == 1}
    done = Counter(record.partition for record in records)
    expected = sum(1 if partition in partitions else done[partition] for partition in done)
    assert await kafka.committed() == expected


async def test_manual_mode_commits_given_offsets_only_and_may_rewind(kafka: TopicRecords) -> None:
    await kafka.produce(40)
    async with kafka.consumer(commit_mode="manual") as consumer:
        await read(consumer, 40)
        await consumer.commit()
        assert await kafka.committed() == 40
        tp, position = next(
            (tp, end) for tp in consumer.assignment() if (end := consumer.position(tp) or 0) > 2
        )
        await consumer.commit({tp: 1})
        assert (await consumer.committed(tp))[tp] == OffsetAndMetadata(1, "", -1)
        await consumer.commit({tp: OffsetAndMetadata(2, "a note")})
        assert (await consumer.committed(tp))[tp] == OffsetAndMetadata(2, "a note", -1)
        with pytest.raises(PartitionLostError):
            await consumer.commit({TopicPartition(kafka.topic, 99): 1})
    assert await kafka.committed() == 40 - position + 2


async def test_an_unreachable_broker_is_named_in_the_log_and_closing_is_quick(
    unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    with caplog.at_level(logging.WARNING, "asyncrevoke"):
        async with (
            asyncio.timeout(DEADLINE),
            Consumer("orders", bootstrap_servers=address, group_id="billing") as consumer,
        ):
            while address not in caplog.text:
                batch = await consumer.poll(timeout=0.1)
                assert list(batch.records) == []
            begun = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - begun < 10


async def test_a_topic_that_does_not_exist_is_named_in_the_log(
    kafka: TopicRecords, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "asyncrevoke"):
        async with asyncio.timeout(DEADLINE), kafka.consumer("no-such-topic") as consumer:
            while "no-such-topic" not in caplog.text:
                await consumer.poll(timeout=0.1)
