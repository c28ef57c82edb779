"""Makes Arrow columns of record batches. Creates no object for a record, and copies content
once.

Compiled loops read records if numba is installed, else numpy does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from asyncrevoke.client.columns.arrow import Array, ArrowRecordBatch, Schema, pa
from asyncrevoke.client.columns.record_columns import ARROW_TYPES, FRAMING_SIZE, timestamps
from asyncrevoke.client.columns.record_fields import Places, fields_of, in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from asyncrevoke.client.columns.record_fields import Buffer
    from asyncrevoke.client.model import TopicPartition

    Bytes: TypeAlias = NDArray[np.uint8]
    Reading: TypeAlias = Callable[[TopicPartition, range, Sequence[Buffer]], Iterator["Rows"]]

# About how many bytes an Arrow batch has. Larger ones do not fit into the processor's cache:
# Spark takes more processor time for their rows.
_BATCH_BYTES = 5 * 256 * 1024


class Contents(NamedTuple):
    """Keys or values: their places in ``data``. ``bounds`` are the begins and the last end of
    contents that lie in sequence."""

    data: Bytes
    places: Places
    bounds: NDArray[np.int32] | None = None

    @classmethod
    def of(cls, data: Bytes, bounds: NDArray[np.int32], null: NDArray[np.bool_]) -> Contents:
        """Contents that lie in sequence."""
        places = bounds.astype(np.int64)
        return cls(data, Places(places[:-1], places[1:], null), bounds)


class Rows(NamedTuple):
    """Records, ordered by offset. ``headers``: whether any record of their batches has some."""

    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    timestamp_type: NDArray[np.int32]
    key: Contents
    value: Contents
    headers: bool


class BatchColumns:
    """Makes the columns of a schema, for the records of one partition. ``headers`` is a column for
    records without any."""

    def __init__(self, partition: TopicPartition, names: Sequence[str]) -> None:
        self._partition = partition
        self.names = names
        topic, number = pa.scalar(partition.topic), pa.scalar(partition.partition, pa.int32())
        makers: dict[str, Callable[[Rows], Array]] = {
            "key": lambda rows: _binary(rows.key),
            "value": lambda rows: _binary(rows.value),
            "topic": lambda rows: pa.repeat(topic, len(rows.offset)),
            "partition": lambda rows: pa.repeat(number, len(rows.offset)),
            "offset": lambda rows: pa.array(rows.offset),
            "timestamp": lambda rows: timestamps(
                partition, pa.array(rows.offset), pa.array(rows.timestamp)
            ),
            "timestamp_type": lambda rows: pa.array(rows.timestamp_type),
            "headers": _no_headers,
            "schema_id": lambda rows: _schema_ids(rows.value),
            "payload": lambda rows: _binary(_payloads(rows.value)),
        }
        self._makers = [makers[name] for name in names]
        self._schema: Schema = pa.schema([(name, ARROW_TYPES[name]) for name in names])
        self._read = _reading(
            keys="key" in names, values=not {"value", "schema_id", "payload"}.isdisjoint(names)
        )

    def slices(self, wanted: range, batches: Sequence[Buffer]) -> Iterator[ArrowRecordBatch]:
        """The columns of uncompressed batches, for the records with the wanted offsets, in slices
        of some size. Raises CorruptRecordError for a batch that contradicts itself."""
        for rows in self.read(wanted, batches):
            yield from _slices(self.columns(rows))

    def read(self, wanted: range, batches: Sequence[Buffer]) -> Iterator[Rows]:
        """The records with the wanted offsets, in parts. Raises CorruptRecordError for a batch that
        contradicts itself. Without numba, they are valid as long as ``batches`` are kept."""
        return self._read(self._partition, wanted, batches)

    def columns(self, rows: Rows) -> ArrowRecordBatch:
        """The columns of these records, whose content is copied unless it lies in sequence. Raises
        UnreadableRecordError for a timestamp beyond microseconds."""
        columns = [make(rows) for make in self._makers]
        return cast("ArrowRecordBatch", pa.RecordBatch.from_arrays(columns, schema=self._schema))


def _slices(batch: ArrowRecordBatch) -> Iterator[ArrowRecordBatch]:
    """The same rows, as many in each slice. Copies no content."""
    slices = max(1, -(-batch.nbytes // _BATCH_BYTES))
    step = max(1, -(-batch.num_rows // slices))
    for first in range(0, batch.num_rows, step):
        yield batch.slice(first, step)


def _reading(*, keys: bool, values: bool) -> Reading:
    """Compiled loops, if numba is installed and supports the installed numpy, else numpy."""
    try:
        from asyncrevoke.client.columns.compiled_rows import read_rows
    except ImportError:
        return _rows_of_fields
    read = partial(read_rows, keys=keys, values=values)

    def compiled(
        partition: TopicPartition, wanted: range, batches: Sequence[Buffer]
    ) -> Iterator[Rows]:
        for _, rows in in_parts(partition, wanted, batches, read):
            key, value = Contents.of(*rows.key), Contents.of(*rows.value)
            yield Rows(rows.offset, rows.timestamp, rows.timestamp_type, key, value, rows.headers)

    return compiled


def _rows_of_fields(
    partition: TopicPartition, wanted: range, batches: Sequence[Buffer]
) -> Iterator[Rows]:
    for data, fields in fields_of(partition, wanted, batches):
        content = np.frombuffer(data, np.uint8)
        key, value = Contents(content, fields.key), Contents(content, fields.value)
        kinds = fields.timestamp_type.astype(np.int32)
        yield Rows(fields.offset, fields.timestamp, kinds, key, value, fields.headers)


def _schema_ids(values: Contents) -> Array:
    ids, framed = _framing(values)
    return cast("Array", pa.array(ids.astype(np.int32), mask=~framed))


def _payloads(values: Contents) -> Contents:
    _, framed = _framing(values)
    begin, end, _ = values.places
    return Contents(values.data, Places(begin + np.where(framed, FRAMING_SIZE, 0), end, ~framed))


def _framing(values: Contents) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The schema ids, and which values have one. See ``registry_framing``."""
    content, (begin, end, null) = values.data, values.places
    framed = ~null & (end - begin >= FRAMING_SIZE)
    # An unframed value may lie at the end of the data: read at 0 instead.
    begin = np.where(framed, begin, 0)
    if framed.any():
        framed &= (content[begin] == 0) & (content[begin + 1] < 0x80)
    ids = np.zeros(len(begin), np.int64)
    for at in range(1, FRAMING_SIZE if framed.any() else 0):
        ids = ids << 8 | content[begin + at]
    return ids, framed


def _no_headers(rows: Rows) -> Array:
    ends = pa.array(np.zeros(len(rows.offset) + 1, np.int32))
    kind = cast("Any", ARROW_TYPES["headers"])
    return cast("Array", pa.ListArray.from_arrays(ends, pa.array([], kind.value_type), type=kind))


def _binary(contents: Contents) -> Array:
    """A column of these contents."""
    data, places, bounds = contents
    if bounds is not None:
        valid = np.packbits(~places.null, bitorder="little") if places.null.any() else None
        buffers = [
            content if content is None else pa.py_buffer(content)
            for content in (valid, bounds, data)
        ]
        return cast("Array", pa.Array.from_buffers(pa.binary(), len(places.begin), buffers))
    # Taken from an array whose elements are, in turn, a place and the gap after it.
    count = len(places.begin)
    gaps = np.empty(2 * count, np.int32)
    gaps[::2], gaps[1::2] = places.begin, places.end
    buffers = [None, pa.py_buffer(gaps), pa.py_buffer(data)]
    everything = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    chosen = np.arange(0, 2 * count, 2)
    null = places.null if places.null.any() else None
    return cast("Array", everything.take(pa.array(chosen, mask=null)))
