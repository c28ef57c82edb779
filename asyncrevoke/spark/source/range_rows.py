"""Reads ranges of offsets in tasks, as Arrow columns."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from asyncrevoke.spark.source.excluded_modules import exclude_modules_from_collections

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch
    from asyncrevoke.spark.reading.offsets import OffsetRange
    from asyncrevoke.spark.source.options import SourceOptions

_RECORDS = 2000


class Part(InputPartition):
    """The ranges of offsets that one task reads."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def parts_of(ranges: Iterable[OffsetRange], min_offsets: int = 1) -> list[Part]:
    """Tasks for the ranges that have offsets; Spark needs at least one task. Ranges share tasks, so
    that each task has at least ``min_offsets``, if there are as many."""
    tasks: list[list[OffsetRange]] = [[]]
    size = 0
    for offset_range in sorted(
        (offset_range for offset_range in ranges if offset_range.size),
        key=lambda offset_range: offset_range.size,
    ):
        if size >= min_offsets:
            tasks.append([])
            size = 0
        tasks[-1].append(offset_range)
        size += offset_range.size
    if size < min_offsets and len(tasks) > 1:
        rest = tasks.pop()
        tasks[-1] += rest
    return [Part(task) for task in sorted(sorted(task) for task in tasks)]


class RangeRows:
    """Reads ranges of offsets. Picklable."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)

    def read(self, ranges: Sequence[OffsetRange]) -> Generator[ArrowRecordBatch]:
        """The rows of ranges; called in a task."""
        for _, of_topic in groupby(ranges, lambda offset_range: offset_range.topic):
            yield from self._rows_of(list(of_topic))

    def _rows_of(self, ranges: Sequence[OffsetRange]) -> Generator[ArrowRecordBatch]:
        # A process that plans imports nothing of what a task needs.
        from asyncrevoke.spark.reading.worker import PythonWorker, read_ahead

        config, timeout = self._options.config(), self._options.no_progress_timeout
        consumers = PythonWorker.current().consumers
        unreadable = "unreadable" in self._columns
        if unreadable or "headers" in self._columns or find_spec("numpy") is None:
            # BatchReader has neither headers nor unreadable records.
            from asyncrevoke.client.columns.record_columns import RecordColumns
            from asyncrevoke.spark.reading.range_reader import RangesReader

            singly = RangesReader(
                config,
                ranges,
                no_progress_timeout=timeout,
                most=_RECORDS,
                unreadable=unreadable,
                missing=self._options.missing,
                consumers=consumers,
            )
            exclude_modules_from_collections()
            columns = RecordColumns(self._columns)
            for step in read_ahead(singly, singly.read_ranges):
                for _, records in step:
                    yield columns.batch(records)
            return
        from asyncrevoke.client.columns.batch_columns import BatchColumns
        from asyncrevoke.spark.reading.range_reader import BatchReader

        exclude_modules_from_collections()
        reader = BatchReader(
            config,
            ranges,
            no_progress_timeout=timeout,
            missing=self._options.missing,
            consumers=consumers,
        )
        in_batches: dict[OffsetRange, BatchColumns] = {}
        for read in read_ahead(reader, reader.read_batches):
            for read_range, batches in read:
                if read_range not in in_batches:
                    in_batches[read_range] = BatchColumns(read_range.topic_partition, self._columns)
                wanted = range(read_range.start, read_range.end)
                yield from in_batches[read_range].slices(wanted, batches)
