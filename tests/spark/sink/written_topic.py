"""A topic that a sink writes to, and what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import AIOKafkaConsumer

from asyncrevoke.client.columns.arrow import pa
from asyncrevoke.spark.sink.options import SinkOptions
from asyncrevoke.spark.sink.task import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.broker import RunningBroker

TASK = "partition 0 of the DataFrame"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIME = pa.timestamp("us", tz="UTC")


class Found(NamedTuple):
    """A record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]


async def read_topic(broker: RunningBroker, topic: str) -> list[Found]:
    """All records, by partition and offset."""
    options: Any = broker.client_options()
    consumer: Any = AIOKafkaConsumer(topic, **options, auto_offset_reset="earliest")
    found: list[Found] = []
    async with consumer:
        ends = await consumer.end_offsets(list(consumer.assignment()))
        while any([await consumer.position(each) < end for each, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += [
                    Found(
                        record.partition,
                        record.offset,
                        record.key,
                        record.value,
                        record.timestamp,
                        record.headers,
                    )
                    for record in records
                ]
    return sorted(found, key=lambda candidate: candidate[:2])


def write(broker: RunningBroker, topic: str | None, batches: Iterable[Any], **options: str) -> int:
    """Write Arrow batches as a task does."""
    given = {"bootstrap_servers": broker.bootstrap_servers, **options}
    if topic is not None:
        given["topic"] = topic
    return write_rows(SinkOptions.of(given), TASK, batches)


def values(*given: bytes | str) -> Any:
    """A batch that has values alone."""
    return pa.RecordBatch.from_pydict({"value": list(given)})
