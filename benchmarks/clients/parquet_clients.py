"""The loops that are compared: each stores the records of a topic as Parquet.

Each imports its client only when it is used.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from asyncrevoke.client.columns.arrow import pa, pc

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch
    from benchmarks.clients.raw_clients import Client, Log, Meter

COLUMNS = ("key", "value", "partition", "offset", "timestamp")
ROWS = 65_536
FIELDS = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("currency", pa.string()),
        ("items", pa.int32()),
        ("paid", pa.bool_()),
        ("country", pa.string()),
        ("at", pa.string()),
    ]
)


def json_value(number: int) -> bytes:
    """A value of eight fields; all have the same size."""
    return (
        b'{"id":%d,"customer":"customer-%05d","amount":%d.25,"currency":"EUR","items":%d,'
        b'"paid":true,"country":"DE","at":"2026-01-02T03:04:05Z"}'
        % (10**9 + number, number % 10**5, 100 + number % 900, 1 + number % 9)
    )


class Store(Protocol):
    """Stores the columns of ``COLUMNS``."""

    def __call__(self, batch: ArrowRecordBatch, /) -> None:
        """Store a batch."""
        ...


@contextmanager
def _parquet(*, json: bool) -> Generator[Store]:
    from importlib import import_module

    parquet: Any = import_module("pyarrow.parquet")
    decode = _decoder() if json else None
    with tempfile.TemporaryDirectory() as folder:
        writer: Any = None

        def store(batch: ArrowRecordBatch) -> None:
            nonlocal writer
            table: Any = batch if decode is None else decode(batch)
            if writer is None:
                file = Path(folder, "records.parquet")
                writer = parquet.ParquetWriter(file, table.schema, compression="zstd")
            writer.write_batch(table)

        yield store
        writer.close()


def _decoder() -> Callable[[ArrowRecordBatch], ArrowRecordBatch]:
    from asyncrevoke import ArrowJson

    decoder = ArrowJson(FIELDS)

    def decode(batch: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
        columns = decoder.decode(batch.column("value")).columns.flatten()
        names = [*FIELDS.names, "partition", "offset"]
        kept = [batch.column("partition"), batch.column("offset")]
        return pa.RecordBatch.from_arrays([*columns, *kept], names=names)

    return decode


def _size(batch: ArrowRecordBatch) -> int:
    size: int = pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
    return size


async def _arrow(log: Log, meter: Meter, *, json: bool) -> None:
    from asyncrevoke import Consumer

    consumer = Consumer(log.topic, bootstrap_servers=log.bootstrap, group_id=log.group)
    with _parquet(json=json) as store:
        async with consumer:
            async for batch in consumer.arrow_batches(COLUMNS, ROWS, max_wait=0.5):
                if batch.records.num_rows:
                    store(batch.records)
                    if meter.add(batch.records.num_rows, _size(batch.records)):
                        consumer.stop()


async def _records(log: Log, meter: Meter, *, json: bool) -> None:
    from asyncrevoke import Consumer, Record
    from asyncrevoke.client.columns.record_columns import RecordColumns

    columns = RecordColumns(COLUMNS)
    consumer = Consumer(log.topic, bootstrap_servers=log.bootstrap, group_id=log.group)
    waiting: list[Record] = []
    with _parquet(json=json) as store:
        async with consumer:
            async for step in consumer:
                waiting.extend(step.records)
                if len(waiting) >= ROWS or meter.records + len(waiting) >= log.total:
                    batch = columns.batch(waiting)
                    store(batch)
                    waiting = []
                    if meter.add(batch.num_rows, _size(batch)):
                        consumer.stop()


async def _confluent(log: Log, meter: Meter, *, json: bool) -> None:
    from confluent_kafka import Consumer, KafkaException

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
    waiting: list[tuple[object, ...]] = []
    types = (pa.binary(), pa.binary(), pa.int32(), pa.int64(), pa.int64())
    done = False
    try:
        with _parquet(json=json) as store:
            while not done:
                for message in consumer.consume(1000, 1.0):
                    if (error := message.error()) is not None:
                        raise KafkaException(error)
                    fields = (message.key(), message.value(), message.partition())
                    waiting.append((*fields, message.offset(), message.timestamp()[1]))
                if len(waiting) >= ROWS or meter.records + len(waiting) >= log.total:
                    arrays = [
                        pa.array(column, kind)
                        for column, kind in zip(zip(*waiting, strict=True), types, strict=True)
                    ]
                    batch: ArrowRecordBatch = pa.RecordBatch.from_arrays(arrays, names=COLUMNS)
                    store(batch)
                    waiting = []
                    done = meter.add(batch.num_rows, _size(batch))
    finally:
        consumer.close()


async def arrow(log: Log, meter: Meter) -> None:
    """``consumer.arrow_batches()``."""
    await _arrow(log, meter, json=False)


async def arrow_json(log: Log, meter: Meter) -> None:
    """The same, with columns of JSON values."""
    await _arrow(log, meter, json=True)


async def records(log: Log, meter: Meter) -> None:
    """``async for batch in consumer``, and columns of the records."""
    await _records(log, meter, json=False)


async def records_json(log: Log, meter: Meter) -> None:
    """The same, with columns of JSON values."""
    await _records(log, meter, json=True)


async def confluent(log: Log, meter: Meter) -> None:
    """``Consumer.consume(1000)``, fetching far ahead, and columns of the messages."""
    await _confluent(log, meter, json=False)


async def confluent_json(log: Log, meter: Meter) -> None:
    """The same, with columns of JSON values, by the same decoder."""
    await _confluent(log, meter, json=True)


CLIENTS: dict[str, dict[str, Client]] = {
    "bytes": {
        "asyncrevoke, arrow_batches": arrow,
        "asyncrevoke, async for": records,
        "confluent Consumer, tuned": confluent,
    },
    "json": {
        "asyncrevoke, arrow_batches": arrow_json,
        "asyncrevoke, async for": records_json,
        "confluent Consumer, tuned": confluent_json,
    },
}
