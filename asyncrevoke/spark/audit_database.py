"""Spark as what answers an audit's queries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from asyncrevoke.audit.dialect import COVERING_PIECES, SparkDialect
from asyncrevoke.spark.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

# What is no more than a part of the journal's rows; all else is kept when it was made once, which
# also keeps the plans of what is made of it small.
_PLAIN = frozenset({"journal", "attempts"})


def over(spark: SparkSession, query: str, tables: Mapping[str, DataFrame]) -> DataFrame:
    """What a query gives of these tables, by the names that it has for them. Lazy, and nothing is
    registered in the session: DataFrames in, a DataFrame out."""
    words = set(re.findall(r"\w+", query))
    used = {name: frame for name, frame in tables.items() if name in words}
    named = ", ".join(f"{name} AS (SELECT * FROM {{{name}}})" for name in used)
    asked: Any = spark
    return cast("DataFrame", asked.sql(f"WITH {named} {query}" if used else query, **used))


def small_frame(
    spark: SparkSession, columns: Mapping[str, str], rows: Sequence[Sequence[object]]
) -> DataFrame:
    """A DataFrame of what this process has, without asking Python for it again."""
    if not rows:
        # Spark Connect makes nothing of an empty table of Arrow, whose columns have types as well.
        empty = [f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in columns.items()]
        return spark.range(0).selectExpr(*empty)
    types = {"INT": pa.int32(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(), "STRING": pa.string()}
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    made: Any = spark
    return cast("DataFrame", made.createDataFrame(pa.Table.from_pylist(named, schema)))


class SparkDatabase:
    """See :class:`asyncrevoke.audit.comparison.Database`. :meth:`close` frees what it has kept."""

    def __init__(self, spark: SparkSession) -> None:
        self.dialect = SparkDialect()
        self._spark = spark
        self._tables: dict[str, DataFrame] = {}
        self._kept: list[DataFrame] = []

    def keep(self, frame: DataFrame) -> DataFrame:
        """Make it once, when it is first asked for."""
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    def put(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
        """A small table."""
        self._tables[name] = small_frame(self._spark, columns, rows)

    def define(self, name: str, query: str) -> None:
        """A table of what this gives, when it is asked for."""
        self.add(name, over(self._spark, query, self._tables))
        if name == "covers":
            self.define("covering_pieces", COVERING_PIECES)

    def add(self, name: str, frame: DataFrame) -> None:
        """A table that somebody else has made."""
        self._tables[name] = frame if name in _PLAIN else self.keep(frame)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What it gives."""
        return [tuple(row) for row in over(self._spark, query, self._tables).collect()]

    def close(self) -> None:
        """Free it."""
        for frame in self._kept:
            frame.unpersist()
