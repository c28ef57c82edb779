"""Runs a consumer's handlers on records of the past, on a Spark cluster."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.replays.engines import ReplayJob, stages, unfinished_ranges
from asyncrevoke.spark.replays.progress import ProgressServer, ReplayProgress
from asyncrevoke.spark.replays.report import ReplayReport, read_report
from asyncrevoke.spark.replays.settings import BatchReplayOptions, ReplaySettings
from asyncrevoke.spark.session import check_spark, driver_host, message_of_task_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession


class _Plan(msgspec.Struct):
    target: str
    ranges: list[dict[str, object]]


_RUN_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


def replay(
    spark: SparkSession,
    target: str,
    ranges: Iterable[OffsetRange],
    *,
    sink: str,
    run_id: str | None = None,
    on_progress: Callable[[ReplayProgress], None] | None = None,
    **options: Unpack[BatchReplayOptions],
) -> ReplayReport:
    """Call the handlers of ``target`` (``"app:consumer"``) for all records of the ranges.

    A Spark action: returns when all rows are written. Each worker imports the consumer, opens its
    ``resources`` once, reads a range and runs the handlers with their configured order,
    concurrency, retries and limits. It joins no group and commits nothing. For ``options`` see
    :class:`~asyncrevoke.spark.replays.settings.BatchReplayOptions`.

    ``sink`` is a folder that Spark can write to (``/data/replay``, ``s3a://...``). Parquet files in
    ``results/run_id=.../`` below it have a row for each record: topic, partition, offset, the
    range, attempts, when the last call began and ended (microseconds since the epoch), the outcome
    (``ok``, ``error``, ``skipped``, ``sent_to_retry_topic``, ``dead_lettered``), the error, and
    what the handler returned.

    ``run_id`` names the run; the default is a new one. With the id of an existing run, the replay
    resumes the unfinished ranges *of that run*. Each range is written completely or not at all, and
    an unfinished range is repeated, so effects happen at least once.
    ``HandlerContext.idempotency_key`` identifies repeated records.

    ``on_progress`` is called about twice a second, from another thread. If the replay is cancelled
    or interrupted, the ranges that were written stay finished. Raises ReplayError, DataLossError,
    StalledReadError, ConfigError and SparkSetupError.
    """
    check_spark()
    planned = list(ranges)
    settings = ReplaySettings(**options)
    check_target(target)
    check_plan(planned, run_id)
    settings.send_files(spark)
    job = ReplayJob(
        target=settings.target(target),
        isolation_level=settings.isolation_level,
        no_progress_timeout=settings.no_progress_timeout,
        max_errors=settings.max_errors,
        engine=settings.engine,
        source_options=dict(settings.source_options or {}),
        dead_letters=settings.dead_letters,
        splits=settings.splits,
    )
    run = ReplayRun.begin(spark, sink, run_id or new_run_id(), target, planned)
    seconds = _run_stages(run, job, settings.checkpoint_every, on_progress)
    return read_report(spark, run.run_id, run.results, run.ranges, seconds, resumed=run.resumed)


def _run_stages(
    run: ReplayRun,
    job: ReplayJob,
    checkpoint_every: int | None,
    on_progress: Callable[[ReplayProgress], None] | None,
) -> float:
    """Write the rows of all unfinished ranges. Returns the duration in seconds."""
    left = job.splits.split(unfinished_ranges(run.ranges, run.done()))
    total = sum(remaining.size for remaining in left)
    host = driver_host(run.spark)
    with ProgressServer(host or "127.0.0.1", total, on_progress, job.max_errors) as progress:
        if host is not None:
            job = job.reporting_to(progress.address)
        for stage in stages(left, checkpoint_every, order=job.order_of_ranges):
            run.write(job.apply(run.spark, stage))
            if job.max_errors is not None or host is None:
                progress.set_counted(*run.counts_of(left))
            failed = progress.progress().errors
            if job.max_errors is not None and failed > job.max_errors:
                raise ReplayError(
                    f"run {run.run_id}: {failed} records have failed, more than "
                    f"max_errors={job.max_errors}. Their rows are in {run.results}"
                )
        return progress.progress().seconds


def new_run_id() -> str:
    """A new unique run id."""
    return uuid.uuid4().hex[:12]


def check_target(target: str) -> None:
    """Raise ConfigError if this is not the import path of a consumer."""
    if not isinstance(cast("object", target), str) or ":" not in target:
        raise ConfigError(
            f"target={shown_option(target)}: use the import path of the consumer, for example "
            '"app:consumer"; a Consumer object cannot be sent to the workers'
        )


def check_plan(ranges: Sequence[OffsetRange], run_id: str | None) -> None:
    """Raise ConfigError for an invalid run id, ranges of several topics, or ranges that overlap."""
    if run_id is not None and not _RUN_ID.fullmatch(run_id):
        raise ConfigError(
            f"run_id={shown_option(run_id)} names a folder: use letters, digits, '.', '_', '-'"
        )
    if len({offset_range.topic for offset_range in ranges}) > 1:
        raise ConfigError("the ranges are of several topics: replay one topic at a time")
    by_partition = sorted(
        (offset_range.partition, offset_range.start, offset_range.end) for offset_range in ranges
    )
    for (one, _, end), (other, start, _) in pairwise(by_partition):
        if one == other and start < end:
            raise ConfigError(
                f"two ranges of partition {one} overlap: their records would be handled twice"
            )


def check_same_topic(
    run_id: str, stored: Sequence[OffsetRange], planned: Sequence[OffsetRange]
) -> None:
    """Raise ReplayError if the topic was deleted and created again since the run was planned."""
    before = {stored_range.topic_id for stored_range in stored} - {None}
    now = {offset_range.topic_id for offset_range in planned} - {None}
    if before and now and before != now:
        raise ReplayError(
            f"topic {stored[0].topic} of run {run_id} was deleted and created again (its id was "
            f"{', '.join(map(str, before))}, and is {', '.join(map(str, now))}), so the offsets of "
            "the run have other records: use another run_id"
        )


@dataclass(frozen=True, slots=True)
class ReplayRun:
    """One run of a replay. Its folder has its plan and the rows of its finished ranges."""

    spark: SparkSession
    sink: str
    run_id: str
    ranges: list[OffsetRange]
    resumed: bool

    @property
    def results(self) -> str:
        """The folder with the rows of all runs."""
        return f"{self.sink.rstrip('/')}/results"

    @property
    def _rows(self) -> str:
        return f"{self.results}/run_id={self.run_id}"

    @classmethod
    def begin(
        cls, spark: SparkSession, sink: str, run_id: str, target: str, planned: list[OffsetRange]
    ) -> ReplayRun:
        """Write the plan of a new run, or read the plan of an existing one. Raises ReplayError if
        the existing run has another target or topic."""
        folder = f"{sink.rstrip('/')}/runs/run_id={run_id}"
        stored = read_lines(spark, folder)
        if stored is None:
            plan = {
                "target": target,
                "ranges": [offset_range._asdict() for offset_range in planned],
            }
            frame = _one_line(spark, json.dumps(plan))
            frame.coalesce(1).write.mode("error").text(folder)
            return cls(spark, sink, run_id, planned, resumed=False)
        known, ranges = _stored_plan(stored, folder)
        topics = {offset_range.topic for offset_range in planned} - {
            offset_range.topic for offset_range in ranges
        }
        if known != target or topics:
            raise ReplayError(
                f"run {run_id} in {sink} has the target {known} and the topic "
                f"{ranges[0].topic if ranges else '(none)'}: use another run_id"
            )
        check_same_topic(run_id, ranges, planned)
        if ranges != planned:
            log_events.RUN_RESUMED.write_to(EventLog(), run_id=run_id)
        return cls(spark, sink, run_id, ranges, resumed=True)

    def done(self) -> list[tuple[str, int, int, int]]:
        """The ranges whose rows are written, as (topic, partition, start, end)."""
        rows = self._written()
        if rows is None:
            return []
        found = rows.select("topic", "partition", "range_start", "range_end").distinct().collect()
        return [(candidate[0], candidate[1], candidate[2], candidate[3]) for candidate in found]

    def counts_of(self, ranges: Sequence[OffsetRange]) -> tuple[int, int]:
        """The number of rows and of failed rows in these ranges."""
        rows = self._written()
        if rows is None or not ranges:
            return 0, 0
        first = {offset_range.partition: offset_range.start for offset_range in reversed(ranges)}
        counted = (
            rows.selectExpr("partition", "range_start", "int(outcome = 'error') AS failed")
            .groupBy("partition", "range_start")
            .agg({"*": "count", "failed": "sum"})
            .select("partition", "range_start", "count(1)", "sum(failed)")
        )
        ours = [row for row in counted.collect() if row[1] >= first.get(row[0], row[1] + 1)]
        return sum(row[2] for row in ours), sum(row[3] for row in ours)

    def write(self, rows: DataFrame) -> None:
        """Write rows. The rows of a successful task count even if other tasks fail."""
        from pyspark.errors import PySparkException

        writer = (
            rows.write.mode("append")
            # With version 1, a failed task discards the rows of all tasks of the job.
            .option("mapreduce.fileoutputcommitter.algorithm.version", "2")
            .option("maxRecordsPerFile", 0)
        )
        try:
            writer.parquet(self._rows)
        except PySparkException as error:
            failure = message_of_task_error(error, f"run {self.run_id}")
            if failure is None:
                raise
            raise failure from error

    def _written(self) -> DataFrame | None:
        from pyspark.errors import AnalysisException

        try:
            rows = self.spark.read.parquet(self._rows)
            rows.schema  # noqa: B018 - Spark Connect is lazy and raises here
        except AnalysisException as error:
            if error.getCondition() in ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"):
                return None
            raise
        return rows


def _stored_plan(lines: Sequence[str], folder: str) -> tuple[str, list[OffsetRange]]:
    """The target and the ranges of an existing run, whose folder anyone may have written."""
    try:
        (line,) = lines
        plan = msgspec.json.decode(line, type=_Plan)
        given = [
            list(OffsetRange(**cast("dict[str, Any]", offset_range)))
            for offset_range in plan.ranges
        ]
        return plan.target, msgspec.convert(given, list[OffsetRange])
    except (ValueError, TypeError, RecursionError) as error:
        raise ReplayError(
            f"{folder} has no plan of a replay: use another run_id, or another sink"
        ) from error


def read_lines(spark: SparkSession, folder: str) -> list[str] | None:
    """The lines of a text file that Spark has written; None if it does not exist."""
    from pyspark.errors import AnalysisException

    try:
        return [row[0] for row in spark.read.text(folder).collect()] or None
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise


def _one_line(spark: SparkSession, line: str) -> DataFrame:
    # Half typed.
    return cast("DataFrame", cast("Any", spark).createDataFrame([(line,)], "value string"))
