"""The views of a journal in DuckDB, on one machine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from asyncrevoke.journal.reading import check_damage, read_journal
from asyncrevoke.journal.views.database_locks import DATABASE_SETTINGS, lock
from asyncrevoke.journal.views.definitions import VIEWS

if TYPE_CHECKING:
    from pathlib import Path


def open_views(path: Path, max_memory: int | None = None) -> Any:  # noqa: ANN401 - of an extra
    """A DuckDB connection (extra ``audit``) with the rows of a journal as ``journal``, and the
    views ``ownership``, ``rebalances``, ``handler_durations`` and ``stalls``. Times are in UTC.

    The rows are those at the time of the call, in memory; for ``max_memory`` see
    :func:`~asyncrevoke.journal.reading.read_journal`. Queries cannot read or write files; export
    results, for example, as Arrow tables. Raises ConfigError, and DamagedJournalError if rows were
    lost or changed.
    """
    content = read_journal(path, max_memory)
    check_damage(content.sessions)
    rows = content.table
    database = import_module("duckdb").connect(":memory:", config=DATABASE_SETTINGS)
    database.register("journal", rows)
    for name, query in VIEWS.items():
        written = query.replace("timestamp(", "make_timestamp(")
        database.execute(f"CREATE VIEW {name} AS {written}")
    lock(database)
    return database
