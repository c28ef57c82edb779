"""``spark.readStream.format("asyncrevoke")``: reads topics in micro-batches."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias, cast

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from asyncrevoke.client import log_events
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.net.single_request import run_blocking
from asyncrevoke.replays.ranges.range_consumer import RangeConsumer, consumer_of
from asyncrevoke.spark.reading.log_bounds import LogBounds
from asyncrevoke.spark.reading.offsets import (
    OffsetRange,
    find_ranges,
    log_missing_offsets,
    plan_range,
)
from asyncrevoke.spark.reading.worker import PythonWorker
from asyncrevoke.spark.source.range_rows import Part, RangeRows, parts_of
from asyncrevoke.spark.source.stream_offsets import (
    FIRST_OF_NEW_PARTITION,
    StreamOffsets,
    advance,
    check_new_partitions,
    check_no_loss,
    count_between,
    find_loss,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.spark.source.options import SourceOptions


class LogClient:
    """Connects at the first call of :meth:`bounds`, and stays connected until :meth:`close`.
    Picklable before. Blocks, and raises the errors of a consumer."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._consumer: RangeConsumer | None = None

    def bounds(self) -> LogBounds:
        """The selected topics that exist, with their current first and last offsets."""
        worker = PythonWorker.current()
        if self._consumer is None:
            consumer = consumer_of(replace(self._options.config(), group_id=None))
            worker.run(consumer.start())
            self._consumer = consumer
        return worker.run(LogBounds.of_existing(self._consumer, self._options.topics))

    def close(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            PythonWorker.current().run(consumer.aclose())


Json: TypeAlias = "dict[str, dict[str, object]]"

# Starting a task of Spark costs more than reading thousands of records.
MIN_OFFSETS_PER_TASK = 5000


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches. For the form of its offsets see :meth:`StreamOffsets.from_json`.

    Spark calls all methods but :meth:`read` in one process, one after another.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._rows = RangeRows(options, columns)
        self._client = LogClient(options)
        self._log: LogBounds | None = None
        # The end of the batch that was planned last, from the bounds in _log.
        self._end: Json | None = None
        self._target: LogBounds | None = None
        self._last_batch: float | None = None
        # Bytes of an offset, by partition; empty if brokers do not report them.
        self._bytes: Mapping[TopicPartition, float] | None = None

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """The offsets at which a query without a checkpoint begins."""
        options = self._options
        if options.topics.pattern is not None and not self._ask().topic_ids:
            return {}  # topics that match may be created later
        ranges = run_blocking(
            find_ranges(options.config(), options.topics, options.start, "latest", options.missing)
        )
        return StreamOffsets(
            {offset_range.topic: offset_range.topic_id for offset_range in ranges},
            {offset_range.topic_partition: offset_range.start for offset_range in ranges},
        ).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``max_offsets_per_trigger``, if given."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """The end of the next batch, at most the end of the log for the isolation level. Returns
        ``start`` if no batch is due. Raises DataLossError if records from ``start`` on were
        deleted."""
        log = self._ask()
        at = self._without_lost(self._parsed(start), log)
        if self._target is not None:
            log = _limited(log, self._target)
        if self._is_too_small(at, log):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = StreamOffsets(log.topic_ids, advance(at.offsets, log, most))
        self._end = end.to_json()
        return cast("dict[str, object]", self._end)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """The ends of the topics when the last batch was planned, for the query's progress."""
        log = self._log
        return None if log is None else StreamOffsets(log.topic_ids, log.last).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end at the current ends of the topics."""
        self._target = self._ask()

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """The tasks that read the ranges between two offsets. A partition that ``start`` does not
        have is read from offset 0. Raises DataLossError if some of the records were deleted."""
        log = self._log if self._log is not None and end == self._end else self._ask()
        stop = self._without_lost(self._parsed(end), log)
        begin = self._parsed(start)
        renewed = [
            name
            for name, topic_id in begin.topic_ids.items()
            if topic_id is not None and topic_id != stop.topic_ids.get(name, topic_id)
        ]
        begin = begin.without(frozenset(renewed))
        parts: list[OffsetRange] = []
        for tp, last in sorted(stop.offsets.items()):
            first = log.first[tp]
            at = begin.offsets.get(tp, FIRST_OF_NEW_PARTITION)
            # latestOffset() has logged the records that are lost before.
            at = first if at > last else at
            part = plan_range(tp, at, last, first, max(log.last[tp], last))
            parts.append(part._replace(topic_id=log.topic_ids[tp.topic]))
        if self._options.missing == "error":
            check_new_partitions(begin, parts)
        log_missing_offsets(parts, self._options.missing)
        options = self._options
        if options.splits.given:
            return parts_of(options.splits.split(parts, self._bytes_of(parts, log)))
        return parts_of(parts, options.min_offsets_per_task or MIN_OFFSETS_PER_TASK)

    def read(self, partition: InputPartition) -> Generator[ArrowRecordBatch]:
        """Read ranges; called in a task."""
        return self._rows.read(cast("Part", partition).ranges)

    def commit(self, end: dict[str, object]) -> None:
        """Does nothing: Spark keeps offsets in the checkpoint; ``handover`` commits them."""

    def stop(self) -> None:
        """Disconnect."""
        self._client.close()

    def _ask(self) -> LogBounds:
        self._log, self._end = self._client.bounds(), None
        return self._log

    def _parsed(self, given: dict[str, object]) -> StreamOffsets:
        names = self._options.topics.names
        return StreamOffsets.from_json(given, names[0] if len(names) == 1 else None)

    def _without_lost(self, at: StreamOffsets, log: LogBounds) -> StreamOffsets:
        loss = find_loss(at, log, self._options.topics)
        if self._options.missing == "error":
            check_no_loss(loss)
        if loss.why:
            log_events.RECORDS_LOST.write_to(EventLog(), reasons=list(loss.why))
        if loss.unselected:
            log_events.UNSELECTED_LEFT_OUT.write_to(EventLog(), unselected=list(loss.unselected))
        return loss.apply(at)

    def _bytes_of(
        self, parts: Sequence[OffsetRange], log: LogBounds
    ) -> Mapping[TopicPartition, float]:
        """The bytes of an offset, asked once, and again if a partition is new."""
        if not self._options.splits.weighs(parts):
            return {}
        known = self._bytes
        if known is None or (known and not known.keys() >= log.last.keys()):
            from asyncrevoke.spark.reading.partition_bytes import bytes_per_offset

            logs = {tp: range(log.first[tp], end) for tp, end in log.last.items()}
            known = run_blocking(bytes_per_offset(self._options.config(), logs, logs))
            self._bytes = known
        return known

    def _is_too_small(self, at: StreamOffsets, log: LogBounds) -> bool:
        """Whether the next batch waits for ``min_offsets_per_trigger``."""
        least, now = self._options.min_offsets_per_trigger, monotonic()
        waiting = count_between(at.offsets, log.last, log)
        due = (
            least is None
            or self._target is not None
            or waiting >= least
            or self._last_batch is None
            or now - self._last_batch >= self._options.max_trigger_delay
        )
        if due and waiting:
            self._last_batch = now
        return not due


def _limited(log: LogBounds, target: LogBounds) -> LogBounds:
    """The bounds up to the offsets of ``target``, without later topics and partitions."""
    same = {
        name for name, topic_id in target.topic_ids.items() if log.topic_ids.get(name) == topic_id
    }
    last = {
        tp: min(log.last[tp], end)
        for tp, end in target.last.items()
        if tp.topic in same and tp in log.last
    }
    return log._replace(
        topic_ids={name: topic_id for name, topic_id in log.topic_ids.items() if name in same},
        last=last,
    )
