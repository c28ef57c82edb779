"""The files of a journal: a folder per session, and in it numbered segments.

A segment is a log (``000001.arrow``, an Arrow IPC stream that is appended to) until it is sealed
(``000001.parquet``). What a crash has torn is the end of a log, and what was flushed before stands
before it. A session's folder is locked by whoever writes it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from filelock import FileLock, Timeout

from asyncrevoke.journal.arrow import ParquetWriter, RecordBatch, Source, Table, pa, pq
from asyncrevoke.journal.encoding import SCHEMA, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG = ".arrow"
SEALED = ".parquet"
_NAME = re.compile(r"\d{6}")
_ROW_GROUP = 131_072
# Columns whose values repeat: dictionaries of the others would cost twice what all the rest does,
# for a larger file.
_REPEATED = [
    name
    for name in SCHEMA.names
    if name
    not in (
        "seq",
        "at_us",
        "started_us",
        "offset",
        "key_hash",
        "record_hash",
        "last_offset",
        "checksum",
    )
]


class Segment(NamedTuple):
    """One file."""

    path: Path

    @property
    def number(self) -> int:
        """Counts the segments of its session from 1."""
        return int(self.path.stem)

    @property
    def sealed(self) -> bool:
        """Whether it is Parquet."""
        return self.path.suffix == SEALED


class Content(NamedTuple):
    """What a segment holds. ``torn`` says why its end cannot be read, if it cannot."""

    batches: list[RecordBatch]
    torn: str | None = None


class Session(NamedTuple):
    """The folder of one session."""

    folder: Path

    def segments(self) -> list[Segment]:
        """Its segments in order; of a log that was sealed meanwhile, only the result."""
        found: dict[str, Segment] = {}
        for path in sorted(self.folder.iterdir()):
            if path.suffix in (LOG, SEALED) and _NAME.fullmatch(path.stem):
                found[path.stem] = Segment(path)  # .parquet comes after .arrow
        return list(found.values())

    def lock(self) -> FileLock:
        """To be held while it is written."""
        return FileLock(self.folder / "lock", thread_local=False)

    @property
    def live(self) -> bool:
        """Whether somebody writes it. Looking may not touch what only may be read."""
        if not os.access(self.folder, os.W_OK) or not (self.folder / "lock").exists():
            return False
        try:
            with self.lock().acquire(timeout=0):
                return False
        except Timeout:
            return True


def sessions(path: Path) -> list[Session]:
    """All sessions in a journal's folder, or the one whose folder it is."""
    candidates = [path, *sorted(child for child in path.iterdir() if child.is_dir())]
    return [session for folder in candidates if (session := Session(folder)).segments()]


def read(segment: Segment) -> Content:
    """All whole batches of a segment, with plain columns."""
    if segment.sealed:
        try:
            table = pq.read_table(segment.path, schema=SCHEMA, partitioning=None)
        except (pa.ArrowInvalid, OSError) as error:
            return Content([], f"it is not readable: {error}")
        return Content(table.to_batches())
    return _read_log(pa.memory_map(str(segment.path)) if segment.path.stat().st_size else None)


def read_blob(blob: bytes) -> Content:
    """The same of the bytes of a log."""
    return _read_log(pa.BufferReader(blob))


def _read_log(source: Source) -> Content:
    batches: list[RecordBatch] = []
    if source is None:
        return Content(batches, "it is empty")
    try:
        with pa.ipc.open_stream(source) as stream:
            metadata = stream.schema.metadata
            batches.extend(decode(batch, metadata) for batch in stream)
    except (pa.ArrowInvalid, OSError, KeyError) as error:
        return Content(batches, f"its end is torn: {error}")
    return Content(batches)


def seal(segment: Segment) -> Segment:
    """Make a log a Parquet file, without what is torn. Whoever calls holds the session's lock, or
    writes it."""
    if segment.sealed:
        return segment
    sealed = segment.path.with_suffix(SEALED)
    unfinished = sealed.with_suffix(".tmp")
    with sealing(unfinished) as writer:
        for table in _row_groups(read(segment).batches):
            writer.write_table(table, row_group_size=_ROW_GROUP)
    with unfinished.open("rb+") as file:
        os.fsync(file.fileno())
    unfinished.replace(sealed)
    sync_folder(sealed.parent)
    segment.path.unlink()
    return Segment(sealed)


def sealing(path: Path) -> ParquetWriter:
    """Writes rows as Parquet."""
    return pq.ParquetWriter(path, SCHEMA, compression="zstd", use_dictionary=_REPEATED)


def _row_groups(batches: list[RecordBatch]) -> Iterator[Table]:
    some: list[RecordBatch] = []
    rows = 0
    for batch in batches:
        some.append(batch)
        rows += batch.num_rows
        if rows >= _ROW_GROUP:
            yield pa.Table.from_batches(some, SCHEMA)
            some, rows = [], 0
    if some:
        yield pa.Table.from_batches(some, SCHEMA)


def seal_session(session: Session) -> list[Segment] | None:
    """Seal the logs of a session whose writer has ended; None if somebody writes it."""
    try:
        with session.lock().acquire(timeout=0):
            return [seal(segment) for segment in session.segments() if not segment.sealed]
    except Timeout:
        return None


def sync_folder(folder: Path) -> None:
    """Make names in it last, where the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
