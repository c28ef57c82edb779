"""Writes the rows of one task to their topics."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import numpy as np

from asyncrevoke.client.columns.arrow import Array, ArrowRecordBatch, StructListArray, pa, pc
from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.queueing.partitioner import murmur2
from asyncrevoke.client.producing.record_batch import BATCH_BYTES
from asyncrevoke.spark.reading.worker import PythonWorker
from asyncrevoke.spark.sink.record_encoding import (
    BinaryColumn,
    Numbers,
    RejectedRow,
    Rows,
    encode_rows,
    headers_size,
)
from asyncrevoke.spark.sink.topic_writer import EncodedBatch, TopicWriter, sink_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from asyncrevoke.client.producing.queueing.result_topics import OutputPartitions
    from asyncrevoke.spark.sink.options import SinkOptions

    Hashes: TypeAlias = NDArray[np.uint32]

_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)
# Longer keys are hashed one by one, because the loop below runs once for each word of the longest
# key.
_LONG: Final = 256


def murmur2_of(keys: BinaryColumn) -> Hashes:
    """The hash of each key. A null has the hash of an empty key."""
    length = keys.length.astype(np.uint32)
    hashes = _SEED ^ length
    content = keys.content
    longest = int(length.max(initial=0))
    if longest >= 4:
        # The four bytes from each position on, as numbers.
        words = np.ndarray((len(content) - 3,), "<u4", content, strides=(1,))
        for number in range(min(longest, _LONG) // 4):
            rows = np.flatnonzero(length >= 4 * number + 4)
            hashes[rows] = _mixed(hashes[rows], words[keys.begin[rows] + 4 * number])
    rest = length & np.uint32(3)
    end = keys.begin + keys.length
    for count in (3, 2, 1):
        rows = np.flatnonzero(rest >= count)
        byte = content[end[rows] - rest[rows].astype(np.int64) + count - 1].astype(np.uint32)
        hashes[rows] ^= byte << np.uint32(8 * (count - 1))
    hashes[rest > 0] *= _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    for row in np.flatnonzero(length > _LONG).tolist():
        hashes[row] = murmur2(content[keys.begin[row] : end[row]].tobytes())
    return hashes


def _mixed(hashes: Hashes, words: Hashes) -> Hashes:
    words = words * _M
    words ^= words >> np.uint32(24)
    return (hashes * _M) ^ (words * _M)


class PartitionChoice:
    """Chooses partitions of one topic, in one task. Rows without a key go to one partition until
    they fill a batch, then to the next partition that has a leader. Tasks begin at random
    partitions."""

    def __init__(self) -> None:
        self._first = random.randrange(2**31)  # noqa: S311 - not a secret
        self._without_key = 0

    def of(
        self, key: BinaryColumn, sizes: Numbers, column: Array | None, known: OutputPartitions
    ) -> Numbers:
        """The partition of each row. ``sizes`` are about the bytes of its record. Raises
        RejectedRow for a partition that does not exist."""
        chosen = (murmur2_of(key) & np.uint32(0x7FFFFFFF)).astype(np.int64) % known.count
        without_key = np.flatnonzero(key.null)
        if without_key.size:
            filled = self._without_key + np.cumsum(sizes[without_key])
            self._without_key = int(filled[-1])
            led = np.array(known.led or range(known.count))
            chosen[without_key] = led[(self._first + filled // BATCH_BYTES) % len(led)]
        if column is not None:
            given = column.fill_null(-1).to_numpy().astype(np.int64)
            named = column.is_valid().to_numpy(zero_copy_only=False)
            wrong = np.flatnonzero(named & ((given < 0) | (given >= known.count)))
            if wrong.size:
                row = int(wrong[0])
                raise RejectedRow(row, f"there is no partition {given[row]} of {known.count}")
            chosen = np.where(named, given, chosen)
        return chosen


TARGET_BYTES: Final = 4 * 1024 * 1024


def resized(
    batches: Iterable[ArrowRecordBatch], most: int = TARGET_BYTES
) -> Iterator[ArrowRecordBatch]:
    """The same rows in the same order: joins small batches and splits large ones.

    A resulting batch has fewer than twice ``most`` bytes, or a single row.
    """
    waiting: list[ArrowRecordBatch] = []
    size = 0
    for batch in batches:
        for part in _split(batch, most):
            waiting.append(part)
            size += part.nbytes
            if size >= most:
                yield _joined(waiting)
                waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _split(batch: ArrowRecordBatch, most: int) -> Iterator[ArrowRecordBatch]:
    """The same rows in slices of at most ``most`` bytes, or of a single row. Copies no content."""
    rows = batch.num_rows
    if batch.nbytes <= most or rows < 2:
        if rows:
            yield batch
        return
    yield from _split(batch.slice(0, rows // 2), most)
    yield from _split(batch.slice(rows // 2), most)


def _joined(batches: list[ArrowRecordBatch]) -> ArrowRecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return cast("ArrowRecordBatch", joined)


# Each topic costs memory and metadata requests.
MOST_TOPICS: Final = 1000
# The most bytes of a record besides its key, value and headers.
_OVERHEAD: Final = 32
_MILLISECOND: Final = 1000


def write_rows(options: SinkOptions, task: str, batches: Iterable[ArrowRecordBatch]) -> int:
    """Write all rows. Returns their number when all are acknowledged.

    ``task`` names the task in errors. Raises SinkError; rows that were acknowledged before stay in
    their topics. The event loop sends while this thread encodes the next rows. The task keeps at
    most the buffer memory of the producer and two batches of rows.
    """
    worker = PythonWorker.current()
    writer = TopicWriter(options.config(), task)
    encoder = RowEncoder(options.topic, task)
    worker.run(writer.__aenter__())
    try:
        for batch in resized(batches):
            for topic, rows, numbers in encoder.by_topic(batch):
                known = worker.run(writer.partitions(topic, int(numbers[0])))
                worker.run(writer.queue(encoder.encode(topic, known, rows, numbers)))
        worker.run(writer.finish())
    finally:
        worker.run(writer.__aexit__())
    return encoder.rows


class RowEncoder:
    """Encodes rows as batches. Rows are numbered from 0 in the order of the task."""

    def __init__(self, topic: str | None, task: str) -> None:
        self._topic = topic
        self._task = task
        self._choices: dict[str, PartitionChoice] = {}
        self.rows = 0

    def by_topic(self, batch: ArrowRecordBatch) -> Iterator[tuple[str, ArrowRecordBatch, Numbers]]:
        """The rows of each topic, and their numbers."""
        numbers = np.arange(self.rows, self.rows + batch.num_rows)
        self.rows += batch.num_rows
        if self._topic is not None:
            yield self._topic, batch, numbers
            return
        column = pc.dictionary_encode(batch.column("topic"))
        if column.null_count:
            row = numbers[pc.index(pc.is_null(column), True).as_py()]
            raise sink_error(self._task, row, ValueError("its topic is null"))
        if len(column.dictionary) == 1:
            yield column.dictionary[0].as_py(), batch, numbers
            return
        indices = column.indices.to_numpy()
        for index, topic in enumerate(column.dictionary.to_pylist()):
            chosen = np.flatnonzero(indices == index)
            yield topic, batch.take(pa.array(chosen)), numbers[chosen]

    def encode(
        self, topic: str, known: OutputPartitions, rows: ArrowRecordBatch, numbers: Numbers
    ) -> list[EncodedBatch]:
        """Batches of these rows by partition. Rows of a partition stay in order. Raises
        SinkError."""
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
    known: OutputPartitions,
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
    """The row indices at which batches begin: each partition, and within it each BATCH_BYTES."""
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
    """Milliseconds since the epoch; the current time for rows without a timestamp."""
    now = int(time.time() * _MILLISECOND)
    if "timestamp" not in rows.schema.names:
        return np.full(rows.num_rows, now)
    micros = pc.cast(rows.column("timestamp"), pa.timestamp("us", tz="UTC")).cast(pa.int64())
    given = micros.fill_null(now * _MILLISECOND).to_numpy().astype(np.int64) // _MILLISECOND
    if (early := np.flatnonzero(given < 0)).size:
        raise RejectedRow(int(early[0]), "its timestamp is before 1970, which Kafka cannot store")
    return cast("Numbers", given)
