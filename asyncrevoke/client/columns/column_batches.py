"""Record batches that are decoded to columns, several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from asyncrevoke.client.columns.batch_columns import BatchColumns
from asyncrevoke.client.columns.column_rows import ColumnRows, RowGroup
from asyncrevoke.client.columns.record_columns import fits_microseconds, misfit
from asyncrevoke.client.errors import CorruptRecordError
from asyncrevoke.client.model import Record, TopicPartition, UnreadableRecord
from asyncrevoke.client.protocol.records import (
    CorruptBatch,
    DecodeSingly,
    LogBatch,
    PartlyUnreadable,
)
from asyncrevoke.client.record_parts import RecordParts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.columns.batch_columns import Rows
    from asyncrevoke.client.protocol.messages import FetchedPartition
    from asyncrevoke.client.protocol.records import RecordBatch, RecordDecoder

# The most bytes and records that are decoded in one call, which takes milliseconds at worst.
_MOST_BYTES = 2**20
_MOST_RECORDS = 100_000
_LARGEST_OFFSET = 2**63 - 1


class ColumnBatchDecoder:
    """Makes batches that are decoded to these columns, of those that ``whole`` returns.

    Those of other ``topics`` are decoded to records by ``plain``. With ``copies``, rows keep no
    buffer of a response.
    """

    def __init__(
        self,
        whole: RecordDecoder,
        plain: RecordDecoder,
        names: Sequence[str],
        topics: Callable[[str], bool] | None = None,
        *,
        copies: bool = False,
    ) -> None:
        self._whole = whole
        self._plain = plain
        self._topics = topics
        self._copies = copies
        self.names = names
        self._columns: dict[tuple[str, int], BatchColumns] = {}

    def __call__(self, fetched: FetchedPartition, read_committed: bool, /) -> Sequence[RecordBatch]:
        """The batches of a fetched partition, consecutive ones together."""
        topic = fetched.partition.topic
        if self._topics is not None and not self._topics(topic):
            return self._plain(fetched, read_committed)
        return self.grouped(topic, self._whole(fetched, read_committed))

    def grouped(self, topic: str, batches: Sequence[RecordBatch]) -> Sequence[RecordBatch]:
        """Consecutive batches of one leader epoch together; their records are not decoded yet."""
        if self._topics is not None and not self._topics(topic):
            return batches
        found: list[ColumnBatch] = []
        together: list[RecordBatch] = []
        size = records = 0
        for batch in batches:
            if self._copies or not batch.viewed_size:
                # A small response stays in memory while a batch is a view of it.
                batch.copy()
            unpacked = max(batch.size, batch.unpacked_size)
            if together and (
                size + unpacked > _MOST_BYTES
                or records + batch.count > _MOST_RECORDS
                or batch.leader_epoch != together[0].leader_epoch
            ):
                found.append(ColumnBatch(self, together))
                together, size, records = [], 0, 0
            together.append(batch)
            size += unpacked
            records += batch.count
        if together:
            found.append(ColumnBatch(self, together))
        return found

    def columns_of(self, topic: str, partition: int) -> BatchColumns:
        """The columns of this partition's records."""
        if (columns := self._columns.get((topic, partition))) is None:
            columns = BatchColumns(TopicPartition(topic, partition), self.names)
            self._columns[topic, partition] = columns
        return columns


class ColumnBatch:
    """Consecutive batches as one, in the shape of ``RecordBatch``."""

    def __init__(self, decoder: ColumnBatchDecoder, batches: Sequence[RecordBatch]) -> None:
        first, last = batches[0], batches[-1]
        self._decoder = decoder
        self._batches = batches
        self.base_offset = first.base_offset
        self.next_offset = last.next_offset
        self.leader_epoch = first.leader_epoch
        self.checksum = first.checksum
        self.count = sum(batch.count for batch in batches)
        self.size = sum(batch.size for batch in batches)
        self.unpacked_size = sum(batch.unpacked_size for batch in batches)

    @property
    def viewed_size(self) -> int:
        """Bytes that are views of the buffer of a response."""
        return sum(batch.viewed_size for batch in self._batches)

    def copy(self) -> None:
        """Keep copies instead of views."""
        for batch in self._batches:
            batch.copy()

    def decode(
        self, topic: str, partition: int, tracker_id: int, from_offset: int
    ) -> Sequence[Record]:
        """Rows of columns from ``from_offset`` on. Records, of a single batch, if columns cannot
        have them all: one is unreadable, or has headers or a timestamp that the columns have not.
        """
        columns = self._decoder.columns_of(topic, partition)
        try:
            unpacked = [
                cast("LogBatch", batch).unpacked() for batch in self._batches if batch.count
            ]
            parts = list(columns.read(range(from_offset, _LARGEST_OFFSET), unpacked))
        except (CorruptBatch, CorruptRecordError, MemoryError):
            return self._singly(topic, partition, tracker_id, from_offset)
        if not all(map(self._fit, parts)):
            return self._singly(topic, partition, tracker_id, from_offset)
        self.size = sum(map(len, unpacked))
        rows = [
            ColumnRows(
                RowGroup(
                    columns, part, self, topic, partition, tracker_id, self.size // len(parts)
                ),
                0,
                len(part.offset),
            )
            for part in parts
        ]
        return rows[0] if len(rows) == 1 else RecordParts(rows)

    def _fit(self, rows: Rows) -> bool:
        """Whether columns can have these records."""
        names = self._decoder.names
        if rows.headers and "headers" in names:
            return False
        return "timestamp" not in names or (
            fits_microseconds(int(rows.timestamp.min()))
            and fits_microseconds(int(rows.timestamp.max()))
        )

    def _singly(
        self, topic: str, partition: int, tracker_id: int, from_offset: int
    ) -> Sequence[Record]:
        if len(self._batches) > 1:
            raise DecodeSingly([ColumnBatch(self._decoder, [batch]) for batch in self._batches])
        batch = cast("LogBatch", self._batches[0])
        records = batch.records(topic, partition, tracker_id, from_offset)
        self.size = batch.size
        if "timestamp" not in self._decoder.names:
            return records
        if all(fits_microseconds(record.timestamp) for record in records):
            return records
        return PartlyUnreadable(
            [
                record if fits_microseconds(record.timestamp) else _beyond_microseconds(record)
                for record in records
            ]
        )

    def records(
        self, topic: str, partition: int, tracker_id: int, from_offset: int
    ) -> list[Record]:
        """The records from an offset on, each as an object."""
        return [
            record
            for batch in self._batches
            if batch.count
            for record in cast("LogBatch", batch).records(topic, partition, tracker_id, from_offset)
        ]


def _beyond_microseconds(record: Record) -> UnreadableRecord:
    """What replaces a record whose timestamp a column cannot have."""
    return UnreadableRecord(
        record.topic,
        record.partition,
        record.offset,
        -1,
        0,
        None,
        None,
        tracker_id=record.tracker_id,
        next_offset=record.offset + 1,
        detail=f"{misfit(record.timestamp)}: leave out the column timestamp",
    )
