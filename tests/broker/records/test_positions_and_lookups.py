"""Where a consumer begins, seeks, pauses and looks offsets up, on a real broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from broker.records.kafka_topic_records import DEADLINE, TopicRecords, numbers, read, rest
from broker.records.numbered_records import until

from asyncrevoke import (
    Consumer,
    IllegalStateError,
    NoOffsetError,
    TopicReader,
)
from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerOptions, OffsetReset


pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


async def test_seeking_pausing_and_looking_up_offsets(kafka: TopicRecords) -> None:
    await kafka.produce(60)
    async with kafka.consumer(group_id=None) as consumer, asyncio.timeout(DEADLINE):
        await read(consumer, 60)
        ends = await consumer.end_offsets()
        assert sum(ends.values()) == 60
        assert set((await consumer.beginning_offsets()).values()) == {0}
        assert {tp: consumer.position(tp) for tp in ends} == ends
        assert {tp: consumer.highwater(tp) for tp in ends if ends[tp]} == {
            tp: end for tp, end in ends.items() if end
        }
        assert await consumer.partitions_for_topic(kafka.topic) == {0, 1, 2, 3}
        assert await consumer.partitions_for_topic("no-such-topic") == frozenset()

        tp = max(ends, key=lambda tp: ends[tp])
        consumer.seek(tp, ends[tp] - 3)
        assert len(await read(consumer, 3)) == 3
        assert await rest(consumer) == []

        await consumer.seek_to_beginning()
        assert Counter(await read(consumer, 60)) == numbers(60)
        await consumer.seek_to_beginning()
        await consumer.seek_to_end()
        assert await rest(consumer) == []

        consumer.pause(tp)
        assert consumer.paused() == {tp}
        consumer.seek(tp, 0)
        assert await rest(consumer) == []
        consumer.resume(tp)
        assert len(await read(consumer, ends[tp])) == ends[tp]

        first = (await consumer.offsets_for_times({tp: 0}))[tp]
        assert first is not None
        assert first.offset == 0
        assert (await consumer.offsets_for_times({tp: 2**50}))[tp] is None


async def test_partitions_assigned_by_hand_are_read_and_committed(kafka: TopicRecords) -> None:
    await kafka.produce(60)
    consumer = Consumer(bootstrap_servers=kafka.bootstrap, group_id=kafka.group)
    wanted = {kafka.partition(0), kafka.partition(1)}
    async with asyncio.timeout(DEADLINE), consumer:
        consumer.assign(wanted)
        values = await rest(consumer)
        assert consumer.assignment() == wanted
        await consumer.commit()
        found = await consumer.committed()
        assert sum(offset.offset for offset in found.values() if offset) == len(values)


async def test_a_pattern_finds_topics_and_unsubscribing_leaves_them(kafka: TopicRecords) -> None:
    await kafka.produce(20)
    consumer = Consumer(
        pattern=f"{kafka.topic[:-4]}.*", bootstrap_servers=kafka.bootstrap, group_id=kafka.group
    )
    async with asyncio.timeout(DEADLINE), consumer:
        await read(consumer, 20)
        assert consumer.subscription() == {kafka.topic}
        await consumer.poll(timeout=0)
        await consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        assert await kafka.committed() == 20
        consumer.subscribe(kafka.topic)
        await kafka.produce(5)
        assert Counter(await read(consumer, 5)) == numbers(5, 20)


@pytest.mark.parametrize(("back", "expected"), [(timedelta(hours=1), 10), ("latest", 0)])
async def test_where_to_begin_can_be_chosen(
    kafka: TopicRecords, back: OffsetReset, expected: int
) -> None:
    await kafka.produce(10)
    async with kafka.consumer(auto_offset_reset=back) as consumer:
        assert len(await rest(consumer)) == expected


async def test_no_committed_offset_may_be_an_error(kafka: TopicRecords) -> None:
    async with kafka.consumer(auto_offset_reset="error") as consumer:
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(NoOffsetError):
                await anext(consumer)


# Three records of a transaction, and its marker.
END = 4
READ_COMMITTED: ConsumerOptions = {"isolation_level": "read_committed"}
READ_UNCOMMITTED: ConsumerOptions = {"isolation_level": "read_uncommitted"}
KIP848: ConsumerOptions = {"group_protocol": "consumer"}


async def abort_transaction(kafka: TopicRecords) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=kafka.topic)
    async with producer:
        await producer.begin_transaction()
        for _ in range(END - 1):
            await producer.send_and_wait(kafka.topic, b"x", partition=0)
        await producer.abort_transaction()


@pytest.mark.parametrize(
    "options", [READ_COMMITTED, READ_UNCOMMITTED, {**READ_COMMITTED, **KIP848}]
)
async def test_an_idle_member_commits_past_a_transaction_that_is_aborted(
    kafka: TopicRecords, options: ConsumerOptions
) -> None:
    partition = kafka.partition(0)
    options = {"bootstrap_servers": kafka.bootstrap, "group_id": kafka.group, **options}
    consumer = Consumer(**options)

    @consumer.handler(kafka.topic)
    async def handle(_value: bytes) -> None: ...

    async with asyncio.timeout(DEADLINE), consumer:
        await until(lambda: partition in consumer.lag(), "fetched")
        await abort_transaction(kafka)
        await until(lambda: consumer.position(partition) == END, "passed")
        await consumer.commit()
        assert await kafka.committed() == END
        assert consumer.lag()[partition] == 0


async def test_a_loop_to_the_end_offset_ends_after_an_aborted_transaction(
    kafka: TopicRecords,
) -> None:
    await abort_transaction(kafka)
    partition = kafka.partition(0)
    consumer = Consumer(bootstrap_servers=kafka.bootstrap, isolation_level="read_committed")
    async with asyncio.timeout(DEADLINE), consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets())[partition]
        assert end == END
        async for batch in consumer:
            assert not batch.records
            if consumer.position(partition) == end:
                break


async def test_a_topic_that_ends_with_an_aborted_transaction_is_listed_as_dead_letters(
    kafka: TopicRecords,
) -> None:
    await abort_transaction(kafka)
    letters = DeadLetterTopic(
        kafka.topic, no_progress_timeout=10.0, bootstrap_servers=kafka.bootstrap
    )
    async with asyncio.timeout(DEADLINE), letters:
        assert (await letters.counts()).rows == []


@pytest.mark.parametrize("options", [{}, KIP848])
async def test_a_loop_to_the_present_end_reads_each_record_once(
    kafka: TopicRecords, options: ConsumerOptions
) -> None:
    await kafka.produce(400)
    values: list[bytes] = []
    async with asyncio.timeout(DEADLINE), kafka.consumer(**options) as consumer:
        assert await consumer.wait_for_assignment() == {kafka.partition(n) for n in range(4)}
        ends = await consumer.end_offsets()
        while any((consumer.position(tp) or 0) < end for tp, end in ends.items()):
            values += [record.value or b"" for record in (await consumer.poll(timeout=1)).records]
        await consumer.poll(timeout=0)
    assert Counter(values) == numbers(400)
    assert await kafka.committed() == 400


async def test_waiting_for_an_assignment_needs_a_subscription(kafka: TopicRecords) -> None:
    async with Consumer(bootstrap_servers=kafka.bootstrap) as consumer:
        with pytest.raises(IllegalStateError, match="nothing is subscribed"):
            await consumer.wait_for_assignment()
        consumer.assign([kafka.partition(1)])
        assert await consumer.wait_for_assignment() == {kafka.partition(1)}


async def test_a_topic_reader_reads_up_to_the_last_stable_offset(kafka: TopicRecords) -> None:
    await kafka.produce(40)
    await abort_transaction(kafka)
    open_transaction = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap, transactional_id=f"{kafka.topic}-open"
    )
    async with asyncio.timeout(DEADLINE), open_transaction:
        await open_transaction.begin_transaction()
        await open_transaction.send_and_wait(kafka.topic, b"open", partition=0)
        values: list[bytes] = []
        async with TopicReader(
            kafka.topic,
            since=timedelta(hours=1),
            bootstrap_servers=kafka.bootstrap,
            isolation_level="read_committed",
        ) as reader:
            async for batch in reader:
                values += [record.value or b"" for record in batch.records]
        await open_transaction.abort_transaction()
    assert Counter(values) == numbers(40)
