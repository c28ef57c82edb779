"""Record batches as Arrow columns, with no object for any record. Content is copied once."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from asyncrevoke.ranges.record_fields import fields_of
from asyncrevoke.spark.arrow import pa
from asyncrevoke.spark.reading.record_columns import ARROW_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from asyncrevoke.ranges.record_fields import Buffer, Fields, Joined, Places
    from asyncrevoke.spark.arrow import Array, ArrowRecordBatch, Schema
    from asyncrevoke.spark.reading.offsets import OffsetRange

_MILLISECONDS = pa.timestamp("ms", tz="UTC")


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
            # Safely: what has no place among microseconds is an error.
            "timestamp": lambda _, fields: (
                pa.array(fields.timestamp).cast(_MILLISECONDS).cast(ARROW_TYPES["timestamp"])
            ),
            "timestamp_type": lambda _, fields: pa.array(fields.timestamp_type.astype(np.int32)),
        }
        self._makers = [makers[name] for name in names]
        self._schema: Schema = pa.schema([(name, ARROW_TYPES[name]) for name in names])

    def rows(self, batches: Sequence[Buffer]) -> Iterator[ArrowRecordBatch]:
        """The columns of uncompressed batches, within the range.

        Raises CorruptRecordError for what contradicts itself.
        """
        wanted = range(self._range.start, self._range.end)
        for data, fields in fields_of(self._range.topic_partition, wanted, batches):
            columns = [make(data, fields) for make in self._makers]
            yield cast("ArrowRecordBatch", pa.RecordBatch.from_arrays(columns, schema=self._schema))


def _binary(data: Joined, places: Places) -> Array:
    """A column of these bytes: of an array that has what is between them, too, each second one."""
    count = len(places.begin)
    bounds = np.empty(2 * count, np.int32)
    bounds[::2], bounds[1::2] = places.begin, places.end
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    everything = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    chosen = np.arange(0, 2 * count, 2)
    null = places.null if places.null.any() else None
    return cast("Array", everything.take(pa.array(chosen, mask=null)))
