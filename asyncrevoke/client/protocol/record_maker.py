"""Creates records of what the parser decodes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from asyncrevoke.client.model import Record, RecordOfCopy, UnreadableRecord
from asyncrevoke.client.protocol.content_limits import MAX_RECORD_HEADERS, checked_headers
from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffer
from asyncrevoke.client.protocol.single_records import parser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Sized

# A smaller value is copied, and so is a batch whose values are smaller on average.
LARGE_VALUE: Final = 32 * 1024
# To cut out a value costs more than a second copy of a smaller one, which stays in the cache.
_CUT_OUT_FOR_BYTES: Final = 256 * 1024
# A view keeps at most so many times its size in memory: of a response, whose bytes are counted in
# buffer_memory, and of a decompressed batch, whose bytes are not.
_LARGEST_BUFFER: Final = 256
_LARGEST_BATCH: Final = 2


class RecordMaker(NamedTuple):
    """Creates the records of one partition, with values of bytes or, with ``views``, memoryviews.

    A memoryview is of the buffer of the response if the value is large, and else of a copy.
    """

    topic: str
    partition: int
    tracker_id: int
    views: bool = False

    def cuts_out(self, size: int, count: int) -> bool:
        """Whether the values of a batch with so many bytes and records are cut out, instead of
        copied with the rest of the batch."""
        return size >= count * (LARGE_VALUE if self.views else _CUT_OUT_FOR_BYTES)

    def records(self, data: bytes) -> list[Record]:
        """The records of a batch without compression, each value of its own memory. Raises what the
        parser raises, and ValueError for a record with too many headers."""
        topic, partition, tracker_id, views = self
        batch = parser(data)
        kind = batch.timestamp_type
        record_type = RecordOfCopy if views else Record
        return [
            record_type(
                topic,
                partition,
                record.offset,
                record.timestamp,
                kind,
                record.key,
                record.value,
                (tuple(headers) if len(headers) <= MAX_RECORD_HEADERS else checked_headers(headers))
                if (headers := record.headers)
                else (),
                tracker_id,
            )
            for record in batch
        ]

    def with_values(
        self, records: Iterable[Record], values: Sequence[memoryview | None], whole: Sized
    ) -> list[Record]:
        """The records with these values, which were cut out of ``whole``, instead of their own."""
        if not self.views:
            cut: Callable[[memoryview], bytes | memoryview] = bytes
        else:
            ratio = _LARGEST_BUFFER if isinstance(whole, ReceiveBuffer) else _LARGEST_BATCH
            cut = partial(_view_or_copy, max(LARGE_VALUE, len(whole) // ratio))
        return [
            record if value is None else _with_value(record, cut(value))
            for record, value in zip(records, values, strict=True)
        ]

    def unreadable(self, offset: int, why: str) -> UnreadableRecord:
        """The placeholder of a record that cannot be decoded."""
        return UnreadableRecord(
            self.topic,
            self.partition,
            offset,
            -1,
            0,
            None,
            None,
            tracker_id=self.tracker_id,
            next_offset=offset + 1,
            detail=why,
        )


def _with_value(record: Record, value: bytes | memoryview) -> Record:
    return Record(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        cast("bytes", value),
        record.headers,
        record.tracker_id,
    )


def _view_or_copy(least: int, value: memoryview) -> memoryview:
    """The value, or a copy if it has less than ``least`` bytes."""
    return value.toreadonly() if len(value) >= least else memoryview(bytes(value))
