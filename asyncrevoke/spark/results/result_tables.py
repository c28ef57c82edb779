"""Reads the rows of a replay as two tables: typed results, and all other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import DataFrame

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.spark.results.spark_types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from asyncrevoke.spark.replays.report import ReplayReport

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
