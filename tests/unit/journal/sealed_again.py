"""Sealed segments with other rows than were written, and with the digest of these rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncrevoke.journal.files import PRIVATE
from asyncrevoke.journal.format.arrow import pa
from asyncrevoke.journal.format.rows import COMPACT_SCHEMA, SCHEMA
from asyncrevoke.journal.format.schema import VERSION
from asyncrevoke.journal.format.sealed import About, SealedFile
from asyncrevoke.journal.segments import read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from asyncrevoke.journal.segments import Segment


def seal_again(segment: Segment, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Replace a sealed segment by one whose rows ``change`` has changed. Its digest is right."""
    content = read(segment)
    rows = pa.Table.from_batches(content.batches, COMPACT_SCHEMA).to_pylist()
    change(rows)
    segment.path.unlink()
    seal_rows(segment.path, rows, content.about)


def seal_rows(path: Path, rows: list[dict[str, Any]], about: About | None = None) -> None:
    """Write a sealed segment of these rows. Without ``about`` it is the first one of the session
    that its folder names."""
    about = about or About(path.parent.name, 1, None, "0" * 64, VERSION)
    with SealedFile(path, PRIVATE) as file:
        file.write(pa.RecordBatch.from_pylist(rows, SCHEMA))
        file.seal(about)
