"""Makes Arrow columns of record batches. Creates no object for a record, and copies content
once.

Compiled loops read records if numba is installed, else numpy does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

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
    Reading: TypeAlias = Callable[[TopicPartition, range, Sequence[Buffer]], Iterator["_Rows"]]

# About how many bytes an Arrow batch has. Larger ones do not fit into the processor's cache:
# Spark takes more processor time for their rows.
_BATCH_BYTES = 5 * 256 * 1024


class _Contents(NamedTuple):
    """Keys or values: their places in ``data``. ``bounds`` are the begins and the last end of
    contents that lie in sequence."""

    data: Bytes
    places: Places
    bounds: NDArray[np.int32] | None = None

    @classmethod
    def of(cls, data: Bytes, bounds: NDArray[np.int32], null: NDArray[np.bool_]) -> _Contents:
        """Contents that lie in sequence."""
        places = bounds.astype(np.int64)
        return cls(data, Places(places[:-1], places[1:], null), bounds)


class _Rows(NamedTuple):
    """Records, ordered by offset."""

    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    timestamp_type: NDArray[np.int32]
    key: _Contents
    value: _Contents


class BatchColumns:
    """Makes the columns of a schema that has no ``headers``, for the records of one partition whose
    offsets are ``wanted``."""

    def __init__(self, partition: TopicPartition, wanted: range, names: Sequence[str]) -> None:
        self._partition = partition
        self._wanted = wanted
        topic, number = pa.scalar(partition.topic), pa.scalar(partition.partition, pa.int32())
        makers: dict[str, Callable[[_Rows], Array]] = {
            "key": lambda rows: _binary(rows.key),
            "value": lambda rows: _binary(rows.value),
            "topic": lambda rows: pa.repeat(topic, len(rows.offset)),
            "partition": lambda rows: pa.repeat(number, len(rows.offset)),
            "offset": lambda rows: pa.array(rows.offset),
            "timestamp": lambda rows: timestamps(
                partition, pa.array(rows.offset), pa.array(rows.timestamp)
            ),
            "timestamp_type": lambda rows: pa.array(rows.timestamp_type),
            "schema_id": lambda rows: _schema_ids(rows.value),
            "payload": lambda rows: _binary(_payloads(rows.value)),
        }
        self._makers = [makers[name] for name in names]
        self._schema: Schema = pa.schema([(name, ARROW_TYPES[name]) for name in names])
        self._read = _reading(
            keys="key" in names, values=not {"value", "schema_id", "payload"}.isdisjoint(names)
        )

    def rows(self, batches: Sequence[Buffer]) -> Iterator[ArrowRecordBatch]:
        """The columns of uncompressed batches, for the wanted records. Raises
        CorruptRecordError for a batch that contradicts itself."""
        for rows in self._read(self._partition, self._wanted, batches):
            columns = [make(rows) for make in self._makers]
            yield from _slices(pa.RecordBatch.from_arrays(columns, schema=self._schema))


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
    ) -> Iterator[_Rows]:
        for _, rows in in_parts(partition, wanted, batches, read):
            key, value = _Contents.of(*rows.key), _Contents.of(*rows.value)
            yield _Rows(rows.offset, rows.timestamp, rows.timestamp_type, key, value)

    return compiled


def _rows_of_fields(
    partition: TopicPartition, wanted: range, batches: Sequence[Buffer]
) -> Iterator[_Rows]:
    for data, fields in fields_of(partition, wanted, batches):
        content = np.frombuffer(data, np.uint8)
        key, value = _Contents(content, fields.key), _Contents(content, fields.value)
        kinds = fields.timestamp_type.astype(np.int32)
        yield _Rows(fields.offset, fields.timestamp, kinds, key, value)


def _schema_ids(values: _Contents) -> Array:
    ids, framed = _framing(values)
    return cast("Array", pa.array(ids.astype(np.int32), mask=~framed))


def _payloads(values: _Contents) -> _Contents:
    _, framed = _framing(values)
    begin, end, _ = values.places
    return _Contents(values.data, Places(begin + np.where(framed, FRAMING_SIZE, 0), end, ~framed))


def _framing(values: _Contents) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
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


def _binary(contents: _Contents) -> Array:
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
