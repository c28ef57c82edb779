"""Rows of a journal, as tests compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncrevoke.journal.format.rows import SCHEMA
from asyncrevoke.journal.reading import read_journal

if TYPE_CHECKING:
    from pathlib import Path


def plain_table(path: Path) -> Any:
    """All rows, without dictionaries."""
    return read_journal(path).table.cast(SCHEMA)


def rows_of(path: Path, *kinds: str) -> list[dict[str, Any]]:
    """Of these kinds."""
    found = plain_table(path).sort_by([("session_id", "ascending"), ("seq", "ascending")])
    return [row for row in found.to_pylist() if row["kind"] in kinds]


def attempts_of(path: Path) -> list[tuple[int, int, int | None, str]]:
    """Partition, offset, number and outcome of each."""
    return [
        (row["partition"], row["offset"], row["attempt"], row["outcome"])
        for row in rows_of(path, "ATTEMPT")
    ]
