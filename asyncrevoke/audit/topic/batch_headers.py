"""Reads the headers of a topic's record batches (message format v2, KIP-98)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from asyncrevoke.audit.topic.record_hashes import columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.journal.format.arrow import RecordBatch

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


def headers(partition: int, batches: Iterable[bytes | memoryview]) -> RecordBatch:
    """The headers of these batches as columns."""
    rows = [_row(partition, batch) for batch in batches]
    values = map(list, zip(*rows, strict=True)) if rows else [None] * len(BATCHES)
    return columns(BATCHES, len(rows), *values)


def _row(partition: int, batch: bytes | memoryview) -> tuple[int, ...]:
    base, checksum, attributes, last_delta, count = _HEADER.unpack_from(batch)
    rewritten = int(attributes & _REWRITTEN > 0)
    return partition, base, base + last_delta + 1, count, checksum, rewritten
