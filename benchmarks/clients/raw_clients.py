"""The loops that are compared: each reads records and looks at every value, and nothing else.

Each imports its client only when it is used.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.client.config.consumer_options import ValueAs
    from benchmarks.clients.aiokafka_types import Reader, Received
    from benchmarks.clients.java_clients import Told


class Log(NamedTuple):
    """What is to be read, and how many records to ask for at once where that is to be said."""

    bootstrap: str
    topic: str
    group: str
    total: int
    at_once: int = 1000


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

    def report(self, told: Told) -> None:
        """A program of its own has read all of it."""
        self.records, self.size, self._first_batch = told.records, told.size, told.first
        self._start, self._end = (0.0, 0.0), (told.seconds, told.cpu)

    def rates(self) -> Rates:
        """Records per second after the first batch."""
        records = self.records - self._first_batch
        if records <= 0:
            raise ValueError("all came in the first batch: read more records")
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
    await _asyncrevoke(log, meter, "bytes")


async def asyncrevoke_views(log: Log, meter: Meter) -> None:
    """The same, with values as memoryviews."""
    await _asyncrevoke(log, meter, "view")


async def _asyncrevoke(log: Log, meter: Meter, value_as: ValueAs) -> None:
    from asyncrevoke import Consumer

    async with Consumer(
        log.topic, bootstrap_servers=log.bootstrap, group_id=log.group, value_as=value_as
    ) as consumer:
        async for batch in consumer:
            size = 0
            for record in batch.records:
                size += len(record.value or b"")
            if len(batch.records) and meter.add(len(batch.records), size):
                consumer.stop()


async def asyncrevoke_column(log: Log, meter: Meter) -> None:
    """``consumer.arrow_batches(["value"])``."""
    await _arrow(log, meter, ["value"])


async def asyncrevoke_columns(log: Log, meter: Meter) -> None:
    """All columns of ``consumer.arrow_batches()`` but headers."""
    from asyncrevoke.client.runtime.arrow.arrow_options import COLUMNS

    await _arrow(log, meter, [name for name in COLUMNS if name != "headers"])


async def asyncrevoke_columns_by_numpy(log: Log, meter: Meter) -> None:
    """The same without numba."""
    # What an import finds if a package is not installed.
    cast("dict[str, object]", sys.modules)["asyncrevoke.client.columns.compiled_rows"] = None
    await asyncrevoke_columns(log, meter)


async def _arrow(log: Log, meter: Meter, columns: Sequence[str]) -> None:
    from asyncrevoke import Consumer
    from asyncrevoke.client.columns.arrow import pc

    async with Consumer(log.topic, bootstrap_servers=log.bootstrap, group_id=log.group) as consumer:
        async for batch in consumer.arrow_batches(columns):
            count = batch.records.num_rows
            size = pc.sum(pc.binary_length(batch.records.column("value"))).as_py()
            if count and meter.add(count, size):
                consumer.stop()


async def aiokafka(log: Log, meter: Meter) -> None:
    """``getmany()``."""
    from aiokafka import AIOKafkaConsumer

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


# What lets librdkafka fetch far ahead.
_TUNED: dict[str, str | int] = {
    "queued.min.messages": 1_000_000,
    "fetch.queue.backoff.ms": 5,
}


async def confluent_aio(log: Log, meter: Meter) -> None:
    """``AIOConsumer.consume(1000)``."""
    await _confluent_aio(log, meter, {})


async def confluent_aio_tuned(log: Log, meter: Meter) -> None:
    """The same, fetching far ahead."""
    await _confluent_aio(log, meter, _TUNED)


async def _confluent_aio(log: Log, meter: Meter, settings: dict[str, str | int]) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.aio import AIOConsumer

    settings = {
        "bootstrap.servers": log.bootstrap,
        "group.id": log.group,
        "auto.offset.reset": "earliest",
        **settings,
    }
    async with AIOConsumer(settings, max_workers=4) as consumer:
        await consumer.subscribe([log.topic])
        done = False
        while not done:
            messages = await consumer.consume(num_messages=log.at_once, timeout=1.0)
            size = 0
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                size += len(message.value())
            done = len(messages) > 0 and meter.add(len(messages), size)


async def confluent(log: Log, meter: Meter) -> None:
    """``Consumer.consume(1000)``, which blocks."""
    _confluent(log, meter, {})


async def confluent_tuned(log: Log, meter: Meter) -> None:
    """The same, fetching far ahead."""
    _confluent(log, meter, _TUNED)


def _confluent(log: Log, meter: Meter, settings: dict[str, str | int]) -> None:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": log.bootstrap,
            "group.id": log.group,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.subscribe([log.topic])
    try:
        done = False
        while not done:
            messages = consumer.consume(log.at_once, 1.0)
            size = 0
            for message in messages:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                size += len(message.value() or b"")
            done = len(messages) > 0 and meter.add(len(messages), size)
    finally:
        consumer.close()


async def kafka_python(log: Log, meter: Meter) -> None:
    """``KafkaConsumer.poll()``, which blocks."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        log.topic,
        bootstrap_servers=log.bootstrap,
        group_id=log.group,
        auto_offset_reset="earliest",
    )
    try:
        done = False
        while not done:
            batch = cast("Mapping[object, list[Received]]", consumer.poll(timeout_ms=1000))
            count = size = 0
            for records in batch.values():
                count += len(records)
                for record in records:
                    size += len(record.value)
            done = count > 0 and meter.add(count, size)
    finally:
        consumer.close()


async def java(log: Log, meter: Meter) -> None:
    """The Java client's ``poll()``, in a JVM that has just started."""
    from benchmarks.clients.java_clients import kafka_class_path, run

    jars = kafka_class_path()
    meter.report(await run("ReadAll.java", jars, log.bootstrap, log.topic, log.group, log.total))


OURS = "asyncrevoke, async for"

CLIENTS: dict[str, Client] = {
    OURS: asyncrevoke,
    "asyncrevoke, views": asyncrevoke_views,
    "asyncrevoke, arrow_batches(value)": asyncrevoke_column,
    "asyncrevoke, arrow_batches(all but headers)": asyncrevoke_columns,
    "asyncrevoke, the same without numba": asyncrevoke_columns_by_numpy,
    "aiokafka, getmany()": aiokafka,
    "confluent AIOConsumer, consume(1000)": confluent_aio,
    "confluent AIOConsumer, tuned": confluent_aio_tuned,
    "confluent Consumer, consume(1000)": confluent,
    "confluent Consumer, tuned": confluent_tuned,
    "kafka-python, poll()": kafka_python,
    "Java client, poll()": java,
}
# So many times fewer records are enough for those that are that much slower.
FRACTIONS = {
    "confluent AIOConsumer, consume(1000)": 2,
    "confluent Consumer, consume(1000)": 2,
    "kafka-python, poll()": 10,
}
