"""Reads of ranges with records that no consumer reads, on a real broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from broker.records.raw_producer import send_raw
from broker.records.test_unreadable_records import SPOILED
from wire.frames.raw_batches import header_bomb, raw_batch, record

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.errors import UnreadableRecordError
from asyncrevoke.client.model import UnreadableRecord
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.reading.range_reader import RangeReader

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.model import Record

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90), pytest.mark.kafka_topic(partitions=1)]

LYING = raw_batch(record(0), record(0), record(1), count=3)


@pytest.fixture
async def config(kafka_broker: RunningBroker, kafka_topic: str) -> ConsumerConfig:
    """Of a topic with readable records at the offsets 0, 3 and 8."""
    address = kafka_broker.bootstrap_servers
    await send_raw(
        address, kafka_topic, SPOILED, header_bomb(20_000_000), LYING, raw_batch(record(0))
    )
    return ConsumerConfig(bootstrap_servers=address)


async def test_a_range_reader_returns_placeholders_and_reads_on(
    config: ConsumerConfig, kafka_topic: str
) -> None:
    reads: list[Record] = []
    wanted = OffsetRange(kafka_topic, 0, 0, 9)
    async with asyncio.timeout(60), RangeReader(config, wanted, unreadable=True) as reader:
        while records := await reader.read():
            assert not any(isinstance(each, UnreadableRecord) for each in records[:-1])
            reads += records
    unreadable = [read for read in reads if isinstance(read, UnreadableRecord)]
    assert [read.offset for read in reads] == [0, 1, 2, 3, 4, 5, 8]
    assert [(each.offset, each.next_offset) for each in unreadable] == [
        (1, 2), (2, 3), (4, 5), (5, 8)
    ]  # fmt: skip


async def test_a_range_that_begins_and_ends_inside_an_unreadable_batch_has_one_placeholder(
    config: ConsumerConfig, kafka_topic: str
) -> None:
    wanted = OffsetRange(kafka_topic, 0, 6, 7)
    async with asyncio.timeout(60), RangeReader(config, wanted, unreadable=True) as reader:
        (unreadable,) = await reader.read()
        assert not await reader.read()
    assert isinstance(unreadable, UnreadableRecord)
    assert (unreadable.offset, unreadable.next_offset) == (6, 8)


async def test_a_range_reader_that_was_not_asked_for_placeholders_raises(
    config: ConsumerConfig, kafka_topic: str
) -> None:
    async with (
        asyncio.timeout(60),
        RangeReader(config, OffsetRange(kafka_topic, 0, 0, 9)) as reader,
    ):
        assert [read_range.offset for read_range in await reader.read()] == [0]
        with pytest.raises(UnreadableRecordError) as rejected:
            await reader.read()
    assert (rejected.value.offset, rejected.value.next_offset) == (1, 2)
