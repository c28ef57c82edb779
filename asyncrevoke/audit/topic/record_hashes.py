"""Computes the hashes of a topic's records from whole batches. Creates no object for a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from asyncrevoke.journal.format.arrow import RecordBatch, pa
from asyncrevoke.journal.format.hashing import key_hashes, record_hashes, signed_key_hashes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from asyncrevoke.journal.format.arrow import Array, DataType
    from asyncrevoke.ranges.record_fields import Fields, Joined, Places

    Contents: TypeAlias = list[bytes] | list[bytes | None]
    Numbers: TypeAlias = NDArray[np.int32] | NDArray[np.int64]

RECORDS: Final = {
    "part": "INT",
    "off": "BIGINT",
    "timestamp_us": "BIGINT",
    "key_hash": "BIGINT",
    "record_hash": "BIGINT",
}
"""The columns of a table of records."""

_TYPES: Final = {"INT": pa.int32(), "BIGINT": pa.int64()}


def record_columns(partition: int, data: Joined, fields: Fields) -> RecordBatch:
    """A row of ``RECORDS`` for each of these records in ``data``."""
    keys = contents(data, fields.key)
    of_keys = key_hashes(keys)
    hashes = record_hashes(keys, contents(data, fields.value), of_keys)
    return columns(
        RECORDS,
        np.full(len(fields.offset), partition, np.int32),
        fields.offset,
        fields.timestamp * 1000,
        signed_key_hashes(keys) if of_keys is None else np.array(of_keys, np.uint64).view(np.int64),
        np.frombuffer(hashes, np.int64),
    )


def offset_columns(partition: int, fields: Fields) -> RecordBatch:
    """A row of ``RECORDS`` for each of these records, without hashes."""
    count = len(fields.offset)
    nothing = pa.nulls(count, pa.int64())
    arrays = [
        _column(_TYPES["INT"], np.full(count, partition, np.int32)),
        _column(_TYPES["BIGINT"], fields.offset),
        _column(_TYPES["BIGINT"], fields.timestamp * 1000),
        *(nothing, nothing),
    ]
    return pa.RecordBatch.from_arrays(arrays, list(RECORDS))


def contents(data: Joined, places: Places) -> Contents:
    """The keys or values at these places."""
    # Slices of bytes are bytes, which can be hashed.
    first = int(places.begin[0])
    piece = bytes(memoryview(data)[first : int(places.end[-1])])
    begins, ends = (places.begin - first).tolist(), (places.end - first).tolist()
    found = [piece[a:b] for a, b in zip(begins, ends, strict=True)]
    if not places.null.any():
        return found
    nulls = places.null.tolist()
    return [None if null else each for each, null in zip(found, nulls, strict=True)]


def columns(declared: dict[str, str], *values: Numbers | list[int | None]) -> RecordBatch:
    """Arrow columns with these names and types."""
    arrays = [_column(_TYPES[kind], v) for v, kind in zip(values, declared.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, list(declared))


def _column(kind: DataType, values: Numbers | list[int | None]) -> Array:
    if isinstance(values, list):
        return pa.array(values, kind)
    # pa.array() imports pandas if it is installed, which takes a Spark task 0.3 s.
    content = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [None, content])
