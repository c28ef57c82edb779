"""``format("asyncrevoke")``: reads topics as tables and streams and writes them, without jars."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from asyncrevoke.model import TopicPartition
from asyncrevoke.ranges.consumers import consumer_of
from asyncrevoke.runtime.net.single_request import run_blocking
from asyncrevoke.spark.reading.batch_reader import BatchReader
from asyncrevoke.spark.reading.offsets import (
    LogBounds,
    OffsetRange,
    find_ranges,
    log_missing_offsets,
    plan_range,
)
from asyncrevoke.spark.reading.range_reader import RangeReader
from asyncrevoke.spark.reading.read_ahead import read_ahead
from asyncrevoke.spark.reading.record_columns import (
    HEADERS,
    SCHEMA,
    UNREADABLE,
    RecordColumns,
    check_columns,
)
from asyncrevoke.spark.sink.writers import StreamWriter, TableWriter
from asyncrevoke.spark.source.options import SourceOptions
from asyncrevoke.spark.source.stream_offsets import advance, check_not_renewed

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from asyncrevoke.spark.arrow import ArrowRecordBatch

_RECORDS = 2000


def register(spark: SparkSession) -> None:
    """Register ``format("asyncrevoke")`` with a session. May be called again."""
    spark.dataSource.register(KafkaSource)


class KafkaSource(DataSource):
    """Reads a topic; for its options see :mod:`asyncrevoke.spark.source.options`. Writes by
    :mod:`asyncrevoke.spark.sink`.

    The user's schema selects columns; columns that it leaves out are not built.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "asyncrevoke"

    def schema(self) -> str:
        """All columns; ``headers`` and ``unreadable`` only if the options include them."""
        options = SourceOptions.of(self.options)
        headers = [HEADERS] if options.include_headers else []
        return ", ".join([SCHEMA, *headers, *([UNREADABLE] if options.include_unreadable else [])])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a table."""
        options = SourceOptions.of(self.options)
        return TableReader(options, check_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Reads a stream."""
        options = SourceOptions.of(self.options)
        options.check_stream()
        return StreamReader(options, check_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Writes a table; for its options see :mod:`asyncrevoke.spark.sink.options`."""
        return TableWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Writes the micro-batches of a stream."""
        return StreamWriter(self.options, schema, overwrite=overwrite)


class Part(InputPartition):
    """The range of offsets that one task reads."""

    def __init__(self, part: OffsetRange) -> None:
        super().__init__(part)
        self.part = part


class _Reading:
    """Reads ranges of offsets in tasks."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = list(columns)

    def read_part(self, part: OffsetRange) -> Generator[ArrowRecordBatch]:
        config, timeout = self.options.config(), self.options.no_progress_timeout
        unreadable = "unreadable" in self.columns
        if unreadable or "headers" in self.columns or find_spec("numpy") is None:
            # Whole batches give neither headers nor a placeholder for one record.
            singly = RangeReader(
                config,
                part,
                no_progress_timeout=timeout,
                most=_RECORDS,
                unreadable=unreadable,
            )
            columns = RecordColumns(self.columns)
            yield from map(columns.batch, read_ahead(singly, singly.read))
            return
        from asyncrevoke.spark.reading.batch_columns import BatchColumns

        reader = BatchReader(config, part, no_progress_timeout=timeout)
        in_batches = BatchColumns(part, self.columns)
        for batches in read_ahead(reader, reader.read_batches):
            yield from in_batches.rows(batches)


class TableReader(DataSourceReader):
    """Reads from ``start`` to ``end``, which are resolved to offsets before tasks start."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._reading = _Reading(options, columns)

    def partitions(self) -> Sequence[InputPartition]:
        """One for each partition of the topic whose range has offsets."""
        options = self._reading.options
        ranges: Sequence[OffsetRange] | None = options.ranges
        if ranges is None:
            ranges = run_blocking(
                find_ranges(
                    options.config(), options.topic, options.start, options.end, options.missing
                )
            )
        return [Part(each) for each in ranges if each.size] or [Part(_nothing(options.topic))]

    def read(self, partition: InputPartition) -> Generator[ArrowRecordBatch]:
        """Read a range; called in a task."""
        part = cast("Part", partition).part
        if part.size:
            yield from self._reading.read_part(part)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches. Offsets are ``{"0": 4800}``: the next record to read of each partition,
    as in commits of a consumer group."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._reading = _Reading(options, columns)
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The offsets at which a query without a checkpoint begins."""
        options = self._reading.options
        ranges = run_blocking(
            find_ranges(options.config(), options.topic, options.start, "latest", options.missing)
        )
        return {str(each.partition): each.start for each in ranges}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``max_offsets_per_trigger``, if given."""
        most = self._reading.options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The end of the next batch: at most the last stable offset."""
        log = self._log()
        last = {str(tp.partition): offset for tp, offset in log.last.items()}
        check_not_renewed(self._reading.options.topic, start, last)
        if self._target is not None:
            last = {number: min(last[number], end) for number, end in self._target.items()}
        first = {str(tp.partition): offset for tp, offset in log.first.items()}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return advance(start, first, last, most)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """The end of the topic now, for the progress of a query."""
        return {str(tp.partition): offset for tp, offset in self._log().last.items()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends at the current end of the topic."""
        self._target = self.reportLatestOffset()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The ranges between two offsets. Raises DataLossError if records of them were deleted."""
        options, log = self._reading.options, self._log()
        parts: list[OffsetRange] = []
        for number, stop in sorted(end.items()):
            tp = TopicPartition(options.topic, int(number))
            if tp not in log.first:
                check_not_renewed(options.topic, {number: stop}, {})
            begin = start.get(number, log.first[tp])
            parts.append(plan_range(tp, begin, stop, log.first[tp], max(log.last[tp], stop)))
        log_missing_offsets(parts, options.missing)
        return [Part(each) for each in parts if each.size] or [Part(_nothing(options.topic))]

    def read(self, partition: InputPartition) -> Generator[ArrowRecordBatch]:
        """Read a range; called in a task."""
        part = cast("Part", partition).part
        if part.size:
            yield from self._reading.read_part(part)

    def commit(self, end: dict[str, int]) -> None:
        """Does nothing: Spark keeps offsets in the checkpoint; ``handover`` commits them."""

    def stop(self) -> None:
        """Does nothing: no connection is kept open."""

    def _log(self) -> LogBounds:
        return run_blocking(_find_log(self._reading.options))


async def _find_log(options: SourceOptions) -> LogBounds:
    async with consumer_of(replace(options.config(), group_id=None)) as consumer:
        return await LogBounds.of(consumer, options.topic)


def _nothing(topic: str) -> OffsetRange:
    # Spark needs at least one partition.
    return OffsetRange(topic, 0, 0, 0)
