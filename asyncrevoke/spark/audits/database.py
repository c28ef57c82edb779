"""Runs an audit's queries: with Spark, or with DuckDB in this process if the tables are small."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from asyncrevoke.audit.local_database import LocalDatabase
from asyncrevoke.audit.sql.dialect import COVERING_PIECES, SparkDialect
from asyncrevoke.audit.sql.table_names import tables_of, with_places
from asyncrevoke.spark.arrow import pa
from asyncrevoke.spark.session import is_connected

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.audit.sql.text import Text
    from asyncrevoke.journal.format.arrow import Table

# Tables that are collected into this process if they are small. Spark needs several jobs for each
# query, and takes longer to plan than to run it.
_SMALL_TABLES = frozenset(
    {
        *("events", "buckets", "tenures", "noted", "blocks"),
        # What several rules look at, and what is empty if nothing differs.
        *("disordered", "first_done", "late", "repeated"),
        *("inverted", "unended", "uneven", "uneven_calls", "uneven_records"),
    }
)
# Larger tables stay in Spark.
MOST_LOCAL_ROWS = 500_000
# Only Spark's dialect defines this table.
_PIECES = "covering_pieces"
# Tables that Python tasks compute and several queries read.
_PERSISTED = frozenset({"source", "batches"})
_TYPES = {
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
}
_NAMES = {kind: name for name, kind in _TYPES.items()}


def run_query(spark: SparkSession, query: Text, tables: Mapping[str, DataFrame]) -> DataFrame:
    """The result of a query over these DataFrames. Lazy. Registers no view in the session."""
    # Spark matches persisted plans only in queries without WITH. It also drops the names that it
    # gives to DataFrames, and with them what is persisted of the same DataFrame: where() makes
    # another one.
    used = {name: tables[name].where("true") for name in tables_of(query) if name in tables}
    asked: Any = spark
    return cast("DataFrame", asked.sql(with_places(query, used), **used))


def small_frame(
    spark: SparkSession, columns: Mapping[str, str], rows: Sequence[Sequence[object]]
) -> DataFrame:
    """A DataFrame of local rows, which Spark does not compute in Python again."""
    return frame_of(spark, _table(columns, rows))


def frame_of(spark: SparkSession, table: Table) -> DataFrame:
    """A DataFrame of an Arrow table."""
    if not table.num_rows:
        # Spark Connect cannot create a DataFrame from an empty Arrow table.
        empty = [F.lit(None).cast(_NAMES[each.type]).alias(each.name) for each in table.schema]
        # Spark plans joins with this table as empty.
        return spark.range(0).where("false").select(*empty)
    made: Any = spark
    return cast("DataFrame", made.createDataFrame(table))


def _table(columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> Table:
    schema = pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema)


class SparkDatabase:
    """Implements :class:`asyncrevoke.audit.sql.database.Database`. :meth:`close` frees what is
    persisted.

    A query computes a table when it needs it: in this process if all inputs of the table are in
    this process, otherwise with Spark.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.dialect = SparkDialect()
        self._spark = spark
        self._local = LocalDatabase()
        self._is_local: dict[str, bool] = {_PIECES: False}
        self._queries: dict[str, Text] = {_PIECES: COVERING_PIECES}
        self._frames: dict[str, DataFrame] = {}
        self._kept: list[DataFrame] = []

    def keep(self, frame: DataFrame) -> DataFrame:
        """Persist a DataFrame, which is computed when it is first needed."""
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    def put(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
        """Add a small table."""
        self._add_local(name, _table(columns, rows))

    def define(self, name: str, query: Text) -> None:
        """Define a table by a query, which runs when the table is needed."""
        self._queries[name] = query

    def add(self, name: str, frame: DataFrame) -> None:
        """Add an existing DataFrame as a table."""
        self._is_local[name] = False
        self._frames[name] = self.keep(frame) if name in _PERSISTED else frame

    def add_empty(self, name: str, columns: Mapping[str, str]) -> None:
        """Add a table without rows. Spark does not run joins with it."""
        self._is_local[name] = False
        self._frames[name] = frame_of(self._spark, _table(columns, ()))

    def add_bounded(self, name: str, frame: DataFrame, rows: int) -> None:
        """Add a table of at most ``rows`` rows. Collect it into this process if that is a small
        number."""
        if rows > MOST_LOCAL_ROWS:
            self.add(name, self.keep(frame))
        else:
            self._add_local(name, _arrow_of(frame))

    def rows(self, query: Text) -> list[tuple[Any, ...]]:
        """The rows that a query returns."""
        if self._all_local(tables_of(query)):
            return self._local.rows(query)
        return [tuple(row) for row in self._over(query).collect()]

    def close(self) -> None:
        """Free the persisted DataFrames and the local tables."""
        self._local.close()
        for frame in self._kept:
            frame.unpersist()

    def _add_local(self, name: str, table: Table) -> None:
        self._local.add(name, table)
        self._is_local[name] = True

    def _over(self, query: Text) -> DataFrame:
        frames = {name: self._frame(name) for name in tables_of(query)}
        return run_query(self._spark, query, frames)

    def _frame(self, name: str) -> DataFrame:
        if name not in self._frames:
            if self._all_local((name,)):
                self._frames[name] = frame_of(self._spark, self._local.table(name))
            else:
                self._frames[name] = self._over(self._queries[name])
        return self._frames[name]

    def _all_local(self, names: Sequence[str]) -> bool:
        """Collect the small inputs of these tables. True if all of the tables are then in this
        process."""
        self._collect_inputs(names)
        return all(self._is_made_locally(name) for name in names)

    def _is_made_locally(self, name: str) -> bool:
        if name not in self._is_local:
            query = self._queries[name]
            self._is_local[name] = all(self._is_made_locally(each) for each in tables_of(query))
            if self._is_local[name]:
                self._local.define(name, query)
        return self._is_local[name]

    def _collect_inputs(self, names: Sequence[str]) -> None:
        while missing := self._missing(names):
            # Some of the tables are inputs of others.
            first = [name for name in missing if not self._missing(tables_of(self._queries[name]))]
            frames = [self._over(self._queries[name]) for name in first]
            limited = [frame.limit(MOST_LOCAL_ROWS + 1) for frame in frames]
            tables = _in_threads(self._spark, [_collecting(each) for each in limited])
            for name, frame, table in zip(first, frames, tables, strict=True):
                if table.num_rows > MOST_LOCAL_ROWS:
                    self.add(name, self.keep(frame))
                else:
                    self._add_local(name, table)

    def _missing(self, names: Sequence[str]) -> set[str]:
        """The inputs of these tables that can be collected and are not collected yet."""
        missing: set[str] = set()
        for name in names:
            if name not in self._is_local:
                missing |= self._missing(tables_of(self._queries[name]))
                if name in _SMALL_TABLES:
                    missing.add(name)
        return missing


def _collecting(frame: DataFrame) -> Callable[[], Table]:
    return lambda: _arrow_of(frame)


def _arrow_of(frame: DataFrame) -> Table:
    asked: Any = frame
    return asked.toArrow()


def _in_threads(spark: SparkSession, works: Sequence[Callable[[], Table]]) -> list[Table]:
    """Run each in a thread that inherits this thread's job group and tags."""
    if is_connected(spark):
        # To plan a query, the server makes views of the DataFrames in it, and drops them: queries
        # that share a DataFrame would drop each other's.
        return [work() for work in works]
    pyspark: Any = import_module("pyspark")
    with ThreadPoolExecutor(len(works)) as pool:
        # One wrapper for each thread: a wrapper changes what it wraps.
        started = [pool.submit(pyspark.inheritable_thread_target(spark)(work)) for work in works]
        return [each.result() for each in started]
