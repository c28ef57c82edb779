"""Topics whose offsets are all records, and those that only look so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from spark.real_topics import ended_ranges

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.spark.reading.dense import check_dense, dense_offsets
from asyncrevoke.spark.reading.offsets import OffsetRange, resolve_ranges

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = pytest.mark.broker


def fill(broker: RunningBroker, topic: str, **options: Any) -> None:
    async def produce() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options)
        async with producer:
            if options:
                await producer.begin_transaction()
            for n in range(20):
                await producer.send_and_wait(topic, b"%d" % n, partition=n % 2)
            if options:
                await producer.commit_transaction()

    asyncio.run(produce())


@pytest.mark.kafka_topic(partitions=2)
def test_a_topic_without_gaps_is_dense(kafka_broker: RunningBroker, kafka_topic: str) -> None:
    fill(kafka_broker, kafka_topic)
    address = kafka_broker.bootstrap_servers
    check_dense(address, resolve_ranges(address, kafka_topic))
    check_dense(address, [OffsetRange(kafka_topic, 0, 10, 10)])


@pytest.mark.kafka_topic(partitions=2)
def test_gaps_of_transactions_are_reported(kafka_broker: RunningBroker, kafka_topic: str) -> None:
    fill(kafka_broker, kafka_topic, transactional_id=kafka_topic)
    address = kafka_broker.bootstrap_servers
    with pytest.raises(ConfigError, match=r"-0 has no record at offset 10, .* read the topic inst"):
        check_dense(address, ended_ranges(address, kafka_topic, 11, 11))


@pytest.mark.kafka_topic(partitions=2, config={"cleanup.policy": "compact"})
def test_a_compacted_topic_is_rejected(kafka_broker: RunningBroker, kafka_topic: str) -> None:
    address = kafka_broker.bootstrap_servers
    with pytest.raises(ConfigError, match=r"is compacted \(cleanup.policy=compact\).*read the"):
        check_dense(address, resolve_ranges(address, kafka_topic))


@pytest.mark.slow
@pytest.mark.kafka_topic(partitions=2)
def test_its_offsets_are_rows_without_reading_it(
    spark: Any, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    fill(kafka_broker, kafka_topic)
    address = kafka_broker.bootstrap_servers
    rows = dense_offsets(spark, address, resolve_ranges(address, kafka_topic, start=4)).collect()
    assert [tuple(row) for row in rows] == [
        (kafka_topic, partition, offset) for partition in (0, 1) for offset in range(4, 10)
    ]
