"""Makes Arrow columns of records. Builds the requested columns only."""

from __future__ import annotations

import struct
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from asyncrevoke.client.columns.arrow import Array, ArrowRecordBatch, DataType, Schema, pa, pc
from asyncrevoke.client.errors import UnreadableRecordError
from asyncrevoke.client.model import Record, TopicPartition, UnreadableRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Records = Sequence[Record]
    Column = Callable[[Records], Array]

FRAMING_SIZE: Final = 5
"""Bytes before the payload."""
_FRAMING: Final = struct.Struct(">xi")


class FramedValue(NamedTuple):
    """A value with the framing that the serializers of a schema registry write: a zero byte, the
    schema id in four bytes (big-endian), and the payload. Both are None for a value without it."""

    schema_id: int | None
    payload: bytes | None


def framed_value(value: bytes | None) -> FramedValue:
    """The schema id and the payload of a value. A negative id is not framing."""
    if value is None or len(value) < FRAMING_SIZE or value[0] != 0:
        return FramedValue(None, None)
    (schema_id,) = _FRAMING.unpack_from(value)
    if schema_id < 0:
        return FramedValue(None, None)
    return FramedValue(schema_id, value[FRAMING_SIZE:])


_HEADER: Any = pa.struct([("key", pa.string()), ("value", pa.binary())])
_UNREADABLE: DataType = pa.struct([("next_offset", pa.int64()), ("reason", pa.string())])


def _headers(records: Records) -> Array:
    all_headers = [record.headers for record in records]
    offsets = [0]
    for headers in all_headers:
        offsets.append(offsets[-1] + len(headers))
    flat = list(chain.from_iterable(all_headers))
    entries = pa.StructArray.from_arrays(
        [
            pa.array([key for key, _ in flat], pa.string()),
            pa.array([value for _, value in flat], pa.binary()),
        ],
        fields=list(_HEADER),
    )
    return cast("Array", pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries))


def _unreadable(records: Records) -> Array:
    last = records[-1]
    if not isinstance(last, UnreadableRecord):
        return cast("Array", pa.nulls(len(records), _UNREADABLE))
    why = {"next_offset": last.next_offset, "reason": last.detail}
    return cast("Array", pa.array([None] * (len(records) - 1) + [why], _UNREADABLE))


_MILLISECONDS: DataType = pa.timestamp("ms", tz="UTC")
_MICROSECONDS: DataType = pa.timestamp("us", tz="UTC")
# The largest time that microseconds since the epoch can hold, in milliseconds.
_LARGEST = (2**63 - 1) // 1000


def timestamps(partition: TopicPartition, offset: Array, milliseconds: Array) -> Array:
    """Timestamps of records, in microseconds. Raises UnreadableRecordError for the first record
    whose timestamp is beyond those."""
    try:
        return cast("Array", pc.cast(pc.cast(milliseconds, _MILLISECONDS), _MICROSECONDS))
    except pa.ArrowInvalid as error:
        given = cast("list[int]", milliseconds.to_pylist())
        row = next(row for row, given_item in enumerate(given) if not fits_microseconds(given_item))
        at: int = offset.to_pylist()[row]
        why = f"{misfit(given[row])}: leave out the column timestamp"
        raise UnreadableRecordError(partition, at, at + 1, why) from error


def fits_microseconds(milliseconds: int) -> bool:
    """Whether a timestamp column can have this time."""
    return -_LARGEST <= milliseconds <= _LARGEST


def misfit(milliseconds: int) -> str:
    """Why a timestamp column cannot have this time."""
    return (
        f"its timestamp {milliseconds} is beyond the largest that has microseconds in Arrow, "
        f"{_LARGEST} milliseconds since the epoch"
    )


def _timestamps(records: Records) -> Array:
    return timestamps(
        records[0].topic_partition,
        pa.array([record.offset for record in records], pa.int64()),
        pa.array([record.timestamp for record in records], pa.int64()),
    )


def _timestamps_or_null(records: Records) -> Array:
    given = [
        record.timestamp if fits_microseconds(record.timestamp) else None for record in records
    ]
    times = pc.cast(pa.array(given, pa.int64()), _MILLISECONDS)
    return cast("Array", pc.cast(times, _MICROSECONDS))


def _unreadable_or_beyond(records: Records) -> Array:
    """As the column ``unreadable``, also of records whose timestamp has no microseconds."""
    last = records[-1]
    why: list[dict[str, object] | None] = [
        None
        if fits_microseconds(record.timestamp)
        else {"next_offset": record.offset + 1, "reason": misfit(record.timestamp)}
        for record in records
    ]
    if isinstance(last, UnreadableRecord):
        why[-1] = {"next_offset": last.next_offset, "reason": last.detail}
    return cast("Array", pa.array(why, _UNREADABLE))


# Columns of records of which one has a timestamp without microseconds.
_BEYOND: dict[str, Column] = {
    "timestamp": _timestamps_or_null,
    "unreadable": _unreadable_or_beyond,
}
_COLUMNS: dict[str, tuple[DataType, Column]] = {
    "key": (pa.binary(), lambda rows: pa.array([row.key for row in rows], pa.binary())),
    "value": (pa.binary(), lambda rows: pa.array([row.value for row in rows], pa.binary())),
    "topic": (pa.string(), lambda rows: pa.repeat(pa.scalar(rows[0].topic), len(rows))),
    "partition": (
        pa.int32(),
        lambda rows: pa.repeat(pa.scalar(rows[0].partition, pa.int32()), len(rows)),
    ),
    "offset": (pa.int64(), lambda rows: pa.array([row.offset for row in rows], pa.int64())),
    "timestamp": (_MICROSECONDS, _timestamps),
    "timestamp_type": (
        pa.int32(),
        lambda rows: pa.array([row.timestamp_type for row in rows], pa.int32()),
    ),
    "headers": (pa.list_(_HEADER), _headers),
    "unreadable": (_UNREADABLE, _unreadable),
    "schema_id": (
        pa.int32(),
        lambda rows: pa.array([framed_value(row.value).schema_id for row in rows], pa.int32()),
    ),
    "payload": (
        pa.binary(),
        lambda rows: pa.array([framed_value(row.value).payload for row in rows], pa.binary()),
    ),
}


ARROW_TYPES = {name: kind for name, (kind, _) in _COLUMNS.items()}


class RecordColumns:
    """Builds batches with the columns of a schema."""

    def __init__(self, names: Sequence[str]) -> None:
        self._makers = [_COLUMNS[name][1] for name in names]
        # Used if a timestamp is an error, and the column unreadable can have it.
        self._beyond = (
            [_BEYOND.get(name, _COLUMNS[name][1]) for name in names]
            if "unreadable" in names
            else None
        )
        self._schema: Schema = pa.schema([(name, _COLUMNS[name][0]) for name in names])

    def batch(self, records: Records) -> ArrowRecordBatch:
        """The columns of one or more records of one partition. Only the last may be unreadable.

        Raises UnreadableRecordError for a timestamp beyond microseconds; with the column
        ``unreadable``, the timestamp is null instead.
        """
        try:
            columns = [make(records) for make in self._makers]
        except UnreadableRecordError:
            if self._beyond is None:
                raise
            columns = [make(records) for make in self._beyond]
        return cast("ArrowRecordBatch", pa.RecordBatch.from_arrays(columns, schema=self._schema))
