"""The database of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.audit.sql.dialect import SqlDialect
    from asyncrevoke.audit.sql.text import Text


class Database(Protocol):
    """Runs SQL. Has the table ``journal``, described in ``rules/views.py``. Implemented by
    :class:`~asyncrevoke.audit.local_database.LocalDatabase` and
    :class:`~asyncrevoke.spark.audits.database.SparkDatabase`."""

    @property
    def dialect(self) -> SqlDialect:
        """The SQL that differs between engines."""
        ...

    def put(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
        """Create a small table of these rows."""

    def define(self, name: str, query: Text) -> None:
        """Create a table of the query's rows."""

    def rows(self, query: Text) -> list[tuple[Any, ...]]:
        """The query's rows."""
        ...
