"""Records whose fields are in columns: they are created only when they are looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast, overload

from asyncrevoke.client.errors import IllegalStateError
from asyncrevoke.client.model import Record
from asyncrevoke.client.record_parts import SizedRecords

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch
    from asyncrevoke.client.columns.batch_columns import BatchColumns, Rows


class RecordSource(Protocol):
    """Batches as they are in the log. Implemented by :class:`ColumnBatch`."""

    def records(
        self, topic: str, partition: int, tracker_id: int, from_offset: int
    ) -> Sequence[Record]:
        """Their records from an offset on."""
        ...


class RowGroup:
    """The rows of consecutive record batches of one partition."""

    def __init__(
        self,
        columns: BatchColumns,
        rows: Rows,
        source: RecordSource,
        topic: str,
        partition: int,
        tracker_id: int,
        size: int,
    ) -> None:
        self.columns = columns
        self.topic = topic
        self.partition = partition
        self.tracker_id = tracker_id
        self.size = size
        self.offset, self.timestamp, self.timestamp_type = rows[:3]
        self._rows: Rows | None = rows
        self._source: RecordSource | None = source
        self._arrow: ArrowRecordBatch | None = None
        self._records: Sequence[Record] | None = None

    def arrow(self) -> ArrowRecordBatch:
        """All rows as columns, which own their memory."""
        if self._arrow is None:
            if self._rows is None:
                raise IllegalStateError("the rows were released")
            self._arrow = self.columns.columns(self._rows)
        return self._arrow

    def record(self, row: int) -> Record:
        """The whole record of a row."""
        if self._records is None:
            if self._source is None:
                raise IllegalStateError("the record was returned as columns: read it from these")
            first = int(self.offset[0])
            self._records = self._source.records(self.topic, self.partition, self.tracker_id, first)
        return self._records[row]

    def release(self) -> None:
        """Free the content of the rows, after :meth:`arrow`. Their offsets and timestamps stay."""
        self._rows = self._source = self._arrow = self._records = None


class ColumnRecord(Record, frozen=True, gc=False, eq=False):
    """A record of a row: key, value and headers are decoded when one of them is read."""

    group: RowGroup | None = None
    row: int = 0

    # Type checkers reject a property in place of a field.
    if not TYPE_CHECKING:

        @property
        def key(self) -> bytes | None:
            """See :class:`Record`."""
            return self.group.record(self.row).key

        @property
        def value(self) -> bytes | None:
            """See :class:`Record`."""
            return self.group.record(self.row).value

        @property
        def headers(self) -> tuple[tuple[str, bytes | None], ...]:
            """See :class:`Record`."""
            return self.group.record(self.row).headers


class ColumnRows(SizedRecords):
    """The records of some rows of a group."""

    __slots__ = ("_group", "_start", "_stop")

    def __init__(self, group: RowGroup, start: int, stop: int) -> None:
        self._group = group
        self._start = start
        self._stop = stop

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return [self[number] for number in range(start, stop, step)]
            first = self._start
            return ColumnRows(self._group, first + start, first + max(start, stop))
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        row, group = self._start + at, self._group
        return ColumnRecord(
            group.topic,
            group.partition,
            int(group.offset[row]),
            int(group.timestamp[row]),
            int(group.timestamp_type[row]),
            None,
            None,
            (),
            group.tracker_id,
            group,
            row,
        )

    @property
    def size(self) -> int:
        """A part of the bytes of the group."""
        return self._group.size * len(self) // max(len(self._group.offset), 1)

    @property
    def offsets(self) -> Iterable[tuple[int, Sequence[int]]]:
        """Their offsets, with their tracker id."""
        offsets = self._group.offset[self._start : self._stop].tolist()
        return [(self._group.tracker_id, cast("list[int]", offsets))]

    def arrow(self, columns: Sequence[str]) -> ArrowRecordBatch | None:
        """These rows with these columns; None if they were read with others."""
        if self._group.columns.names != columns:
            return None
        return self._group.arrow().slice(self._start, len(self))

    def release(self) -> None:
        """Free what these rows keep in memory, if they are the last ones of their group. What
        :meth:`arrow` has returned stays."""
        if self._stop == len(self._group.offset):
            self._group.release()
