"""A producer that wants to exhaust its consumers, on a real broker: a few kilobytes of zstd with
tens of millions of headers, which the broker takes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from broker.handlers.test_handlers_on_a_real_broker import DEADLINE, HandlerTopic, until
from broker.records.raw_producer import send_raw
from wire.frames.raw_batches import header_bomb, raw_batch, record

from asyncrevoke import Consumer, Record, TopicPartition, UnreadableRecordError

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


@pytest.fixture
def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> HandlerTopic:
    return HandlerTopic(kafka_broker, kafka_topic)


SPOILED = raw_batch(
    record(0, key=b"a"),
    record(1, headers=[(b"\xff", b"")]),
    record(2, headers=[(b"\xff", b"")]),
    record(3, key=b"b"),
)


@pytest.mark.kafka_topic(partitions=1)
async def test_unreadable_records_go_to_the_dead_letter_topic_and_others_are_handled(
    kafka: HandlerTopic,
) -> None:
    await kafka.create(kafka.dead)
    await send_raw(
        kafka.address, kafka.topic, SPOILED, header_bomb(), raw_batch(record(0, key=b"c"))
    )
    consumer = Consumer(**kafka.options())
    keys: list[bytes | None] = []

    @consumer.handler(kafka.topic, dead_letter=kafka.dead, order_by=None)
    async def handle(record: Record) -> None:
        keys.append(record.key)

    async with consumer:
        await until(lambda: len(keys) == 3)
        consumer.stop()
    assert await kafka.committed() == 6
    assert sorted(key or b"" for key in keys) == [b"a", b"b", b"c"]
    letters = [dict(dead_letter.headers) for dead_letter in await kafka.dead_letters(3)]
    assert sorted(letter["asyncrevoke-origin-offset"] or b"" for letter in letters) == [
        b"1",
        b"2",
        b"4",
    ]
    assert {letter["asyncrevoke-error-type"] for letter in letters} == {
        b"asyncrevoke.errors.UnreadableRecordError"
    }


@pytest.mark.kafka_topic(partitions=1)
async def test_a_loop_gets_an_error_at_each_unreadable_record_and_can_seek_past_it(
    kafka: HandlerTopic,
) -> None:
    await send_raw(
        kafka.address, kafka.topic, SPOILED, header_bomb(), raw_batch(record(0, key=b"c"))
    )
    partition = TopicPartition(kafka.topic, 0)
    offsets: list[int] = []
    rejected: list[int] = []
    async with asyncio.timeout(DEADLINE), Consumer(kafka.topic, **kafka.options()) as consumer:
        while len(offsets) < 3:
            try:
                offsets += [each.offset for each in (await anext(consumer)).records]
            except UnreadableRecordError as error:
                rejected.append(error.offset)
                consumer.seek(partition, error.next_offset)
    assert (offsets, rejected) == ([0, 3, 5], [1, 2, 4])
