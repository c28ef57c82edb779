"""Finds the tables that a query names: after FROM or JOIN. An alias always follows AS."""

from __future__ import annotations

import re

# IS DISTINCT FROM is followed by table.column, which is no table.
_TABLE = re.compile(r"\b(FROM|JOIN)\s+(\w+)\b(?!\.)(\s+AS\s+\w+)?")


def tables_of(query: str) -> tuple[str, ...]:
    """The names of the tables, each once."""
    return tuple(dict.fromkeys(name for _, name, _ in _TABLE.findall(query)))
