"""Topics of a real broker that tests fill, delete, create again, extend and wait for."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.structs import TopicPartition

from asyncrevoke.spark.reading.offsets import resolve_ranges

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.spark.reading.offsets import OffsetRange

_DEADLINE = 30.0


def produce(
    broker: RunningBroker, topic: str, count: int, *, partition: int = 0, milliseconds: int = 1000
) -> None:
    """Write so many records to a partition, with these times between them, and the first at 0."""

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for n in range(count):
                await producer.send(
                    topic, b"%d" % n, partition=partition, timestamp_ms=milliseconds * n
                )

    asyncio.run(send())


def produce_values(broker: RunningBroker, topic: str, values: Sequence[bytes | None]) -> None:
    """Write these to partition 0."""

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for value in values:
                await producer.send_and_wait(topic, value, b"key", partition=0)

    asyncio.run(send())


def delete(broker: RunningBroker, topic: str) -> None:
    """Delete a topic."""
    _admin(broker, lambda admin: admin.delete_topics([topic]))


def create_again(broker: RunningBroker, topic: str, partitions: int) -> None:
    """Delete a topic and create another one of its name."""
    delete(broker, topic)
    broker.create_topic(topic, partitions)


def set_partitions(broker: RunningBroker, topic: str, count: int) -> None:
    """Add partitions until there are so many."""
    _admin(broker, lambda admin: admin.create_partitions({topic: NewPartitions(count)}))


def delete_records(broker: RunningBroker, topic: str, partition: int, before: int) -> None:
    """Delete the records of a partition before this offset."""
    records = {TopicPartition(topic, partition): RecordsToDelete(before)}
    _admin(broker, lambda admin: admin.delete_records(records))


def _admin(broker: RunningBroker, call: Callable[[Any], Awaitable[object]]) -> None:
    async def connected() -> None:
        admin: Any = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await admin.start()
        try:
            await call(admin)
        finally:
            await admin.close()

    asyncio.run(connected())


def ended_ranges(address: str, topic: str, *ends: int) -> list[OffsetRange]:
    """The ranges of a topic, once its partitions end at these offsets: brokers write the markers of
    transactions after they have responded."""
    deadline = time.monotonic() + _DEADLINE
    while True:
        ranges = resolve_ranges(address, topic)
        if tuple(offset_range.end for offset_range in ranges) == ends:
            return ranges
        assert time.monotonic() < deadline, ranges
        time.sleep(0.05)
