"""Runs a consumer's handlers on a topic as a streaming query with a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.spark.arrow import map_in_arrow
from asyncrevoke.spark.replays.engines import ReplayJob
from asyncrevoke.spark.replays.range_task import RESULT_SCHEMA
from asyncrevoke.spark.replays.rows_task import COLUMNS, RowsTask, SentFiles
from asyncrevoke.spark.replays.run import check_target
from asyncrevoke.spark.replays.settings import StreamReplayOptions, StreamReplaySettings
from asyncrevoke.spark.session import check_spark, is_connected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def replay_stream(
    spark: SparkSession,
    target: str,
    *,
    topic: str,
    checkpoint: str,
    sink: str,
    trigger: str = "availableNow",
    start: str = "earliest",
    max_offsets_per_trigger: int | None = None,
    **options: Unpack[StreamReplayOptions],
) -> StreamingQuery:
    """Call the handlers of ``target`` (``"app:consumer"``) for a topic, in micro-batches.

    Starts the query and returns it: ``awaitTermination()`` waits for its end, ``stop()`` ends it.
    With ``trigger="availableNow"`` the query ends after the records that the topic has now; an
    interval such as ``"10 seconds"`` starts a batch at each interval. Spark keeps the offsets in
    the folder ``checkpoint``; without one, the query begins at ``start`` (see
    :func:`~asyncrevoke.spark.source.option_values.to_place`). ``handover`` commits its offsets for
    a group. For ``options`` see :class:`~asyncrevoke.spark.replays.settings.StreamReplayOptions`.

    Parquet files in ``sink/stream`` have the rows of :func:`~asyncrevoke.spark.replays.run.replay`,
    each exactly once. Effects of handlers happen *at least* once, because Spark repeats an
    interrupted batch: see ``HandlerContext.idempotency_key``. Records of one key stay in order.
    ``query.lastProgress.observedMetrics["replay"]`` has ``records`` and ``errors`` of the last
    batch.

    Raises ConfigError and SparkSetupError. The query raises the error of a failed task.
    """
    check_spark()
    settings = StreamReplaySettings(**options)
    check_target(target)
    if not trigger:
        raise ConfigError('trigger="": use "availableNow", or an interval like "10 seconds"')
    from asyncrevoke.spark.source.data_source import register

    settings.send_files(spark)
    job = ReplayJob(
        target=settings.target(target),
        isolation_level="read_committed",
        no_progress_timeout=settings.no_progress_timeout,
        max_errors=None,
        engine="source",
        source_options=dict(settings.source_options or {}),
    )
    register(spark)
    reading = job.options_of_source(topic) | _tasks(settings) | {"start": start}
    if max_offsets_per_trigger is not None:
        reading["max_offsets_per_trigger"] = str(max_offsets_per_trigger)
    rows = spark.readStream.format("asyncrevoke").options(**reading).load()
    writer = (
        _results(rows, _task(spark, job, settings))
        .writeStream.format("parquet")
        .option("path", f"{sink.rstrip('/')}/stream")
        .option("checkpointLocation", checkpoint)
        .queryName(f"asyncrevoke replay of {topic}")
    )
    if trigger == "availableNow":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=trigger).start()


def _tasks(settings: StreamReplaySettings) -> dict[str, str]:
    """The options of the source by which a task has rows of one partition, as RowsTask needs."""
    splits = settings.splits
    if not splits.given:
        return {"min_offsets_per_task": "1"}
    return {name: str(getattr(splits, name)) for name in splits.given}


def _task(spark: SparkSession, job: ReplayJob, settings: StreamReplaySettings) -> RowsTask:
    files = SentFiles.read(settings.py_files) if is_connected(spark) else None
    return RowsTask(job.target, None, dead_letters=settings.dead_letters, files=files)


def _results(rows: DataFrame, task: RowsTask) -> DataFrame:
    """The result rows of records, with ``records`` and ``errors`` as observed metrics."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = rows.withColumn("timestamp", F.unix_millis("timestamp")).select(*COLUMNS)
    return map_in_arrow(rows, task, RESULT_SCHEMA).observe(
        "replay",
        F.count(F.lit(1)).alias("records"),
        F.count_if(F.col("outcome") == "error").alias("errors"),
    )
