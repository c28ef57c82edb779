"""Prevents queries from using files, extensions and variables of Python."""

from __future__ import annotations

from typing import Any, Final

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
