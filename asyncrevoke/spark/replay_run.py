"""Runs a consumer's handlers on records of the past, on a Spark cluster."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from asyncrevoke.errors import ConfigError
from asyncrevoke.runtime.hooks.event_log import EventLog
from asyncrevoke.spark.engines import Job
from asyncrevoke.spark.errors import ReplayError
from asyncrevoke.spark.offsets import OffsetRange
from asyncrevoke.spark.pieces import remaining, waves
from asyncrevoke.spark.progress import ProgressServer
from asyncrevoke.spark.range_reader import NO_PROGRESS_TIMEOUT
from asyncrevoke.spark.replay_report import ReplayReport, read_report
from asyncrevoke.spark.session import check_spark, driver_host, told_by_a_task
from asyncrevoke.spark.worker import Errors, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.config import IsolationLevel
    from asyncrevoke.spark.engines import Engine
    from asyncrevoke.spark.progress import ReplayProgress

CHECKPOINT_EVERY = 1_000_000
_RUN_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


def replay(
    spark: SparkSession,
    target: str,
    ranges: Iterable[OffsetRange],
    *,
    sink: str,
    run_id: str | None = None,
    concurrency: int | None = None,
    order_by: Literal["key", "partition", "as configured"] | None = "as configured",
    errors: Errors = "row",
    max_errors: int | None = None,
    engine: Engine = "fused",
    isolation_level: IsolationLevel = "read_committed",
    bootstrap_servers: str | None = None,
    checkpoint_every: int | None = CHECKPOINT_EVERY,
    no_progress_timeout: float = NO_PROGRESS_TIMEOUT,
    source_options: Mapping[str, str] | None = None,
    py_files: Sequence[str] = (),
    on_progress: Callable[[ReplayProgress], None] | None = None,
) -> ReplayReport:
    """Call the handlers of ``target`` (``"app:consumer"``) for all records of the ranges.

    An action: it returns when all is done and written. Each worker imports the consumer, opens its
    ``resources`` once, reads a range and runs the handlers with its own order, concurrency, retries
    and limits; it is no member of any group, and commits nothing. Offsets and sizes are Kafka's,
    times of rows microseconds since the epoch.

    ``sink`` is a folder that Spark can write (``/data/replay``, ``s3a://...``). Below it,
    ``results/run_id=.../`` has a row for each record, as Parquet: topic, partition, offset, the
    range, attempts, when the last call began and ended, the outcome (``ok``, ``error``,
    ``skipped``, ``dead_lettered``), the error, and what the handler returned.

    ``errors``: ``"row"``, a record that has failed for good is a row and nothing is sent anywhere;
    ``"policy"``, its handler's dead letter topic, retry topic and ``on_error`` count as live;
    ``"fail"``, the replay ends. It also ends when more than ``max_errors`` rows are errors: tasks
    that are not done then write nothing.

    ``run_id`` names the run, a new one by default. With one that exists, the replay goes on with
    *its* ranges, without those that are done: each range is written as a whole or not at all. What
    is repeated after a failure are the ranges that were being done, so effects happen at least
    once; ``HandlerContext.idempotency_key`` tells which are the same. Ranges longer than
    ``checkpoint_every`` offsets are done in pieces, one after another where the order counts.

    ``concurrency`` (a task) and ``order_by`` are the consumer's unless given. ``engine``:
    ``"fused"`` reads inside the task, ``"source"`` by Spark through this library's source,
    ``"jvm"`` through the Kafka connector of Spark, whose jars you bring; ``source_options`` are
    for these two. ``py_files`` go to the workers. ``on_progress`` is called about twice a second,
    from another thread.

    Cancelled or interrupted, ranges that were written count. Raises ReplayError, DataLossError,
    StalledReadError, ConfigError and SparkSetupError.
    """
    check_spark()
    planned = list(ranges)
    check_options(target, planned, run_id, errors, max_errors, checkpoint_every, concurrency)
    if py_files:
        spark.addArtifacts(*py_files, pyfile=True)
    job = Job(
        target=Target(target, errors, bootstrap_servers, concurrency, order_by),
        isolation_level=isolation_level,
        no_progress_timeout=no_progress_timeout,
        max_errors=max_errors,
        engine=engine,
        source_options=dict(source_options or {}),
    )
    run = Run.begin(spark, sink, run_id or new_run_id(), target, planned)
    left = remaining(run.ranges, run.done())
    total = sum(each.size for each in left)
    host = driver_host(spark)
    with ProgressServer(host or "127.0.0.1", total, on_progress, max_errors) as progress:
        if host is not None:
            job = job.reporting_to(progress.address)
        for wave in waves(left, checkpoint_every, ordered=job.one_at_a_time):
            run.write(job.apply(spark, wave))
            if max_errors is not None or host is None:
                progress.settle(*run.counts_of(left))
            if max_errors is not None and (failed := progress.progress().errors) > max_errors:
                raise ReplayError(
                    f"run {run.run_id}: {failed} records have failed, more than "
                    f"max_errors={max_errors}. Their rows are in {run.results}"
                )
        seconds = progress.progress().seconds
    return read_report(spark, run.run_id, run.results, run.ranges, seconds, resumed=run.resumed)


def new_run_id() -> str:
    """A name that no other run has."""
    return uuid.uuid4().hex[:12]


def check_options(
    target: str,
    ranges: Sequence[OffsetRange],
    run_id: str | None,
    errors: str,
    max_errors: int | None,
    checkpoint_every: int | None,
    concurrency: int | None,
) -> None:
    """ConfigError, with the fix, for what cannot work."""
    if not isinstance(cast("object", target), str) or ":" not in target:
        raise ConfigError(
            f'target={target!r}: name the consumer by its import path, as "app:consumer"; a '
            "Consumer itself cannot travel to the workers"
        )
    if run_id is not None and not _RUN_ID.fullmatch(run_id):
        raise ConfigError(f"run_id={run_id!r} names a folder: use letters, digits, '.', '_', '-'")
    if errors not in get_args(Errors):
        raise ConfigError(f'errors={errors!r}: use "row", "policy" or "fail"')
    for name, value, least in (
        ("max_errors", max_errors, 0),
        ("checkpoint_every", checkpoint_every, 1),
        ("concurrency", concurrency, 1),
    ):
        if value is not None and value < least:
            raise ConfigError(f"{name}={value}: use at least {least}, or None")
    if len({each.topic for each in ranges}) > 1:
        raise ConfigError("the ranges are of several topics: replay one topic at a time")
    by_partition = sorted((each.partition, each.start, each.end) for each in ranges)
    for (one, _, end), (other, start, _) in pairwise(by_partition):
        if one == other and start < end:
            raise ConfigError(f"two ranges of partition {one} overlap: their records would be "
                              "handled twice")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a replay: its plan, and what of it is done, in the folder that it writes to."""

    spark: SparkSession
    sink: str
    run_id: str
    ranges: list[OffsetRange]
    resumed: bool

    @property
    def results(self) -> str:
        """The folder of all runs' rows."""
        return f"{self.sink.rstrip('/')}/results"

    @property
    def _rows(self) -> str:
        return f"{self.results}/run_id={self.run_id}"

    @classmethod
    def begin(
        cls, spark: SparkSession, sink: str, run_id: str, target: str, planned: list[OffsetRange]
    ) -> Run:
        """Write the plan of a new run, or read that of one that exists.

        ReplayError if that one is another target's, or another topic's.
        """
        folder = f"{sink.rstrip('/')}/runs/run_id={run_id}"
        stored = read_lines(spark, folder)
        if stored is None:
            plan = {"target": target, "ranges": [each._asdict() for each in planned]}
            frame = _one_line(spark, json.dumps(plan))
            frame.coalesce(1).write.mode("error").text(folder)
            return cls(spark, sink, run_id, planned, resumed=False)
        plan = json.loads(stored[0])
        ranges = [OffsetRange(**each) for each in plan["ranges"]]
        topics = {each.topic for each in planned} - {each.topic for each in ranges}
        if plan["target"] != target or topics:
            raise ReplayError(
                f"run {run_id} in {sink} is of {plan['target']} and topic "
                f"{ranges[0].topic if ranges else '(none)'}: name another run_id for another replay"
            )
        if ranges != planned:
            EventLog().info(
                "this run exists: its own ranges are gone on with, not those given", run_id=run_id
            )
        return cls(spark, sink, run_id, ranges, resumed=True)

    def done(self) -> list[tuple[str, int, int, int]]:
        """The ranges that were written."""
        rows = self._written()
        if rows is None:
            return []
        found = rows.select("topic", "partition", "range_start", "range_end").distinct().collect()
        return [(each[0], each[1], each[2], each[3]) for each in found]

    def counts_of(self, ranges: Sequence[OffsetRange]) -> tuple[int, int]:
        """Rows and errors of these ranges so far."""
        rows = self._written()
        if rows is None or not ranges:
            return 0, 0
        first = {each.partition: each.start for each in reversed(ranges)}
        counted = (
            rows.selectExpr("partition", "range_start", "int(outcome = 'error') AS failed")
            .groupBy("partition", "range_start")
            .agg({"*": "count", "failed": "sum"})
            .select("partition", "range_start", "count(1)", "sum(failed)")
        )
        ours = [row for row in counted.collect() if row[1] >= first.get(row[0], row[1] + 1)]
        return sum(row[2] for row in ours), sum(row[3] for row in ours)

    def write(self, rows: DataFrame) -> None:
        """Write rows; each task's count when it has ended well, whatever becomes of the others."""
        from pyspark.errors import PySparkException  # noqa: PLC0415 - of the extra

        writer = (
            rows.write.mode("append")
            # By the other algorithm nothing of a job counts if one of its tasks fails.
            .option("mapreduce.fileoutputcommitter.algorithm.version", "2")
            .option("maxRecordsPerFile", 0)
        )
        try:
            writer.parquet(self._rows)
        except PySparkException as error:
            told = told_by_a_task(error, f"run {self.run_id}")
            if told is None:
                raise
            raise told from error

    def _written(self) -> DataFrame | None:
        from pyspark.errors import AnalysisException  # noqa: PLC0415 - of the extra

        try:
            rows = self.spark.read.parquet(self._rows)
            rows.schema  # noqa: B018 - a client of Connect asks now
        except AnalysisException as error:
            if error.getCondition() in ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"):
                return None
            raise
        return rows


def read_lines(spark: SparkSession, folder: str) -> list[str] | None:
    """The lines of a text that Spark has written; None if there is none."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - of the extra

    try:
        return [row[0] for row in spark.read.text(folder).collect()] or None
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise


def _one_line(spark: SparkSession, line: str) -> DataFrame:
    # Half typed.
    return cast("DataFrame", cast("Any", spark).createDataFrame([(line,)], "value string"))
