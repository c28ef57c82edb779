"""One range of a real topic, with transactions, and with records that go while it is read.

By records, and by whole batches.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition
from spark.real_topics import delete, ended_ranges

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.replays.ranges.range_consumer import RangeConsumer
from asyncrevoke.spark.errors import DataLossError, StalledReadError
from asyncrevoke.spark.reading import range_reader
from asyncrevoke.spark.reading.offsets import OffsetRange, resolve_ranges
from asyncrevoke.spark.reading.range_reader import BatchReader, RangeReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.spark.reading.places import Missing

pytestmark = [pytest.mark.broker, pytest.mark.kafka_topic(partitions=1)]


@pytest.fixture
def config(kafka_broker: RunningBroker) -> ConsumerConfig:
    return ConsumerConfig(
        bootstrap_servers=kafka_broker.bootstrap_servers, isolation_level="read_committed"
    )


_way = {"reads": "records"}


@pytest.fixture(autouse=True, params=["records", "batches"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "batches":
        pytest.importorskip("numpy", reason="needs the extra spark")
    monkeypatch.setitem(_way, "reads", request.param)


async def offsets(
    config: ConsumerConfig,
    wanted: OffsetRange,
    patience: float = 20.0,
    missing: Missing = "error",
) -> AsyncIterator[list[int]]:
    """The offsets of each step."""
    if _way["reads"] == "batches":
        from asyncrevoke.client.columns.batch_columns import BatchColumns

        async with BatchReader(
            config, [wanted], no_progress_timeout=patience, missing=missing
        ) as batch_reader:
            while read := await batch_reader.read_batches():
                for read_range, batches in read:
                    columns = BatchColumns(read_range.topic_partition, ["offset"])
                    offsets = range(read_range.start, read_range.end)
                    for rows in columns.slices(offsets, batches):
                        yield rows.column("offset").to_pylist()
        return
    async with RangeReader(
        config, wanted, no_progress_timeout=patience, most=10, missing=missing
    ) as reader:
        while records := await reader.read():
            yield [record.offset for record in records]


async def all_offsets(
    config: ConsumerConfig, wanted: OffsetRange, missing: Missing = "error"
) -> list[int]:
    async with asyncio.timeout(30):
        steps = offsets(config, wanted, missing=missing)
        return [offset async for step in steps for offset in step]


async def produce(config: ConsumerConfig, topic: str, count: int, size: int = 1) -> None:
    async with AIOKafkaProducer(bootstrap_servers=",".join(config.bootstrap_servers)) as producer:
        for _ in range(count):
            # A batch each.
            await producer.send_and_wait(topic, b"x" * size, partition=0)


async def test_a_range_is_read_from_its_start_to_its_end_and_no_further(
    config: ConsumerConfig, kafka_topic: str
) -> None:
    await produce(config, kafka_topic, 40)
    assert await all_offsets(config, OffsetRange(kafka_topic, 0, 7, 33)) == list(range(7, 33))


async def test_a_task_does_not_ask_again_for_the_offsets_that_were_planned(
    config: ConsumerConfig, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await produce(config, kafka_topic, 3)

    async def asked(*_: object) -> None:
        pytest.fail("a request for offsets")

    for name in ("beginning_offsets", "end_offsets", "offsets_for_times"):
        monkeypatch.setattr(RangeConsumer, name, asked)
    assert await all_offsets(config, OffsetRange(kafka_topic, 0, 1, 3)) == [1, 2]


async def test_a_range_whose_end_is_all_gaps_ends(config: ConsumerConfig, kafka_topic: str) -> None:
    await produce(config, kafka_topic, 3)
    producer = AIOKafkaProducer(
        bootstrap_servers=",".join(config.bootstrap_servers), transactional_id=kafka_topic
    )
    async with producer:
        for abort in (False, True):
            await producer.begin_transaction()
            for _ in range(5):
                await producer.send_and_wait(kafka_topic, b"x", partition=0)
            await (producer.abort_transaction() if abort else producer.commit_transaction())
    # Three records, five and a marker, five that were aborted and a marker.
    (planned,) = ended_ranges(config.bootstrap_servers[0], kafka_topic, 15)
    assert await all_offsets(config, planned) == list(range(8))
    # Nothing but an aborted transaction, as in a batch of a stream; nothing but its marker.
    assert await all_offsets(config, OffsetRange(kafka_topic, 0, 9, 15)) == []
    assert await all_offsets(config, OffsetRange(kafka_topic, 0, 14, 15)) == []


async def test_a_range_beyond_the_end_of_the_log_is_an_error_that_names_it(
    config: ConsumerConfig, kafka_topic: str
) -> None:
    await produce(config, kafka_topic, 4)
    message = r"at offset 4 of 9 for 1 s: no record can be read from offset 4 on, .* end ranges"
    with pytest.raises(StalledReadError, match=message):
        async for _ in offsets(config, OffsetRange(kafka_topic, 0, 0, 9), 1.0):
            pass


async def test_an_open_transaction_is_not_waited_for_without_end(
    config: ConsumerConfig, kafka_topic: str
) -> None:
    await produce(config, kafka_topic, 4)
    producer = AIOKafkaProducer(
        bootstrap_servers=",".join(config.bootstrap_servers), transactional_id=kafka_topic
    )
    read: list[int] = []
    async with producer, producer.transaction():
        await producer.send_and_wait(kafka_topic, b"open", partition=0)
        with pytest.raises(StalledReadError, match=r"offset 4 of 5 for 5 s: .* transaction"):
            async with asyncio.timeout(20):
                async for step in offsets(config, OffsetRange(kafka_topic, 0, 0, 5), 5.0):
                    read += step
    assert read == [0, 1, 2, 3]


async def delete_before(config: ConsumerConfig, topic: str, offset: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=",".join(config.bootstrap_servers))
    await admin.start()
    try:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(offset)})
    finally:
        await admin.close()


async def test_records_that_go_while_a_range_is_read_are_an_error(
    config: ConsumerConfig, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that little is fetched ahead.
    monkeypatch.setattr(range_reader, "FETCH_BYTES", 4000)
    monkeypatch.setattr(range_reader, "AHEAD", 8000)
    await produce(config, kafka_topic, 60, size=3000)
    read: list[int] = []
    with pytest.raises(
        DataLossError, match=r"begins at offset 50, after the planned offset \d+: .*clip"
    ):
        async for step in offsets(config, OffsetRange(kafka_topic, 0, 0, 60)):
            if not read:
                await delete_before(config, kafka_topic, 50)
            read += step
    # What came before is whole; nothing was passed over.
    assert read == list(range(len(read)))
    assert len(read) < 50


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
async def test_a_topic_that_is_deleted_while_a_range_is_read_is_an_error(
    config: ConsumerConfig,
    kafka_broker: RunningBroker,
    kafka_topic: str,
    monkeypatch: pytest.MonkeyPatch,
    again: bool,
) -> None:
    monkeypatch.setattr(range_reader, "FETCH_BYTES", 4000)
    monkeypatch.setattr(range_reader, "AHEAD", 8000)
    await produce(config, kafka_topic, 60, size=3000)
    (planned,) = await asyncio.to_thread(resolve_ranges, config, kafka_topic)
    read: list[int] = []
    with pytest.raises(DataLossError, match=rf"{kafka_topic}-0 was deleted, and perhaps created"):
        async with asyncio.timeout(60):
            async for step in offsets(config, planned):
                if not read:
                    await asyncio.to_thread(delete, kafka_broker, kafka_topic)
                    if again:
                        await asyncio.to_thread(kafka_broker.create_topic, kafka_topic, 1)
                        await produce(config, kafka_topic, 60)
                read += step
    assert read == list(range(len(read)))
    assert len(read) < 60


async def test_a_topic_that_was_created_again_since_the_plan_is_an_error(
    config: ConsumerConfig, kafka_topic: str
) -> None:
    await produce(config, kafka_topic, 3)
    (planned,) = await asyncio.to_thread(resolve_ranges, config, kafka_topic)
    assert await all_offsets(config, planned) == [0, 1, 2]
    former = planned._replace(topic_id="xtzWWN4bTjitpL3kfd9s5g")
    with pytest.raises(DataLossError, match=r"deleted and created again .* was xtzW.* and is "):
        await all_offsets(config, former)


async def test_a_partition_or_topic_that_does_not_exist_is_not_said_to_be_deleted(
    config: ConsumerConfig, kafka_topic: str
) -> None:
    with pytest.raises(DataLossError, match="1 partitions, none with the number 7"):
        await all_offsets(config, OffsetRange(kafka_topic, 7, 0, 5))
    other = f"{kafka_topic}-other"
    with pytest.raises(DataLossError, match=f"^there is no topic {other}, .* from offset 3 on"):
        await all_offsets(config, OffsetRange(other, 0, 3, 5))


async def test_a_start_that_is_gone_is_an_error_at_once(
    config: ConsumerConfig, kafka_topic: str
) -> None:
    await produce(config, kafka_topic, 10)
    await delete_before(config, kafka_topic, 6)
    with pytest.raises(DataLossError, match="begins at offset 6, after the planned offset 2"):
        await all_offsets(config, OffsetRange(kafka_topic, 0, 2, 10))


async def test_without_an_error_the_records_that_are_left_after_a_deletion_are_read(
    config: ConsumerConfig,
    kafka_topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(range_reader, "FETCH_BYTES", 4000)
    monkeypatch.setattr(range_reader, "AHEAD", 8000)
    await produce(config, kafka_topic, 60, size=3000)
    read: list[int] = []
    with caplog.at_level("WARNING"):
        async for step in offsets(config, OffsetRange(kafka_topic, 0, 0, 58), missing="clip"):
            if not read:
                await delete_before(config, kafka_topic, 50)
            read += step
    # Some records were fetched before they were deleted.
    before = [offset for offset in read if offset < 50]
    assert read == [*range(len(before)), *range(50, 58)]
    assert len(before) < 50
    (warning,) = (message for message in caplog.messages if "planned records deleted" in message)
    assert "50" in warning


@pytest.mark.parametrize(("before", "left"), [(6, [6, 7, 8, 9]), (10, []), (15, [])])
async def test_without_an_error_a_range_begins_where_its_log_does_now(
    config: ConsumerConfig, kafka_topic: str, before: int, left: list[int]
) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=",".join(config.bootstrap_servers), linger_ms=1000
    ) as producer:
        # One batch: the broker returns it whole, with the records that were deleted.
        for _ in range(20):
            await producer.send(kafka_topic, b"x", partition=0)
        await producer.flush()
    await delete_before(config, kafka_topic, before)
    assert await all_offsets(config, OffsetRange(kafka_topic, 0, 2, 10), "clip") == left
