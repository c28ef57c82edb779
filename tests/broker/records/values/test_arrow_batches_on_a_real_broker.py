"""Arrow batches on a real Apache Kafka, beside the records of the same topic."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiokafka import AIOKafkaProducer
from broker.records.raw_producer import send_raw
from broker.records.test_records_on_a_real_broker import DEADLINE, Trickle, until
from wire.frames.raw_batches import raw_batch, record

from asyncrevoke import Consumer, Producer, TopicPartition, TopicReader, UnreadableRecordError

pytest.importorskip("pyarrow", reason="needs the extra arrow")

from asyncrevoke.client.columns.record_columns import RecordColumns
from asyncrevoke.client.runtime.arrow.arrow_options import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke import Record
    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.config import GroupProtocol

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


def rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    batch: Any = RecordColumns(COLUMNS).batch(records)
    return cast("list[dict[str, Any]]", batch.to_pylist())


class Member:
    """A member that takes Arrow batches, and what it was given."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.seen: list[tuple[int, int]] = []

    async def run(self) -> None:
        async for batch in self.consumer.arrow_batches(["partition", "offset"], max_wait=0.2):
            columns = (batch.records.column(name).to_pylist() for name in ("partition", "offset"))
            self.seen += zip(*columns, strict=True)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_arrow_batches_have_each_record_once_while_members_come_and_go(
    kafka_broker: RunningBroker, kafka_topic: str, protocol: GroupProtocol
) -> None:
    trickle = Trickle(kafka_broker.bootstrap_servers, kafka_topic)
    producing = asyncio.create_task(trickle.run())

    def member() -> Member:
        return Member(
            Consumer(
                kafka_topic,
                bootstrap_servers=kafka_broker.bootstrap_servers,
                group_id=kafka_topic,
                group_protocol=protocol,
                auto_offset_reset="earliest",
            )
        )

    members = [member(), member(), member()]

    async def until_100_more() -> None:
        count = sum(len(each.seen) for each in members)
        await until(lambda: sum(len(each.seen) for each in members) > count + 100)

    async with asyncio.timeout(DEADLINE), AsyncExitStack() as stack:
        running: list[asyncio.Task[None]] = []
        for each in members:
            await stack.enter_async_context(each.consumer)
            running.append(asyncio.create_task(each.run()))
            await until_100_more()
        await until(lambda: all(each.seen for each in members))
        members[0].consumer.stop()
        await running[0]
        await members[0].consumer.aclose()
        await until_100_more()
        trickle.ending = True
        await producing
        await until(lambda: sum(len(each.seen) for each in members) >= trickle.sent)
        for each, task in zip(members, running, strict=True):
            each.consumer.stop()
            await task
    seen = Counter(found for each in members for found in each.seen)
    assert len(seen) == trickle.sent
    assert set(seen.values()) == {1}
    for each in members:
        assert all(
            offsets == sorted(offsets)
            for number in range(4)
            if (offsets := [at for partition, at in each.seen if partition == number])
        )


@pytest.mark.kafka_topic(partitions=1)
async def test_columns_of_transactions_headers_and_tombstones_are_those_of_the_records(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    address = kafka_broker.bootstrap_servers
    async with AIOKafkaProducer(
        bootstrap_servers=address, transactional_id=kafka_topic
    ) as producer:
        for number in range(6):
            await producer.begin_transaction()
            for key, value in ((b"k", b"%d" % number), (None, b""), (b"gone", None)):
                headers = [("from", b"%d" % number)] if number % 3 == 0 else []
                await producer.send(kafka_topic, value, key=key, headers=headers)
            await producer.flush()
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    options = {"bootstrap_servers": address, "isolation_level": "read_committed"}
    async with TopicReader(kafka_topic, **options) as reader:  # type: ignore[arg-type]
        expected = [row async for batch in reader for row in rows(batch.records)]
    async with TopicReader(kafka_topic, **options) as reader:  # type: ignore[arg-type]
        found = [row async for batch in reader.arrow_batches() for row in batch.to_pylist()]
    assert len(expected) == 9
    assert found == expected


@pytest.mark.kafka_topic(partitions=1)
async def test_an_unreadable_record_is_raised_after_the_rows_before_it(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    address = kafka_broker.bootstrap_servers
    spoiled = raw_batch(
        record(0, key=b"a"), record(1, headers=[(b"\xff", b"")]), record(2, key=b"b")
    )
    await send_raw(address, kafka_topic, raw_batch(record(0, key=b"first")), spoiled)
    async with Consumer(
        kafka_topic,
        bootstrap_servers=address,
        group_id=kafka_topic,
        auto_offset_reset="earliest",
    ) as consumer:
        batches = consumer.arrow_batches()
        keys: list[bytes] = []
        while len(keys) < 2:
            keys += (await anext(batches)).records.column("key").to_pylist()
        assert keys == [b"first", b"a"]
        with pytest.raises(UnreadableRecordError) as caught:
            await anext(batches)
        consumer.seek(TopicPartition(kafka_topic, 0), caught.value.next_offset)
        assert (await anext(batches)).records.column("key").to_pylist() == [b"b"]


@pytest.mark.kafka_topic(partitions=2)
async def test_a_bounded_read_gives_arrow_batches_up_to_the_end_and_no_further(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    address = kafka_broker.bootstrap_servers
    async with Producer(bootstrap_servers=address) as producer:
        await asyncio.gather(
            *(producer.publish(kafka_topic, b"%d" % n, key=b"%d" % n) for n in range(500))
        )
        async with TopicReader(kafka_topic, bootstrap_servers=address) as reader:
            await producer.publish(kafka_topic, b"later", key=b"later")
            values: list[bytes] = []
            async for batch in reader.arrow_batches(["value", "partition"], max_records=100):
                assert 0 < batch.num_rows <= 100
                values += batch.column("value").to_pylist()
    assert sorted(values) == sorted(b"%d" % n for n in range(500))
