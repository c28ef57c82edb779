"""Makes Arrow columns of record batches. Creates no object for a record, and copies content
once."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from asyncrevoke.ranges.record_fields import Places, fields_of
from asyncrevoke.spark.arrow import pa, split
from asyncrevoke.spark.reading.record_columns import ARROW_TYPES
from asyncrevoke.spark.reading.registry_framing import FRAMING_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from asyncrevoke.ranges.record_fields import Buffer, Fields, Joined
    from asyncrevoke.spark.arrow import Array, ArrowRecordBatch, Schema
    from asyncrevoke.spark.reading.offsets import OffsetRange

_MILLISECONDS = pa.timestamp("ms", tz="UTC")
# The most bytes of an Arrow batch of several rows: Spark takes more processor time for the rows of
# larger ones, which do not fit into the processor's cache.
_MOST_BYTES = 2 * 1024 * 1024


class BatchColumns:
    """Makes the columns of a schema that has no ``headers``, for the records of one range."""

    def __init__(self, wanted: OffsetRange, names: Sequence[str]) -> None:
        self._range = wanted
        topic, number = pa.scalar(wanted.topic), pa.scalar(wanted.partition, pa.int32())
        makers: dict[str, Callable[[Joined, Fields], Array]] = {
            "key": lambda data, fields: _binary(data, fields.key),
            "value": lambda data, fields: _binary(data, fields.value),
            "topic": lambda _, fields: pa.repeat(topic, len(fields.offset)),
            "partition": lambda _, fields: pa.repeat(number, len(fields.offset)),
            "offset": lambda _, fields: pa.array(fields.offset),
            # A safe cast: a timestamp that does not fit into microseconds is an error.
            "timestamp": lambda _, fields: (
                pa.array(fields.timestamp).cast(_MILLISECONDS).cast(ARROW_TYPES["timestamp"])
            ),
            "timestamp_type": lambda _, fields: pa.array(fields.timestamp_type.astype(np.int32)),
            "schema_id": lambda data, fields: _schema_ids(data, fields.value),
            "payload": lambda data, fields: _binary(data, _payloads(data, fields.value)),
        }
        self._makers = [makers[name] for name in names]
        self._schema: Schema = pa.schema([(name, ARROW_TYPES[name]) for name in names])

    def rows(self, batches: Sequence[Buffer]) -> Iterator[ArrowRecordBatch]:
        """The columns of uncompressed batches, for the records within the range. Raises
        CorruptRecordError for a batch that contradicts itself."""
        wanted = range(self._range.start, self._range.end)
        for data, fields in fields_of(self._range.topic_partition, wanted, batches):
            columns = [make(data, fields) for make in self._makers]
            yield from split(pa.RecordBatch.from_arrays(columns, schema=self._schema), _MOST_BYTES)


def _schema_ids(data: Joined, values: Places) -> Array:
    ids, framed = _framing(data, values)
    return cast("Array", pa.array(ids.astype(np.int32), mask=~framed))


def _payloads(data: Joined, values: Places) -> Places:
    _, framed = _framing(data, values)
    return Places(values.begin + np.where(framed, FRAMING_SIZE, 0), values.end, ~framed)


def _framing(data: Joined, values: Places) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The schema ids, and which values have one. See ``registry_framing``."""
    content = np.frombuffer(data, np.uint8)
    framed = ~values.null & (values.end - values.begin >= FRAMING_SIZE)
    # An unframed value may lie at the end of the data: read at 0 instead.
    begin = np.where(framed, values.begin, 0)
    framed &= (content[begin] == 0) & (content[begin + 1] < 0x80)
    ids = np.zeros(len(begin), np.int64)
    for at in range(1, FRAMING_SIZE):
        ids = ids << 8 | content[begin + at]
    return ids, framed


def _binary(data: Joined, places: Places) -> Array:
    """A column of the bytes at these places. The column is taken from an array whose elements are,
    in turn, a place and the gap after it."""
    count = len(places.begin)
    bounds = np.empty(2 * count, np.int32)
    bounds[::2], bounds[1::2] = places.begin, places.end
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    everything = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    chosen = np.arange(0, 2 * count, 2)
    null = places.null if places.null.any() else None
    return cast("Array", everything.take(pa.array(chosen, mask=null)))
