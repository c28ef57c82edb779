"""Lets Spark expect the rows of a journal to be larger than its Parquet files."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyspark.sql import SparkSession

_FACTOR: Final = "spark.sql.sources.fileCompressionFactor"
# The columns of a journal that rules read have about 3 bytes a row in Parquet, and 60 in Spark.
_JOURNAL: Final = 20.0


@contextmanager
def sizes_of_rows(spark: SparkSession) -> Generator[None]:
    """Let Spark multiply the sizes of files by what journals need, in this context.

    By the sizes of the files alone, Spark would broadcast all calls of millions of records, which
    do not fit into the memory of its driver.
    """
    before = spark.conf.get(_FACTOR, None)
    spark.conf.set(_FACTOR, str(max(_JOURNAL, float(before or 1))))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_FACTOR)
        else:
            spark.conf.set(_FACTOR, before)
