"""Spark's estimate of a journal's size, which decides what it broadcasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from asyncrevoke.spark.audits.scan_sizes import sizes_of_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_FACTOR = "spark.sql.sources.fileCompressionFactor"


def estimated(spark: SparkSession, path: str) -> int:
    """The bytes that Spark expects of these Parquet files."""
    frame: Any = spark.read.parquet(path)
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def test_spark_expects_rows_of_the_size_that_they_have_in_memory(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "rows")
    spark.range(1000).selectExpr("'a' AS session", "id").coalesce(1).write.parquet(path)
    of_files = estimated(spark, path)
    with sizes_of_rows(spark):
        assert estimated(spark, path) == 20 * of_files
    assert estimated(spark, path) == of_files


@pytest.mark.parametrize("before", [None, "3.0", "50.0"])
def test_the_session_has_its_own_setting_again_afterwards(
    spark: SparkSession, before: str | None
) -> None:
    if before is not None:
        spark.conf.set(_FACTOR, before)
    try:
        with pytest.raises(ValueError, match="failed"), sizes_of_rows(spark):
            factor = float(cast("str", spark.conf.get(_FACTOR)))
            assert factor == max(20.0, float(before or 0))
            raise ValueError("failed")
        assert spark.conf.get(_FACTOR, None) in (before, "1.0")
    finally:
        spark.conf.unset(_FACTOR)
