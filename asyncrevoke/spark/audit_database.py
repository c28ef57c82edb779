"""Spark as what answers an audit's queries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from asyncrevoke.audit.dialect import COVERING_PIECES, SparkDialect
from asyncrevoke.spark.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

# What all else is made of, and is not asked for of the journal again: it comes here, and goes back
# as rows that Spark plans with. Its own store has a task per partition of a shuffle for them.
_GATHERED = frozenset({"events", "buckets"})
# Unless there are more rows than these.
_MOST = 500_000
# What Python has made, and is asked for many times.
_KEPT = frozenset({"source"})


# A table, and what it is called there unless by its own name.
_TABLE = re.compile(
    r"\b(FROM|JOIN)\s+(\w+)\b"
    r"(?!\s+(?:ON|WHERE|GROUP|ORDER|HAVING|WINDOW|UNION|CROSS|INNER|LEFT|RIGHT|FULL|JOIN)\b)"
    r"(?:\s+(?:AS\s+)?(\w+))?"
    r"|\b(FROM|JOIN)\s+(\w+)\b"
)


def over(spark: SparkSession, query: str, tables: Mapping[str, DataFrame]) -> DataFrame:
    """What a query gives of these tables, by the names that it has for them. Lazy, and nothing is
    registered in the session: DataFrames in, a DataFrame out."""
    # What Spark has kept it finds again in plans without WITH alone; and it drops the names that it
    # gives to frames, and with a name what is kept of the very same frame: hence ``where``.
    used: dict[str, DataFrame] = {}

    def named(found: re.Match[str]) -> str:
        word, name = found[1] or found[4], found[2] or found[5]
        if name not in tables:
            return found[0]
        used[name] = tables[name].where("true")
        return f"{word} {{{name}}} AS {found[3] or name}"

    text = _TABLE.sub(named, query)
    asked: Any = spark
    return cast("DataFrame", asked.sql(text, **used))


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
        if name in _GATHERED:
            frame = self._gathered(frame)
        self._tables[name] = self.keep(frame) if name in _KEPT else frame

    def _gathered(self, frame: DataFrame) -> DataFrame:
        asked: Any = frame.limit(_MOST + 1)
        rows: Any = asked.toArrow()
        if rows.num_rows > _MOST:
            return self.keep(frame)
        if not rows.num_rows:
            return small_frame(
                self._spark,
                {each.name: each.dataType.simpleString() for each in frame.schema.fields},
                [],
            )
        made: Any = self._spark
        return cast("DataFrame", made.createDataFrame(rows))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What it gives."""
        return [tuple(row) for row in over(self._spark, query, self._tables).collect()]

    def close(self) -> None:
        """Free it."""
        for frame in self._kept:
            frame.unpersist()
