"""Reads ranges of offsets in tasks, as Arrow columns."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from asyncrevoke.spark.reading.batch_reader import BatchReader
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.reading.range_reader import RangeReader
from asyncrevoke.spark.reading.read_ahead import read_ahead
from asyncrevoke.spark.reading.record_columns import RecordColumns
from asyncrevoke.spark.reading.worker import PythonWorker

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from asyncrevoke.spark.arrow import ArrowRecordBatch
    from asyncrevoke.spark.source.options import SourceOptions

_RECORDS = 2000


class Part(InputPartition):
    """The range of offsets that one task reads."""

    def __init__(self, part: OffsetRange) -> None:
        super().__init__(part)
        self.part = part


def parts_of(ranges: Iterable[OffsetRange]) -> list[Part]:
    """A task for each range that has offsets; Spark needs at least one."""
    return [Part(each) for each in ranges if each.size] or [Part(OffsetRange("", 0, 0, 0))]


class RangeRows:
    """Reads ranges of offsets. Picklable."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)

    def read(self, part: OffsetRange) -> Generator[ArrowRecordBatch]:
        """The rows of a range; called in a task."""
        if not part.size:
            return
        config, timeout = self._options.config(), self._options.no_progress_timeout
        consumers = PythonWorker.current().consumers
        unreadable = "unreadable" in self._columns
        if unreadable or "headers" in self._columns or find_spec("numpy") is None:
            # BatchReader has neither headers nor unreadable records.
            singly = RangeReader(
                config,
                part,
                no_progress_timeout=timeout,
                most=_RECORDS,
                unreadable=unreadable,
                consumers=consumers,
            )
            columns = RecordColumns(self._columns)
            yield from map(columns.batch, read_ahead(singly, singly.read))
            return
        from asyncrevoke.spark.reading.batch_columns import BatchColumns

        reader = BatchReader(config, part, no_progress_timeout=timeout, consumers=consumers)
        in_batches = BatchColumns(part, self._columns)
        for batches in read_ahead(reader, reader.read_batches):
            yield from in_batches.rows(batches)
