"""Lag and the end of bounded reads, while a transaction is open."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer as ConfluentProducer

from asyncrevoke import Consumer, TopicPartition, TopicReader

if TYPE_CHECKING:
    from collections.abc import Generator

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.config.consumer_options import ConsumerOptions, IsolationLevel

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(60),
    pytest.mark.kafka_topic(partitions=1),
]


@contextmanager
def open_transaction(address: str, topic: str) -> Generator[None]:
    """Inside, three records are before an open transaction, and two in it."""
    plain = ConfluentProducer({"bootstrap.servers": address})
    for number in range(3):
        plain.produce(topic, b"%d" % number)
    assert plain.flush(30) == 0
    producer = ConfluentProducer(
        {"bootstrap.servers": address, "transactional.id": topic, "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(3, 5):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0
    yield
    producer.abort_transaction(30)


@pytest.mark.parametrize(("isolation", "read"), [("read_committed", 3), ("read_uncommitted", 5)])
async def test_lag_is_zero_when_all_that_can_be_read_is_read(
    kafka_broker: RunningBroker, kafka_topic: str, isolation: IsolationLevel, read: int
) -> None:
    address, partition = kafka_broker.bootstrap_servers, TopicPartition(kafka_topic, 0)
    options: ConsumerOptions = {"bootstrap_servers": address, "isolation_level": isolation}
    with open_transaction(address, kafka_topic):
        async with Consumer(kafka_topic, **options) as consumer:
            found: list[bytes | None] = []
            while len(found) < read:
                found += [record.value for record in (await anext(consumer)).records]
            # One fetch later, when no record came.
            assert not (await consumer.poll(timeout=1.0)).records
            assert consumer.lag() == {partition: 0}
            assert consumer.highwater(partition) == 5
            assert (await consumer.end_offsets(partition))[partition] == read


@pytest.mark.parametrize("within", [False, True], ids=["to the end", "to a time within it"])
async def test_a_bounded_read_ends_before_an_open_transaction(
    kafka_broker: RunningBroker, kafka_topic: str, within: bool
) -> None:
    address, until = kafka_broker.bootstrap_servers, None
    with open_transaction(address, kafka_topic):
        if within:
            async with TopicReader(kafka_topic, bootstrap_servers=address) as everything:
                last = [record async for batch in everything for record in batch.records][-1]
            assert last.value == b"4"
            until = datetime.fromtimestamp(last.timestamp / 1000, UTC)
        reader = TopicReader(
            kafka_topic, until=until, bootstrap_servers=address, isolation_level="read_committed"
        )
        async with asyncio.timeout(20), reader:
            found = [record.value async for batch in reader for record in batch.records]
        assert found == [b"0", b"1", b"2"]
