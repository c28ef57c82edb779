"""The views of a journal in DuckDB, on one machine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from asyncrevoke.journal.reading import check_damage, read_journal
from asyncrevoke.journal.views.definitions import VIEWS

if TYPE_CHECKING:
    from pathlib import Path

# lock() prevents queries from changing these settings.
DATABASE_SETTINGS: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


def lock(database: Any) -> None:  # noqa: ANN401 - of an extra
    """Prevent queries of this DuckDB connection from opening files that are not open yet, and from
    changing settings."""
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")


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
