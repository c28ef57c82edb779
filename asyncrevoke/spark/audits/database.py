"""Runs an audit's queries with Spark, and those over small tables with DuckDB in this process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from asyncrevoke.audit.local_database import LocalDatabase
from asyncrevoke.audit.sql.dialect import COVERING_PIECES, SparkDialect
from asyncrevoke.audit.sql.table_names import tables_of, with_places
from asyncrevoke.spark.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.audit.sql.text import Text
    from asyncrevoke.journal.format.arrow import Table

# What comes here, and all that is made of it alone: for Spark, each query of a few rows is several
# jobs, and more work to plan than to do.
_GATHERED = frozenset({"events", "buckets", "tenures", "noted"})
# Unless there are more rows than these.
MOST_GATHERED = 500_000
# Only Spark's dialect has it.
_PIECES = "covering_pieces"
# What Python has made, and is asked for many times.
_KEPT = frozenset({"source", "batches"})
_TYPES = {"INT": pa.int32(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(), "STRING": pa.string()}
_NAMES = {kind: name for name, kind in _TYPES.items()}


def over(spark: SparkSession, query: Text, tables: Mapping[str, DataFrame]) -> DataFrame:
    """The result of a query over these DataFrames. Lazy; registers no view in the session."""
    # What Spark has kept it finds again in plans without WITH alone; and it drops the names that it
    # gives to frames, and with a name what is kept of the very same frame: hence ``where``.
    used = {name: tables[name].where("true") for name in tables_of(query) if name in tables}
    asked: Any = spark
    return cast("DataFrame", asked.sql(with_places(query, used), **used))


def small_frame(
    spark: SparkSession, columns: Mapping[str, str], rows: Sequence[Sequence[object]]
) -> DataFrame:
    """A DataFrame of local rows that Spark does not ask Python for again."""
    return frame_of(spark, _table(columns, rows))


def frame_of(spark: SparkSession, table: Table) -> DataFrame:
    """A DataFrame of an Arrow table."""
    if not table.num_rows:
        # Spark Connect makes nothing of an empty table of Arrow, whose columns have types as well.
        empty = [F.lit(None).cast(_NAMES[each.type]).alias(each.name) for each in table.schema]
        return spark.range(0).select(*empty)
    made: Any = spark
    return cast("DataFrame", made.createDataFrame(table))


def _table(columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> Table:
    schema = pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema)


class SparkDatabase:
    """See :class:`asyncrevoke.audit.comparison.Database`. :meth:`close` frees what it has kept.

    A table is computed when a query needs it: in this process if all of its inputs are here, else
    by Spark.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.dialect = SparkDialect()
        self._spark = spark
        self._here = LocalDatabase()
        self._is_here: dict[str, bool] = {_PIECES: False}
        self._queries: dict[str, Text] = {_PIECES: COVERING_PIECES}
        self._frames: dict[str, DataFrame] = {}
        self._kept: list[DataFrame] = []

    def keep(self, frame: DataFrame) -> DataFrame:
        """Compute it once, when it is first needed."""
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    def put(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
        """A small table."""
        self._take(name, _table(columns, rows))

    def define(self, name: str, query: Text) -> None:
        """Define a table by a query. Computed when it is needed."""
        self._queries[name] = query

    def add(self, name: str, frame: DataFrame) -> None:
        """Add an existing DataFrame as a table."""
        self._is_here[name] = False
        self._frames[name] = self.keep(frame) if name in _KEPT else frame

    def gather(self, name: str, frame: DataFrame, rows: int) -> None:
        """Define a table of at most ``most`` rows, which is collected into this process if it is
        small."""
        if rows > MOST_GATHERED:
            self.add(name, self.keep(frame))
        else:
            self._take(name, _arrow_of(frame))

    def rows(self, query: Text) -> list[tuple[Any, ...]]:
        """What it gives."""
        if self._all_here(tables_of(query)):
            return self._here.rows(query)
        return [tuple(row) for row in self._over(query).collect()]

    def close(self) -> None:
        """Free it."""
        self._here.close()
        for frame in self._kept:
            frame.unpersist()

    def _take(self, name: str, table: Table) -> None:
        self._here.add(name, table)
        self._is_here[name] = True

    def _over(self, query: Text) -> DataFrame:
        frames = {name: self._frame(name) for name in tables_of(query)}
        return over(self._spark, query, frames)

    def _frame(self, name: str) -> DataFrame:
        if name not in self._frames:
            if self._all_here((name,)):
                self._frames[name] = frame_of(self._spark, self._here.table(name))
            else:
                self._frames[name] = self._over(self._queries[name])
        return self._frames[name]

    def _all_here(self, names: Sequence[str]) -> bool:
        """Whether all of these tables are in this process, after collecting what can be
        collected."""
        self._gather_for(names)
        return all(self._made_here(name) for name in names)

    def _made_here(self, name: str) -> bool:
        if name not in self._is_here:
            query = self._queries[name]
            self._is_here[name] = all(self._made_here(each) for each in tables_of(query))
            if self._is_here[name]:
                self._here.define(name, query)
        return self._is_here[name]

    def _gather_for(self, names: Sequence[str]) -> None:
        while missing := self._missing(names):
            # Some are made of others.
            first = [name for name in missing if not self._missing(tables_of(self._queries[name]))]
            frames = [self._over(self._queries[name]) for name in first]
            limited = [frame.limit(MOST_GATHERED + 1) for frame in frames]
            tables = _at_once(self._spark, [_gathering(each) for each in limited])
            for name, frame, table in zip(first, frames, tables, strict=True):
                if table.num_rows > MOST_GATHERED:
                    self.add(name, self.keep(frame))
                else:
                    self._take(name, table)

    def _missing(self, names: Sequence[str]) -> set[str]:
        """The inputs of these tables that can be collected and are not yet."""
        missing: set[str] = set()
        for name in names:
            if name not in self._is_here:
                missing |= self._missing(tables_of(self._queries[name]))
                if name in _GATHERED:
                    missing.add(name)
        return missing


def _gathering(frame: DataFrame) -> Callable[[], Table]:
    return lambda: _arrow_of(frame)


def _arrow_of(frame: DataFrame) -> Table:
    asked: Any = frame
    return asked.toArrow()


def _at_once(spark: SparkSession, works: Sequence[Callable[[], Table]]) -> list[Table]:
    """Run each in a thread that inherits this thread's job group and tags."""
    pyspark: Any = import_module("pyspark")
    with ThreadPoolExecutor(len(works)) as pool:
        # One by one: what each is given is its own to change.
        started = [pool.submit(pyspark.inheritable_thread_target(spark)(work)) for work in works]
        return [each.result() for each in started]
