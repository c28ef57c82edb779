"""Runs a consumer's handlers on a topic as a streaming query, with a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.errors import ConfigError
from asyncrevoke.spark.arrow import map_in_arrow
from asyncrevoke.spark.replays.engines import ReplayJob
from asyncrevoke.spark.replays.range_task import RESULT_SCHEMA
from asyncrevoke.spark.replays.rows_task import COLUMNS, RowsTask
from asyncrevoke.spark.replays.run import check_target
from asyncrevoke.spark.replays.settings import StreamReplaySettings
from asyncrevoke.spark.session import check_spark

if TYPE_CHECKING:
    from typing import Unpack

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from asyncrevoke.spark.replays.settings import StreamReplayOptions


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
    """Call the handlers of ``target`` (``"app:consumer"``) for a topic, batch by batch.

    Starts the query and returns it: ``awaitTermination()`` waits for its end, ``stop()`` ends it.
    ``trigger`` is ``"availableNow"``: the query ends with the records that the topic has now; or an
    interval of batches, for example ``"10 seconds"``. ``checkpoint`` is a folder in which Spark
    keeps the offsets. Without any, the query begins at ``start`` (see
    :func:`~asyncrevoke.spark.source.place_option.to_place`). ``handover`` commits its offsets for a
    group. For ``options`` see :class:`~asyncrevoke.spark.replays.settings.StreamReplayOptions`.

    Rows are those of :func:`~asyncrevoke.spark.replays.run.replay`, as Parquet in ``sink/stream``,
    each exactly once. Effects of handlers happen *at least* once: Spark repeats a batch that was
    interrupted; ``HandlerContext.idempotency_key`` identifies repeated records. The order of a key
    is kept within and between batches. ``query.lastProgress.observedMetrics["replay"]`` has
    ``records`` and ``errors`` of the last batch.

    Raises ConfigError and SparkSetupError; the query raises the error of a failed task.
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
    reading = job.options_of_source(topic) | {"start": start}
    if max_offsets_per_trigger is not None:
        reading["max_offsets_per_trigger"] = str(max_offsets_per_trigger)
    rows = spark.readStream.format("asyncrevoke").options(**reading).load()
    writer = (
        _results(rows, RowsTask(job.target, None, dead_letters=settings.dead_letters))
        .writeStream.format("parquet")
        .option("path", f"{sink.rstrip('/')}/stream")
        .option("checkpointLocation", checkpoint)
        .queryName(f"asyncrevoke replay of {topic}")
    )
    if trigger == "availableNow":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=trigger).start()


def _results(rows: DataFrame, task: RowsTask) -> DataFrame:
    """The rows that the handlers make of records, with their number observed."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = rows.withColumn("timestamp", F.unix_millis("timestamp")).select(*COLUMNS)
    return map_in_arrow(rows, task, RESULT_SCHEMA).observe(
        "replay",
        F.count(F.lit(1)).alias("records"),
        F.count_if(F.col("outcome") == "error").alias("errors"),
    )
