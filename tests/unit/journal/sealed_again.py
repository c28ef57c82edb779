"""Sealed segments with other rows than were written, and with the digest of these rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncrevoke.journal.files import PRIVATE
from asyncrevoke.journal.format.arrow import pa
from asyncrevoke.journal.format.rows import COMPACT_SCHEMA, SCHEMA
from asyncrevoke.journal.format.sealed import SealedFile
from asyncrevoke.journal.segments import read

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.journal.segments import Segment


def seal_again(segment: Segment, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Replace a sealed segment by one whose rows ``change`` has changed. Its digest is right."""
    content = read(segment)
    assert content.about is not None
    rows = pa.Table.from_batches(content.batches, COMPACT_SCHEMA).to_pylist()
    change(rows)
    segment.path.unlink()
    with SealedFile(segment.path, PRIVATE) as file:
        file.write(pa.RecordBatch.from_pylist(rows, SCHEMA))
        file.seal(content.about)
