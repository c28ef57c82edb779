"""``spark.read.format("asyncrevoke")``: reads topics as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSourceReader, InputPartition

from asyncrevoke.runtime.net.single_request import run_blocking
from asyncrevoke.spark.reading.offsets import OffsetRange, find_ranges
from asyncrevoke.spark.source.range_rows import Part, RangeRows, parts_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from asyncrevoke.spark.arrow import ArrowRecordBatch
    from asyncrevoke.spark.source.options import SourceOptions


class TableReader(DataSourceReader):
    """Reads from ``start`` to ``end``, which are resolved to offsets before tasks start."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._rows = RangeRows(options, columns)

    def partitions(self) -> Sequence[InputPartition]:
        """One for each partition of the topics whose range has offsets."""
        options = self._options
        ranges: Sequence[OffsetRange] | None = options.ranges
        if ranges is None:
            ranges = run_blocking(
                find_ranges(
                    options.config(), options.topics, options.start, options.end, options.missing
                )
            )
        return parts_of(ranges)

    def read(self, partition: InputPartition) -> Generator[ArrowRecordBatch]:
        """Read a range; called in a task."""
        return self._rows.read(cast("Part", partition).part)
