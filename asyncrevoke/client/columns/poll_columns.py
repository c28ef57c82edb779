"""The records of a poll as Arrow batches."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, cast

from asyncrevoke.client.columns.arrow import ArrowRecordBatch, pa
from asyncrevoke.client.columns.column_rows import ColumnRecord, ColumnRows, RowGroup
from asyncrevoke.client.columns.record_columns import ARROW_TYPES, RecordColumns
from asyncrevoke.client.record_parts import RecordParts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from asyncrevoke.client.model import Record

# A column of binary values holds up to 2 GiB.
_MOST_BYTES = 2**30


class PollColumns:
    """Makes Arrow batches with these columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._of_records = RecordColumns(names)
        schema = pa.schema([(name, ARROW_TYPES[name]) for name in names])
        arrays = [pa.array([], ARROW_TYPES[name]) for name in names]
        self._empty: ArrowRecordBatch = pa.RecordBatch.from_arrays(arrays, schema=schema)

    def of(self, slices: Iterable[Sequence[Record]]) -> list[ArrowRecordBatch]:
        """The records of these slices, each of one partition: one batch, or several of about a GiB
        if they are larger. They own their memory."""
        found: list[list[ArrowRecordBatch]] = [[]]
        size = 0
        for rows in slices:
            for batch in self._columns(rows):
                if size and size + batch.nbytes > _MOST_BYTES:
                    found.append([])
                    size = 0
                found[-1].append(batch)
                size += batch.nbytes
        return [self._joined(batches) for batches in found]

    def whole(self, records: Sequence[Record]) -> ArrowRecordBatch:
        """The records of one partition as one batch, which owns its memory."""
        return self._joined(list(self._columns(records)))

    @staticmethod
    def release(slices: Iterable[Sequence[Record]]) -> None:
        """Free what these records keep in memory, as far as :meth:`of` has returned it."""
        for records in slices:
            for part in records.parts if isinstance(records, RecordParts) else (records,):
                if isinstance(part, ColumnRows):
                    part.release()

    def _joined(self, batches: list[ArrowRecordBatch]) -> ArrowRecordBatch:
        if not batches:
            return self._empty
        if len(batches) == 1:
            return batches[0]
        return cast("ArrowRecordBatch", pa.concat_batches(batches))

    def _columns(self, records: Sequence[Record]) -> Iterator[ArrowRecordBatch]:
        for part in records.parts if isinstance(records, RecordParts) else (records,):
            columns = part.arrow(self._names) if isinstance(part, ColumnRows) else None
            if columns is not None:
                yield columns
            else:
                yield from self._of_objects(part)

    def _of_objects(self, records: Sequence[Record]) -> Iterator[ArrowRecordBatch]:
        """Of records that were decoded one by one, or chosen from rows."""
        for group, some in groupby(records, key=_group_of):
            chosen = list(some)
            if group is None or group.columns.names != self._names:
                yield self._of_records.batch(chosen)
            else:
                rows = [cast("ColumnRecord", record).row for record in chosen]
                yield group.arrow().take(pa.array(rows))


def _group_of(record: Record) -> RowGroup | None:
    return record.group if isinstance(record, ColumnRecord) else None


def compile_loops(names: Sequence[str]) -> None:
    """Import what columns need, and compile the loops that read records, if numba is installed:
    this takes some seconds at the first time. Call it in a thread."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    from asyncrevoke.client.columns.batch_columns import BatchColumns
    from asyncrevoke.client.model import TopicPartition

    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**14)
    builder.append(0, 0, b"key", b"value", [])
    columns = BatchColumns(TopicPartition("topic", 0), names)
    for rows in columns.read(range(1), [bytes(builder.build())]):
        columns.columns(rows)
