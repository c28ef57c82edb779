"""``spark.read.format("asyncrevoke")``: reads topics as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSourceReader, InputPartition

from asyncrevoke.client.runtime.net.single_request import run_blocking
from asyncrevoke.spark.reading.offsets import OffsetRange, begin_at_time, find_ranges
from asyncrevoke.spark.source.pushed_filters import PushedFilters, push
from asyncrevoke.spark.source.range_rows import Part, RangeRows, parts_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from pyspark.sql.datasource import Filter

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch
    from asyncrevoke.spark.source.options import SourceOptions


class TableReader(DataSourceReader):
    """Reads from ``start`` to ``end``. Offsets are resolved before tasks start."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._rows = RangeRows(options, columns)
        self._filters = PushedFilters()

    def partitions(self) -> Sequence[InputPartition]:
        """One for each partition whose range has offsets within the filters, more if the options
        split it."""
        options = self._options
        ranges: Sequence[OffsetRange] | None = options.ranges
        if ranges is None:
            ranges = run_blocking(
                find_ranges(
                    options.config(), options.topics, options.start, options.end, options.missing
                )
            )
        narrow = self._narrowed(ranges)
        if not options.splits.weighs(narrow):
            return parts_of(options.splits.split(narrow))
        from asyncrevoke.spark.reading.partition_bytes import bytes_per_offset

        partitions = [offset_range.topic_partition for offset_range in narrow]
        sizes = run_blocking(bytes_per_offset(options.config(), partitions))
        return parts_of(options.splits.split(narrow, sizes))

    def _narrowed(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        narrow = self._filters.narrow(ranges)
        since = self._filters.since
        if since is None or not any(narrow_range.size for narrow_range in narrow):
            return narrow
        return run_blocking(begin_at_time(self._options.config(), narrow, since))

    def read(self, partition: InputPartition) -> Generator[ArrowRecordBatch]:
        """Read ranges; called in a task."""
        return self._rows.read(cast("Part", partition).ranges)


class FilteringTableReader(TableReader):
    """A reader that skips what the filters of a query exclude.

    It is a separate class, because Spark 4.2 and 4.3 share the ranges of a reader with filters
    between all queries of one ``load()``, even if their filters differ.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Returns the filters that Spark still has to apply: all of them, because the ranges may be
        those of another query."""
        self._filters, _ = push(filters)
        return filters
