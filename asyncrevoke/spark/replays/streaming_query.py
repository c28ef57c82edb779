"""Runs a consumer's handlers on a topic as a streaming query, with a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from asyncrevoke.errors import ConfigError
from asyncrevoke.spark.arrow import map_in_arrow
from asyncrevoke.spark.reading.range_reader import NO_PROGRESS_TIMEOUT
from asyncrevoke.spark.reading.worker import Errors, Target
from asyncrevoke.spark.replays.engines import ReplayJob
from asyncrevoke.spark.replays.range_task import RESULT_SCHEMA
from asyncrevoke.spark.replays.rows_task import COLUMNS, RowsTask
from asyncrevoke.spark.replays.run import check_options
from asyncrevoke.spark.session import check_spark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession
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
    concurrency: int | None = None,
    order_by: Literal["key", "partition", "as configured"] | None = "as configured",
    errors: Errors = "record",
    bootstrap_servers: str | None = None,
    no_progress_timeout: float = NO_PROGRESS_TIMEOUT,
    source_options: Mapping[str, str] | None = None,
    py_files: Sequence[str] = (),
) -> StreamingQuery:
    """Call the handlers of ``target`` (``"app:consumer"``) for a topic, batch by batch.

    Starts the query and returns it: ``awaitTermination()`` waits for its end, ``stop()`` ends it.
    ``trigger`` is ``"availableNow"``, all that there is now, then end; or an interval of batches,
    for example ``"10 seconds"``. ``checkpoint`` is a folder in which Spark keeps what is done; a
    query begins at ``start`` (see :func:`~asyncrevoke.spark.source.options.to_place`) if that is
    empty, and otherwise goes on. ``handover`` gives its offsets to a group.

    Result rows are those of :func:`~asyncrevoke.spark.replays.run.replay`, as Parquet in
    ``sink/stream``, each exactly once. Effects of handlers happen *at least* once: a batch that was
    begun when Spark ended is done again as a whole; store
    ``HandlerContext.idempotency_key`` beside an effect to recognise it. The order of a key is kept
    within and between batches. ``query.lastProgress.observedMetrics["replay"]`` has ``records`` and
    ``errors`` of the last batch.

    Raises ConfigError and SparkSetupError; what a task fails with comes out of the query.
    """
    check_spark()
    check_options(target, [], None, errors, None, None, concurrency)
    if not trigger:
        raise ConfigError('trigger="": use "availableNow", or an interval like "10 seconds"')
    from pyspark.sql import functions as F  # noqa: N812

    from asyncrevoke.spark.source.data_source import register

    if py_files:
        spark.addArtifacts(*py_files, pyfile=True)
    job = ReplayJob(
        target=Target(target, errors, bootstrap_servers, concurrency, order_by),
        isolation_level="read_committed",
        no_progress_timeout=no_progress_timeout,
        max_errors=None,
        engine="source",
        source_options=dict(source_options or {}),
    )
    register(spark)
    options = job.options_of_source(topic) | {"start": start}
    if max_offsets_per_trigger is not None:
        options["max_offsets_per_trigger"] = str(max_offsets_per_trigger)
    rows = spark.readStream.format("asyncrevoke").options(**options).load()
    rows = rows.withColumn("timestamp", F.unix_millis("timestamp")).select(*COLUMNS)
    results = map_in_arrow(rows, RowsTask(job.target, None), RESULT_SCHEMA).observe(
        "replay",
        F.count(F.lit(1)).alias("records"),
        F.count_if(F.col("outcome") == "error").alias("errors"),
    )
    writer = (
        results.writeStream.format("parquet")
        .option("path", f"{sink.rstrip('/')}/stream")
        .option("checkpointLocation", checkpoint)
        .queryName(f"asyncrevoke replay of {topic}")
    )
    if trigger == "availableNow":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=trigger).start()
