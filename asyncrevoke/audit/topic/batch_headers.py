"""Reads the headers of a topic's record batches (message format v2, KIP-98)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from asyncrevoke.journal.format.arrow import RecordBatch, pa

if TYPE_CHECKING:
    from collections.abc import Iterable

BATCHES = {
    "part": "INT",
    "lo": "BIGINT",
    "hi": "BIGINT",
    "records": "BIGINT",
    "checksum": "BIGINT",
    "rewritten": "INT",
}
"""The columns of a table of batches; a batch has offsets from ``lo`` up to, not including,
``hi``."""

# base offset, checksum, attributes, last offset delta, count
_HEADER = struct.Struct(">q9xIhi30xi")
# The delete horizon, which compaction writes (KIP-534).
_REWRITTEN = 0x40
_TYPES = {"INT": pa.int32(), "BIGINT": pa.int64()}
_SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in BATCHES.items()])


def headers(partition: int, batches: Iterable[bytes | memoryview]) -> RecordBatch:
    """The headers of these batches as columns."""
    rows = [_row(partition, batch) for batch in batches]
    columns = zip(*rows, strict=True) if rows else [()] * len(_SCHEMA)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _row(partition: int, batch: bytes | memoryview) -> tuple[int, ...]:
    base, checksum, attributes, last_delta, count = _HEADER.unpack_from(batch)
    rewritten = int(attributes & _REWRITTEN > 0)
    return partition, base, base + last_delta + 1, count, checksum, rewritten
