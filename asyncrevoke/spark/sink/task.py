"""What a task does with the rows of its partition."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from asyncrevoke.errors import PublishError
from asyncrevoke.model import TopicPartition
from asyncrevoke.producing.record_batch import BATCH_BYTES
from asyncrevoke.spark.arrow import pa, pc
from asyncrevoke.spark.reading.worker import PythonWorker
from asyncrevoke.spark.sink.binary_column import BinaryColumn
from asyncrevoke.spark.sink.partition_choice import PartitionChoice
from asyncrevoke.spark.sink.pieces import pieces
from asyncrevoke.spark.sink.record_encoding import RejectedRow, Rows, encode_rows, headers_size
from asyncrevoke.spark.sink.topic_writer import EncodedBatch, TopicWriter, sink_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from asyncrevoke.producing.queueing.result_topic import TopicPartitions
    from asyncrevoke.spark.arrow import ArrowRecordBatch, StructListArray
    from asyncrevoke.spark.sink.binary_column import Numbers
    from asyncrevoke.spark.sink.options import SinkOptions

# Each costs memory and requests for metadata.
MOST_TOPICS: Final = 1000
# What a record takes besides its key, value and headers, at most.
_OVERHEAD: Final = 32
_MILLISECOND: Final = 1000


def write_rows(options: SinkOptions, task: str, batches: Iterable[ArrowRecordBatch]) -> int:
    """Write all rows, and return their number when all are acknowledged.

    ``task`` names the task in errors. Raises SinkError. Rows that were acknowledged before an
    error stay in their topics. The event loop sends while this thread encodes the next rows; at
    most the memory of the producer and two pieces are kept.
    """
    worker = PythonWorker.current()
    writer = TopicWriter(options.config(), task)
    encoder = RowEncoder(options.topic, task)
    worker.do(writer.__aenter__())
    try:
        for piece in pieces(batches):
            for topic, rows, numbers in encoder.by_topic(piece):
                known = worker.do(writer.partitions(topic, int(numbers[0])))
                worker.do(writer.queue(encoder.encode(topic, known, rows, numbers)))
        worker.do(writer.finish())
    finally:
        worker.do(writer.__aexit__())
    return encoder.rows


class RowEncoder:
    """Makes batches of rows, which are numbered from 0 in the order of the task."""

    def __init__(self, topic: str | None, task: str) -> None:
        self._topic = topic
        self._task = task
        self._choices: dict[str, PartitionChoice] = {}
        self.rows = 0

    def by_topic(self, piece: ArrowRecordBatch) -> Iterator[tuple[str, ArrowRecordBatch, Numbers]]:
        """The rows for each topic, and their numbers."""
        numbers = np.arange(self.rows, self.rows + piece.num_rows)
        self.rows += piece.num_rows
        if self._topic is not None:
            yield self._topic, piece, numbers
            return
        column = pc.dictionary_encode(piece.column("topic"))
        if column.null_count:
            row = numbers[pc.index(pc.is_null(column), True).as_py()]
            raise sink_error(self._task, row, ValueError("its topic is null"))
        if len(column.dictionary) == 1:
            yield column.dictionary[0].as_py(), piece, numbers
            return
        indices = column.indices.to_numpy()
        for index, topic in enumerate(column.dictionary.to_pylist()):
            chosen = np.flatnonzero(indices == index)
            yield topic, piece.take(pa.array(chosen)), numbers[chosen]

    def encode(
        self, topic: str, known: TopicPartitions, rows: ArrowRecordBatch, numbers: Numbers
    ) -> list[EncodedBatch]:
        """Batches of these rows by partition, in which their order stays. Raises SinkError."""
        choice = self._choices.get(topic)
        if choice is None:
            if len(self._choices) >= MOST_TOPICS:
                raise sink_error(
                    self._task,
                    numbers[0],
                    PublishError(topic, f"a task writes to at most {MOST_TOPICS} topics"),
                )
            choice = self._choices[topic] = PartitionChoice()
        try:
            return list(_batches(topic, known, rows, numbers, choice))
        except RejectedRow as error:
            raise sink_error(
                self._task, numbers[error.row], PublishError(topic, error.reason)
            ) from error


def _batches(
    topic: str,
    known: TopicPartitions,
    rows: ArrowRecordBatch,
    numbers: Numbers,
    choice: PartitionChoice,
) -> Iterator[EncodedBatch]:
    names = rows.schema.names
    key = _binary(rows, "key")
    sizes = _OVERHEAD + key.length + _binary(rows, "value").length
    if (headers := _headers(rows)) is not None:
        sizes += headers_size(headers)
    timestamps = _timestamps(rows)
    column = rows.column("partition") if "partition" in names else None
    partitions = choice.of(key, sizes, column, known)
    narrow = np.int16 if known.count <= 2**15 else np.int64
    order = np.argsort(partitions.astype(narrow), kind="stable")
    partitions, sizes, numbers = partitions[order], sizes[order], numbers[order]
    starts = _starts(partitions, sizes)
    ordered = rows.take(pa.array(order))
    fields = Rows(
        _binary(ordered, "key"),
        _binary(ordered, "value"),
        timestamps[order],
        _headers(ordered),
    )
    try:
        encoded = encode_rows(fields, starts)
    except RejectedRow as error:
        raise RejectedRow(int(order[error.row]), error.reason) from error
    ends = np.append(starts[1:], len(order))
    for records, begin, end in zip(encoded, starts.tolist(), ends.tolist(), strict=True):
        partition = TopicPartition(topic, int(partitions[begin]))
        yield EncodedBatch(partition, records, numbers[begin:end])


def _starts(partitions: Numbers, sizes: Numbers) -> Numbers:
    """The rows at which batches begin: of each partition one for each BATCH_BYTES."""
    before = np.cumsum(sizes) - sizes
    changes = np.flatnonzero(np.diff(partitions, prepend=-1))
    within = before - before[changes].repeat(np.diff(changes, append=len(partitions)))
    begins = np.diff(within // BATCH_BYTES, prepend=-1) != 0
    begins[changes] = True
    return np.flatnonzero(begins)


def _binary(rows: ArrowRecordBatch, name: str) -> BinaryColumn:
    if name not in rows.schema.names:
        return BinaryColumn.of(pa.nulls(rows.num_rows, pa.binary()))
    return BinaryColumn.of(rows.column(name))


def _headers(rows: ArrowRecordBatch) -> StructListArray | None:
    if "headers" not in rows.schema.names:
        return None
    return cast("StructListArray", rows.column("headers"))


def _timestamps(rows: ArrowRecordBatch) -> Numbers:
    """In milliseconds since the epoch; the present time for rows that have none."""
    now = int(time.time() * _MILLISECOND)
    if "timestamp" not in rows.schema.names:
        return np.full(rows.num_rows, now)
    micros = pc.cast(rows.column("timestamp"), pa.timestamp("us", tz="UTC")).cast(pa.int64())
    given = micros.fill_null(now * _MILLISECOND).to_numpy().astype(np.int64) // _MILLISECOND
    if (early := np.flatnonzero(given < 0)).size:
        raise RejectedRow(
            int(early[0]), "its timestamp is before 1970, which Kafka has no number for"
        )
    return cast("Numbers", given)
