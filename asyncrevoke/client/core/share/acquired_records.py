"""The records of the batches in a ShareFetch response.

Batches are whole, as they are in the log. Only the offsets in the acquired ranges are the member's,
and not each of these has a record: compaction, markers of transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from asyncrevoke.client.model import (
    Record,
    ShareRecord,
    TopicPartition,
    UnreadableRecord,
    UnreadableShareRecord,
)
from asyncrevoke.client.protocol.messages import ErrorCode, FetchedPartition
from asyncrevoke.client.protocol.record_maker import RecordMaker
from asyncrevoke.client.protocol.records import CorruptBatch, UnreadableBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.protocol.records import RecordBatch, RecordDecoder
    from asyncrevoke.client.protocol.share_messages import AcquiredRange, ShareFetchedPartition

AcquiredRecord: TypeAlias = ShareRecord | UnreadableShareRecord


class ReadRecords(NamedTuple):
    """``records`` ascend, and are all before ``end``. From a ``corrupt`` batch on, which says why,
    nothing may be acknowledged: it is delivered again when its locks have passed."""

    records: list[Record]
    end: int
    corrupt: str = ""


def read_acquired(decode: RecordDecoder, topic: str, fetched: ShareFetchedPartition) -> ReadRecords:
    """The records of a partition that has acquired ranges, from the first acquired offset on.

    A batch that cannot be decoded has an ``UnreadableRecord`` for each acquired offset.
    """
    whole = FetchedPartition(
        partition=TopicPartition(topic, fetched.partition.partition),
        error=ErrorCode.none,
        records=fetched.records,
    )
    first, last = fetched.acquired[0].first_offset, fetched.acquired[-1].last_offset
    records: list[Record] = []
    end = first
    try:
        for batch in decode(whole, False):
            if batch.next_offset > first and batch.base_offset <= last:
                records += _decoded(topic, fetched, batch)
            end = batch.next_offset
    except CorruptBatch as error:
        return ReadRecords(records, end, str(error))
    return ReadRecords(records, max(end, last + 1))


def _decoded(topic: str, fetched: ShareFetchedPartition, batch: RecordBatch) -> Sequence[Record]:
    partition, first = fetched.partition.partition, fetched.acquired[0].first_offset
    try:
        return batch.decode(topic, partition, -1, first)
    except UnreadableBatch as error:
        maker = RecordMaker(topic, partition, -1)
        return [
            maker.unreadable(offset, str(error))
            for acquired in fetched.acquired
            for offset in range(
                max(acquired.first_offset, batch.base_offset),
                min(acquired.last_offset + 1, batch.next_offset),
            )
        ]


def acquired(records: Iterable[Record], acquisition: int, deliveries: int) -> list[AcquiredRecord]:
    """These records, of this acquisition and with so many deliveries."""
    return [
        ShareRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            record.key,
            record.value,
            record.headers,
            record.tracker_id,
            acquisition,
            deliveries,
        )
        if not isinstance(record, UnreadableRecord)
        else UnreadableShareRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            None,
            None,
            next_offset=record.next_offset,
            detail=record.detail,
            response=acquisition,
            deliveries=deliveries,
        )
        for record in records
    ]


def offsets_without_records(
    ranges: Sequence[AcquiredRange], held: Sequence[Record], end: int
) -> list[tuple[int, int]]:
    """The offsets of these ranges before ``end`` that have no record, as ranges."""
    if sum(each.last_offset - each.first_offset + 1 for each in ranges) == len(held):
        return []
    gaps: list[tuple[int, int]] = []
    offsets = iter([record.offset for record in held])
    offset = next(offsets, None)
    for acquired in ranges:
        expected, last = acquired.first_offset, min(acquired.last_offset, end - 1)
        while offset is not None and offset <= acquired.last_offset:
            if offset > expected:
                gaps.append((expected, offset - 1))
            expected = offset + 1
            offset = next(offsets, None)
        if expected <= last:
            gaps.append((expected, last))
    return gaps
