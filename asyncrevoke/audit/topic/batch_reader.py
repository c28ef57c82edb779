"""Reads a topic's record batches and their headers (message format v2, KIP-98).

Creates no object for a record.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from asyncrevoke.audit.errors import TopicError
from asyncrevoke.audit.topic.record_hashes import columns
from asyncrevoke.client.errors import OffsetOutOfRangeError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.replays.ranges.range_consumer import RangeConsumer, consumer_of
from asyncrevoke.replays.ranges.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from asyncrevoke.audit.offsets import Range
    from asyncrevoke.client.columns.record_fields import Buffer
    from asyncrevoke.client.config import ConsumerConfig
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


_FETCH: Final = 4 * 2**20
_AHEAD: Final = 32 * 2**20
# About how many bytes of batches one read returns.
_BYTES: Final = 4 * 2**20
_FIRST: Final = 8
_MOST: Final = 2000


def batch_consumer(config: ConsumerConfig) -> RangeConsumer:
    """A consumer without a group, whose records are whole record batches. The caller enters it."""
    options = replace(
        config,
        group_id=None,
        auto_offset_reset="error",
        max_poll_records=_MOST,
        max_in_flight=2 * _MOST,
        fetch_max_bytes=4 * _FETCH,
        max_partition_fetch_bytes=_FETCH,
        buffer_memory=_AHEAD,
    )
    return consumer_of(options, whole_batches=True)


async def read_batches(
    consumer: RangeConsumer,
    topic: str,
    ranges: Sequence[Range],
    take: Callable[[Range, Sequence[Buffer]], None],
    *,
    no_progress_timeout: float,
) -> None:
    """Pass all batches that have an offset in these ranges to ``take``, decompressed, in the order
    of offsets. Some batches may be after the end of a range. Raises TopicError."""
    left: dict[int, list[Range]] = {}
    for offset_range in sorted(ranges):
        left.setdefault(offset_range.partition, []).append(offset_range)
    while left:
        # One range of each partition at a time.
        first = {number: of_one.pop(0) for number, of_one in left.items()}
        left = {number: of_one for number, of_one in left.items() if of_one}
        try:
            await _read(consumer, topic, first, take, no_progress_timeout)
        except OffsetOutOfRangeError as error:
            raise TopicError(
                f"retention has removed records of {topic} while the audit read them"
            ) from error


async def _read(
    consumer: RangeConsumer,
    topic: str,
    ranges: dict[int, Range],
    take: Callable[[Range, Sequence[Buffer]], None],
    no_progress_timeout: float,
) -> None:
    wanted = {
        TopicPartition(topic, n): range(offset_range.lo, offset_range.hi)
        for n, offset_range in ranges.items()
    }
    reader = Reader(consumer, wanted, no_progress_timeout)
    reader.begin()
    at_once = _FIRST
    while reader.left:
        step = await reader.next(at_once)
        if step is None:
            (partition, end), *_ = reader.left.items()
            raise TopicError(
                f"{partition} returns no record from offset {reader.positions[partition]} on, and "
                f"the journal has records up to {end}: a transaction may be open, or the consumers "
                "used another isolation level"
            )
        if step.lost:
            raise TopicError(
                f"{topic} was deleted, and perhaps created again, while the audit read it: the "
                "records that consumers handled no longer exist"
            )
        size = count = 0
        for partition, records in step.by_partition().items():
            batches = [cast("Buffer", record.value) for record in records]
            size += sum(map(len, batches))
            count += len(batches)
            take(ranges[partition.partition], batches)
        if size:
            at_once = max(1, min(_BYTES * count // size, _MOST))
