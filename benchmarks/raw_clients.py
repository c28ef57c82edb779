"""The loops that are compared: each reads records and looks at every value, and nothing else.

Each imports its client only when it is used.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from benchmarks.aiokafka_types import Reader


class Log(NamedTuple):
    """What is to be read."""

    bootstrap: str
    topic: str
    group: str
    total: int


class Rates(NamedTuple):
    """Records per second of the clock, and per second that the process was on a core.

    The second one says what a client costs, also on a machine that is busy with other things.
    """

    clock: float
    cpu: float


class Meter:
    """Counts records and bytes; the clock starts when the first batch is there."""

    def __init__(self, count: int) -> None:
        self.records = 0
        self.size = 0
        self._count = count
        self._first_batch = 0
        self._start = self._end = (0.0, 0.0)

    def add(self, records: int, size: int) -> bool:
        """A batch has been looked at; True if that was the last one."""
        self.records += records
        self.size += size
        finished = self.records >= self._count
        if not self._first_batch or finished:
            # Only then: that is a call of the system, and clients differ in how large batches are.
            now = (time.perf_counter(), time.process_time())
            if not self._first_batch:
                self._first_batch = records
                self._start = now
            self._end = now
        return finished

    def rates(self) -> Rates:
        """Records per second after the first batch."""
        records = self.records - self._first_batch
        clock, cpu = (
            later - earlier for earlier, later in zip(self._start, self._end, strict=True)
        )
        return Rates(records / clock, records / cpu)


class Client(Protocol):
    """Reads ``log.total`` records as the only member of a new group, with default settings."""

    async def __call__(self, log: Log, meter: Meter) -> None:
        """Add each batch to ``meter``, and end after the last one."""
        ...


async def asyncrevoke(log: Log, meter: Meter) -> None:
    """``async for batch in consumer``."""
    from asyncrevoke import Consumer  # noqa: PLC0415

    async with Consumer(log.topic, bootstrap_servers=log.bootstrap, group_id=log.group) as consumer:
        async for batch in consumer:
            size = 0
            for record in batch.records:
                size += len(record.value or b"")
            if len(batch.records) and meter.add(len(batch.records), size):
                consumer.stop()


async def aiokafka(log: Log, meter: Meter) -> None:
    """``getmany()``."""
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415

    client = AIOKafkaConsumer(
        log.topic,
        bootstrap_servers=log.bootstrap,
        group_id=log.group,
        auto_offset_reset="earliest",
    )
    async with cast("Reader", client) as consumer:
        done = False
        while not done:
            batch = await consumer.getmany(timeout_ms=1000)
            count = size = 0
            for records in batch.values():
                count += len(records)
                for record in records:
                    size += len(record.value)
            done = count > 0 and meter.add(count, size)


async def confluent(log: Log, meter: Meter) -> None:
    """``AIOConsumer.consume(1000)``."""
    from confluent_kafka import KafkaException  # noqa: PLC0415
    from confluent_kafka.aio import AIOConsumer  # noqa: PLC0415

    settings = {
        "bootstrap.servers": log.bootstrap,
        "group.id": log.group,
        "auto.offset.reset": "earliest",
    }
    async with AIOConsumer(settings, max_workers=4) as consumer:
        await consumer.subscribe([log.topic])
        done = False
        while not done:
            messages = await consumer.consume(num_messages=1000, timeout=1.0)
            size = 0
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                size += len(message.value())
            done = len(messages) > 0 and meter.add(len(messages), size)


async def confluent_tuned(log: Log, meter: Meter) -> None:
    """``Consumer.consume(1000)``, which blocks, and settings that let it fetch far ahead."""
    from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415

    consumer = Consumer(
        {
            "bootstrap.servers": log.bootstrap,
            "group.id": log.group,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.subscribe([log.topic])
    try:
        done = False
        while not done:
            messages = consumer.consume(1000, 1.0)
            size = 0
            for message in messages:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                size += len(message.value() or b"")
            done = len(messages) > 0 and meter.add(len(messages), size)
    finally:
        consumer.close()


CLIENTS: dict[str, Client] = {
    "asyncrevoke, async for": asyncrevoke,
    "aiokafka, getmany()": aiokafka,
    "confluent AIOConsumer, consume(1000)": confluent,
    "confluent Consumer, consume(1000), tuned": confluent_tuned,
}
