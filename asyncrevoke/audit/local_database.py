"""DuckDB as what answers an audit's queries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from asyncrevoke.audit.dialect import DuckDialect
from asyncrevoke.audit.table_names import tables_of
from asyncrevoke.journal.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.journal.arrow import Table


class LocalDatabase:
    """DuckDB, in memory. See :class:`asyncrevoke.audit.comparison.Database`."""

    def __init__(self) -> None:
        self.dialect = DuckDialect()
        self._db: Any = import_module("duckdb").connect()
        self._queries: dict[str, str] = {}

    def add(self, name: str, table: Table) -> None:
        """A table of Arrow, which is not copied."""
        self._db.register(name, table)

    def put(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
        """See :class:`~asyncrevoke.audit.comparison.Database`."""
        declared = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        self._db.execute(f"CREATE TABLE {name} ({declared})")
        if rows:  # by columns: one by one, each takes a millisecond
            given = zip(*rows, strict=True)
            table = pa.table([pa.array(column) for column in given], names=list(columns))
            self.insert(name, table, "SELECT * FROM chunk")

    def define(self, name: str, query: str) -> None:
        """See :class:`~asyncrevoke.audit.comparison.Database`. It is made when it is asked for."""
        self._queries[name] = query

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """See :class:`~asyncrevoke.audit.comparison.Database`."""
        self._make(query)
        found: list[tuple[Any, ...]] = self._db.execute(query).fetchall()
        return found

    def table(self, name: str) -> Table:
        """All rows of a table."""
        query = f"SELECT * FROM {name}"
        self._make(query)
        return self._db.sql(query).to_arrow_table()

    def _make(self, query: str) -> None:
        for name in tables_of(query):
            if (needed := self._queries.pop(name, None)) is not None:
                self._make(needed)
                self._db.execute(f"CREATE TABLE {name} AS {needed}")

    def insert(self, name: str, chunk: Table, query: str) -> None:
        """Append what ``query`` gives of ``chunk``."""
        self._db.register("chunk", chunk)
        self._db.execute(f"INSERT INTO {name} {query}")
        self._db.unregister("chunk")
