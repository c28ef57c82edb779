"""The ranges of a replay's failed records, for another replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.spark.reading.offsets import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asyncrevoke.spark.replays.report import ReplayReport

_MOST = 10_000


def failed_ranges(
    spark: SparkSession, report: ReplayReport, *, most: int = _MOST
) -> list[OffsetRange]:
    """The offsets of the rows whose outcome is ``"error"``, to pass to ``replay`` with another run
    id.

    The ranges have no other records. If the topic was deleted and created again, that replay raises
    an error. Raises ReplayError if there are more than ``most`` ranges.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.window import Window

    failed = spark.read.parquet(report.results).where("outcome = 'error'")
    places = failed.select("topic", "partition", "offset").distinct()
    # Consecutive offsets have the same difference to their row number.
    ranks = F.row_number().over(Window.partitionBy("topic", "partition").orderBy("offset"))
    islands = places.withColumn("island", F.col("offset") - ranks)
    found = (
        islands.groupBy("topic", "partition", "island")
        .agg(F.min("offset").alias("lo"), (F.max("offset") + 1).alias("hi"))
        .select("topic", "partition", "lo", "hi")
        .orderBy("topic", "partition", "lo")
        .limit(most + 1)
    )
    rows = cast("list[tuple[str, int, int, int]]", found.collect())
    if len(rows) > most:
        raise ReplayError(
            f"the failed records of run {report.run_id} are in more than {most:,} ranges: replay "
            "all of its ranges again, or raise most="
        )
    topic_ids = {offset_range.topic: offset_range.topic_id for offset_range in report.ranges}
    return [
        OffsetRange(topic, partition, lo, hi, topic_id=topic_ids.get(topic))
        for topic, partition, lo, hi in rows
    ]
