"""Runs an audit's queries with DuckDB."""

from __future__ import annotations

import re
from contextlib import contextmanager
from importlib import import_module
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from weakref import finalize

from asyncrevoke.audit.sql.text import Text, compose, identifier, joined
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.journal.format.arrow import RecordBatch, Table, pa
from asyncrevoke.journal.views import DATABASE_SETTINGS, lock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence


# IS DISTINCT FROM is followed by table.column, which is not a table.
_TABLE = re.compile(r"\b(FROM|JOIN)\s+(\w+)\b(?!\.)(\s+AS\s+\w+)?")


def tables_of(query: str) -> tuple[str, ...]:
    """The names of the tables, each once."""
    return tuple(dict.fromkeys(name for _, name, _ in _TABLE.findall(query)))


class AuditDatabase:
    """DuckDB in memory. :meth:`close` frees it.

    :meth:`insert` and :meth:`pass_rows` have a connection of their own, so one thread can call
    them while another one runs queries.

    Tables that do not fit into memory go to a temporary folder that only this user can read.
    """

    def __init__(self, memory_limit: int | None = None, *, threads: int | None = None) -> None:
        """``memory_limit`` is in bytes (default: 80 % of the machine's memory). A query that needs
        more, even with the temporary folder, raises ConfigError. ``threads``: by default, one for
        each core."""
        overflow = mkdtemp(prefix="asyncrevoke-audit-")
        self._remove = finalize(self, rmtree, overflow, ignore_errors=True)
        settings = {**DATABASE_SETTINGS, "temp_directory": overflow}
        if memory_limit is not None:
            settings["memory_limit"] = f"{memory_limit}B"
        if threads is not None:
            settings["threads"] = str(threads)
        duckdb: Any = import_module("duckdb")
        self._out_of_memory: type[Exception] = duckdb.OutOfMemoryException
        self._db: Any = duckdb.connect(":memory:", config=settings)
        self._db.execute("SET allowed_directories = [?]", [overflow])
        lock(self._db)
        self._second: Any = self._db.cursor()
        self._queries: dict[str, Text] = {}

    def close(self) -> None:
        """Free memory and remove the temporary folder."""
        self._second.close()
        self._db.close()
        self._remove()

    def add(self, name: str, table: Table) -> None:
        """Add an Arrow table without copying it."""
        self._db.register(name, table)

    def put(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
        """Create a small table of these rows."""
        declared = [
            compose("{name} {kind}", name=identifier(column), kind=identifier(kind))
            for column, kind in columns.items()
        ]
        create = "CREATE TABLE {name} ({columns})"
        self._run(compose(create, name=identifier(name), columns=joined(", ", declared)))
        if rows:  # by columns, because inserting a single row takes a millisecond
            given = zip(*rows, strict=True)
            table = pa.table([pa.array(column) for column in given], names=list(columns))
            self._insert(self._db, name, table, "SELECT * FROM chunk")

    def define(self, name: str, query: Text) -> None:
        """Define a table by a query, which runs when the table is first needed."""
        self._queries[name] = query

    def create(self, name: str, query: Text) -> None:
        """Create a table of the rows that a query returns now."""
        create = "CREATE TABLE {name} AS {query}"
        self._run(compose(create, name=identifier(name), query=query))

    def remove(self, name: str) -> None:
        """Forget the Arrow table of this name."""
        self._db.unregister(name)

    def view(self, name: str, query: Text) -> None:
        """Create a view. Its query runs whenever its rows are needed."""
        create = "CREATE VIEW {name} AS {query}"
        self._run(compose(create, name=identifier(name), query=query))

    def enumerate(self, name: str, query: Text) -> None:
        """Create an ENUM of the texts that the query returns. A value takes the memory of a
        number."""
        create = "CREATE TYPE {name} AS ENUM ({query})"
        self._run(compose(create, name=identifier(name), query=query))

    def enumerate_texts(self, name: str, texts: Sequence[str]) -> None:
        """Create an ENUM of these texts, in this order."""
        self.put(f"texts_of_{name}", {"place": "INT", "text": "STRING"}, list(enumerate(texts)))
        query = "SELECT text FROM {table} ORDER BY place"
        self.enumerate(name, compose(query, table=identifier(f"texts_of_{name}")))

    def rows(self, query: Text) -> list[tuple[Any, ...]]:
        """The rows that a query returns."""
        self._make(tables_of(query))
        found: list[tuple[Any, ...]] = self._run(query).fetchall()
        return found

    def pass_rows(self, query: Text, at_once: int, take: Callable[[RecordBatch], None]) -> None:
        """Pass the rows that a query returns to ``take``, so many at once."""
        self._make(tables_of(query))
        with self._out_of_memory_as_config_error():
            for batch in self._second.sql(query).to_arrow_reader(at_once):
                take(batch)

    def _make(self, names: Iterable[str]) -> None:
        for name in names:
            if (needed := self._queries.pop(name, None)) is not None:
                self._make(tables_of(needed))
                self.create(name, needed)

    def append(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[int]]) -> None:
        """Append these rows to a small table."""
        if rows:
            given = zip(*rows, strict=True)
            table = pa.table([pa.array(column) for column in given], names=list(columns))
            self._insert(self._db, name, table, "SELECT * FROM chunk")

    def insert(self, name: str, chunk: Table, query: Text) -> None:
        """Append the rows of ``query`` over ``chunk``."""
        self._insert(self._second, name, chunk, query)

    def _insert(self, connection: Any, name: str, chunk: Table, query: Text) -> None:  # noqa: ANN401 - DuckDB's
        connection.register("chunk", chunk)
        insert = compose("INSERT INTO {name} {query}", name=identifier(name), query=query)
        with self._out_of_memory_as_config_error():
            connection.execute(insert)
        connection.unregister("chunk")

    def uses(self, query: Text, tables: Collection[str]) -> bool:
        """Whether a query reads one of these tables, also by a table that is not made yet."""
        return any(
            name in tables or (name in self._queries and self.uses(self._queries[name], tables))
            for name in tables_of(query)
        )

    def interrupt(self) -> None:
        """End the query that another thread runs, with an error. Without effect on one that has not
        started yet."""
        self._db.interrupt()

    def _run(self, query: Text) -> Any:  # noqa: ANN401 - DuckDB's
        with self._out_of_memory_as_config_error():
            return self._db.execute(query)

    @contextmanager
    def _out_of_memory_as_config_error(self) -> Generator[None]:
        try:
            yield
        except self._out_of_memory as error:
            raise ConfigError(
                f"the comparison does not fit into the audit's memory: {error}. Raise the limit "
                "(memory_limit=...), or audit on Spark"
            ) from error
