"""Keeps queries away from files, extensions and the variables of Python."""

from __future__ import annotations

from typing import Any, Final

# No query changes these settings, nor those after them.
DATABASE_SETTINGS: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


def lock(database: Any) -> None:  # noqa: ANN401 - of an extra
    """From now on queries of this connection of DuckDB read and write no other file than before,
    and change no setting."""
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")
