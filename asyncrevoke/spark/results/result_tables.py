"""Reads the rows of a replay as two tables: typed results, and all other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, cast

from pyspark.sql import DataFrame

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.results.spark_types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

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


_PLACE: Final = ("run_id", "topic", "partition", "offset")
_MISFIT: Final = "ResultSchemaError"


class ResultTables(NamedTuple):
    """``results`` has ``run_id``, ``topic``, ``partition``, ``offset``, ``finished`` (a timestamp)
    and ``result``, which has the given type and is null if the handler returned None.
    ``quarantine`` has all other rows, with ``outcome``, ``error_type``, ``error`` and the undecoded
    ``result``."""

    results: DataFrame
    quarantine: DataFrame


def result_tables(spark: SparkSession, report: ReplayReport, schema: object) -> ResultTables:
    """Read what the handlers of a replay have returned, typed by ``schema``. Lazy.

    ``schema`` is a type in Spark's notation (``"struct<order:bigint,total:double>"``), a handler
    with a return annotation, or the class that it returns. Each row is in one of the two tables. A
    result that is not JSON of this type is in ``quarantine``, with the error type
    ``ResultSchemaError``. Raises ConfigError.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F  # noqa: N812

    kind = schema if isinstance(schema, str) else spark_type(schema)
    rows = spark.read.parquet(report.results).withColumn("run_id", F.lit(report.run_id))
    try:
        read = rows.withColumn("read", _decoded(kind))
        fits = "outcome = 'ok' AND (result IS NULL OR read IS NOT NULL AND read.invalid IS NULL)"
        results = read.where(fits).selectExpr(
            *_PLACE, "timestamp_micros(finished_us) AS finished", "read.result AS result"
        )
    except AnalysisException as error:
        raise ConfigError(
            f"schema={shown_option(kind)} is not a type of Spark: {error.getCondition()}"
        ) from error
    misfit = "outcome = 'ok'"
    quarantine = read.where(f"NOT ({fits})").selectExpr(
        *_PLACE,
        f"if({misfit}, 'error', outcome) AS outcome",
        f"if({misfit}, '{_MISFIT}', error_type) AS error_type",
        f"if({misfit}, 'the result does not fit the schema', error) AS error",
        "result",
    )
    return ResultTables(results, quarantine)


def _decoded(kind: str) -> Column:
    """A struct of the typed ``result`` and of ``invalid``, which is null for a valid result."""
    from pyspark.sql import functions as F  # noqa: N812

    if kind in ("binary", "string"):
        value = F.expr("result" if kind == "binary" else "CAST(result AS string)")
        return F.struct(value.alias("result"), F.expr("CAST(NULL AS string)").alias("invalid"))
    # from_json accepts objects only, and marks only the whole text as corrupt.
    text = F.expr("concat('{\"result\":', CAST(result AS string), '}')")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "invalid"}
    return F.from_json(text, f"result {kind}, invalid string", options)
