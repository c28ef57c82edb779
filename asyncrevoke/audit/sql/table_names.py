"""Finds the tables that a query names: after FROM or JOIN. An alias always follows AS."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

# IS DISTINCT FROM is followed by table.column, which is no table.
_TABLE = re.compile(r"\b(FROM|JOIN)\s+(\w+)\b(?!\.)(\s+AS\s+\w+)?")


def tables_of(query: str) -> tuple[str, ...]:
    """The names of the tables, each once."""
    return tuple(dict.fromkeys(name for _, name, _ in _TABLE.findall(query)))


def with_places(query: str, tables: Container[str]) -> str:
    """The query with a ``{name}`` placeholder for each of these tables, aliased to the same name,
    for ``spark.sql``."""

    def place(found: re.Match[str]) -> str:
        word, name, other = found.groups()
        return f"{word} {{{name}}}{other or f' AS {name}'}" if name in tables else found[0]

    return _TABLE.sub(place, query)
