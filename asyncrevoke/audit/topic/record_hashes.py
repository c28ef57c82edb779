"""Computes the hashes of a topic's records from whole batches. Creates no object for a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from asyncrevoke.audit.offsets import ALL_USED, UnusedHashes
from asyncrevoke.journal.format.arrow import Array, DataType, RecordBatch, pa
from asyncrevoke.journal.format.hashing import key_hashes, record_hashes, signed_key_hashes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from asyncrevoke.client.columns.record_fields import Fields, Joined, Places

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


def record_columns(
    partition: int, data: Joined, fields: Fields, unused: UnusedHashes = ALL_USED
) -> RecordBatch:
    """A row of ``RECORDS`` for each of these records in ``data``."""
    count = len(fields.offset)
    hashed: list[Numbers | list[int | None] | None] = [None, None]
    if not (partition in unused.of_keys and partition in unused.of_records):
        keys = contents(data, fields.key)
        of_keys = key_hashes(keys)
        hashed[0] = (
            signed_key_hashes(keys)
            if of_keys is None
            else np.array(of_keys, np.uint64).view(np.int64)
        )
        if partition not in unused.of_records:
            hashes = record_hashes(keys, contents(data, fields.value), of_keys)
            hashed[1] = np.frombuffer(hashes, np.int64)
    number = np.full(count, partition, np.int32)
    return columns(RECORDS, count, number, fields.offset, fields.timestamp * 1000, *hashed)


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
    return [None if null else candidate for candidate, null in zip(found, nulls, strict=True)]


def columns(
    declared: dict[str, str], count: int, *values: Numbers | list[int | None] | None
) -> RecordBatch:
    """Arrow columns with these names and types, of so many rows. None: all rows are null."""
    arrays = [
        pa.nulls(count, _TYPES[kind]) if value is None else _column(_TYPES[kind], value)
        for value, kind in zip(values, declared.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, list(declared))


def _column(kind: DataType, values: Numbers | list[int | None]) -> Array:
    if isinstance(values, list):
        return pa.array(values, kind)
    # pa.array() imports pandas if it is installed, which takes a Spark task 0.3 s.
    content = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [None, content])
