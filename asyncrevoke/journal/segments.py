"""The files of a journal: a folder for each session, and numbered segments in it.

A segment is a log of frames (``000001.log``) until it is sealed (``000001.parquet``). A kill can
leave only the end of the last log incomplete; all flushed frames are complete. The writer of a
session holds the lock of its folder.
"""

from __future__ import annotations

import io
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from filelock import FileLock, Timeout

from asyncrevoke.journal.files import PRIVATE, check_no_link, open_file
from asyncrevoke.journal.format.arrow import RecordBatch, pa, pc
from asyncrevoke.journal.format.columns import text_size
from asyncrevoke.journal.format.frames import FrameReader
from asyncrevoke.journal.format.rows import SCHEMA, RowMemory, record_batches, with_texts
from asyncrevoke.journal.format.schema import RowKind, facts_of
from asyncrevoke.journal.format.sealed import (
    ROW_GROUP,
    About,
    Sealed,
    SealedFile,
    read_sealed,
    read_sealed_file,
)
from asyncrevoke.journal.session_id import is_session_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LOG = ".log"
SEALED = ".parquet"
# The kind of a row that readers add for a damaged log.
DAMAGED = "DAMAGED"
_UNFINISHED = ".tmp"
_NAME = re.compile(r"\d{6}")
# Limit for the bytes of a piece. Pieces have 500,000 bytes, or a single longer row with an error of
# 4,096 characters or the facts of a session.
_LARGEST_PIECE = 2**20
# A row has more than four bytes.
_ROWS_OF_PIECE = 2**17
# Limit for the characters of all rows: a run stores its text once, and each decoded row has it.
_TEXTS_OF_PIECE = 2**26
_TOO_LARGE = "it is larger than a journal writes"


class Segment(NamedTuple):
    """One file of a session."""

    path: Path

    @property
    def number(self) -> int:
        """The number of the segment in its session, from 1."""
        return int(self.path.stem)

    @property
    def sealed(self) -> bool:
        """Whether it is Parquet."""
        return self.path.suffix == SEALED


class Content(NamedTuple):
    """The content of a segment.

    ``torn`` says why its end cannot be read if a process was writing it; ``damaged`` describes
    other damage. ``about`` has its header and digests, None in an empty log. ``sessions`` are the
    session ids of its rows.
    """

    batches: list[RecordBatch]
    torn: str | None = None
    damaged: str | None = None
    about: About | None = None
    sessions: tuple[str, ...] = ()


class JournalSession(NamedTuple):
    """The folder of one session."""

    folder: Path

    def segments(self) -> list[Segment]:
        """The segments in order. A sealed segment has the Parquet file only."""
        found: dict[str, Segment] = {}
        for path in sorted(self.folder.iterdir()):
            if path.suffix in (LOG, SEALED) and _NAME.fullmatch(path.stem):
                check_no_link(path)
                found[path.stem] = Segment(path)  # .parquet comes after .log
        return list(found.values())

    def lock(self) -> FileLock:
        """The lock that the writer holds."""
        path = self.folder / "lock"
        check_no_link(path)
        return FileLock(path, mode=PRIVATE, thread_local=False)

    @property
    def live(self) -> bool:
        """Whether a process is writing the session. False in a read-only folder."""
        if not os.access(self.folder, os.W_OK) or not (self.folder / "lock").exists():
            return False
        try:
            with self.lock().acquire(timeout=0):
                return False
        except Timeout:
            return True


def sessions(path: Path) -> list[JournalSession]:
    """All sessions in a journal's folder, or the one whose folder ``path`` is."""
    children = sorted(child for child in path.iterdir() if child.is_dir())
    for child in children:
        check_no_link(child)
    candidates = [path, *children]
    return [session for folder in candidates if (session := JournalSession(folder)).segments()]


def sessions_without_rows(path: Path) -> frozenset[str]:
    """The ids of the sessions in a journal's folder that have no segment. Empty if the folder is
    not on this machine."""
    children = list(path.iterdir()) if path.is_dir() else []
    return frozenset(
        child.name
        for child in children
        if is_session_id(child.name)
        and child.is_dir()
        and not child.is_symlink()
        and not JournalSession(child).segments()
    )


def read(segment: Segment, memory: RowMemory | None = None) -> Content:
    """All complete batches of a segment. Columns of texts are dictionaries.

    Raises ConfigError for a link, and for rows beyond ``memory`` (default: half of the machine's
    memory).
    """
    memory = memory or RowMemory()
    try:
        return _read(segment, memory)
    except FileNotFoundError:
        # A process has sealed it meanwhile.
        sealed = Segment(segment.path.with_suffix(SEALED))
        if segment.sealed or not sealed.path.exists():
            raise
        return _read(sealed, memory)


def _read(segment: Segment, memory: RowMemory) -> Content:
    path = segment.path
    if segment.sealed:
        return _of_sealed(read_sealed(path, memory))
    with open_file(path) as file:
        reader = FrameReader(file)
        batches: list[RecordBatch] = []
        for batch in record_batches(reader, ROW_GROUP, compact=True):
            memory.add(batch, path)
            batches.append(batch)
        return _of_frames(reader, batches)


def read_blob(blob: bytes) -> Content:
    """Like :func:`read`, from the bytes of a log, without dictionaries."""
    reader = FrameReader(io.BytesIO(blob))
    return _of_frames(reader, list(record_batches(reader, ROW_GROUP)))


def read_file(
    name: str,
    blob: bytes,
    take: Callable[[RecordBatch], None],
    columns: Sequence[str] = SCHEMA.names,
) -> Content:
    """Check a segment and pass its rows to ``take``, one batch at a time, from the name and the
    bytes of its file. Of a sealed segment, only these columns have values.

    The result has no rows. If a sealed segment is damaged, the rows that were passed on may be
    wrong. A damaged log has the rows before the damage.
    """
    if name.endswith(SEALED):
        found = read_sealed_file(io.BytesIO(blob), name, take, columns)
        return _of_sealed(found)._replace(batches=[])
    reader = FrameReader(io.BytesIO(blob))
    named: dict[str, None] = {}
    for batch in _named_batches(reader, Path(name).parent.name):
        if reader.header is not None:
            named[reader.header.session] = None
        take(batch)
    return _of_frames(reader, [])._replace(sessions=tuple(named))


def rows_of_log(blob: bytes, session: str) -> Iterator[RecordBatch]:
    """The complete batches of a log, one at a time.

    If the header is damaged, the rows get ``session``, and the group in the BEGIN row. If the log
    is damaged, a last row has the kind :data:`DAMAGED`, and its ``facts`` describe the damage.
    """
    reader = FrameReader(io.BytesIO(blob))
    yield from _named_batches(reader, session)
    if reader.damaged is not None:
        yield damaged_row(session, reader.damaged)


def _named_batches(reader: FrameReader, session: str) -> Iterator[RecordBatch]:
    """The rows of a log. If its header is damaged, they get ``session``, and the group in the BEGIN
    row."""
    group: str | None = None
    for batch in record_batches(reader, ROW_GROUP):
        if reader.header is not None:
            yield batch
        else:
            group = group or _group_of(batch)
            yield with_texts(batch, {"session_id": session, "group": group})


def damaged_row(session: str, what: str) -> RecordBatch:
    """A row of the kind :data:`DAMAGED`."""
    row = {"session_id": session, "kind": DAMAGED, "facts": what}
    return pa.RecordBatch.from_pylist([row], SCHEMA)


def _group_of(batch: RecordBatch) -> str | None:
    """The group in the BEGIN row of a batch, if it has one."""
    first = batch.slice(0, 1).to_pylist()[0]
    if first["kind"] != RowKind.BEGIN:
        return None
    group = facts_of(first["facts"]).get("group")
    return group if isinstance(group, str) else None


def read_piece(blob: bytes) -> Content:
    """Like :func:`read_blob`, for untrusted bytes. Anything larger than a piece counts as
    damaged."""
    if len(blob) > _LARGEST_PIECE:
        return Content([], None, _TOO_LARGE)
    rows = texts = 0
    for batch in FrameReader(io.BytesIO(blob)).batches():
        rows += batch.rows
        texts += text_size(batch.columns)
        if rows > _ROWS_OF_PIECE or texts > _TEXTS_OF_PIECE:
            return Content([], None, _TOO_LARGE)
    return read_blob(blob)


def problem_of_piece(piece: Content) -> str | None:
    """Why a piece is rejected; None if it is accepted."""
    if (problem := piece.damaged or piece.torn) is not None:
        return problem
    if piece.about is None or not piece.batches:
        return "it has no rows of a journal"
    if not is_session_id(piece.about.session):
        return "its session id is invalid"
    if piece.about.segment != 0:
        return f"it has the segment number {piece.about.segment:06}, and pieces in topics have none"
    return None


def _of_sealed(found: Sealed) -> Content:
    sessions = _sessions_in(found.batches)
    return Content(found.batches, None, found.damaged, found.about, sessions)


def _of_frames(reader: FrameReader, batches: list[RecordBatch]) -> Content:
    sessions = _sessions_in(batches)
    return Content(batches, reader.torn, reader.damaged, _about(reader), sessions)


def _sessions_in(batches: Sequence[RecordBatch]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for batch in batches:
        for name in pc.unique(batch.column("session_id")).to_pylist():
            if name is not None:
                found[name] = None
    return tuple(found)


def _about(reader: FrameReader) -> About | None:
    header = reader.header
    if header is None:
        return None
    previous = None if header.previous is None else header.previous.hex()
    return About(header.session, header.segment, previous, reader.digest.hex(), header.version)


def seal(segment: Segment, stop: Callable[[], bool] = lambda: False) -> Segment:
    """Convert a log to a Parquet file, without an incomplete end. The caller holds the session's
    lock or is its writer.

    Takes the memory of one row group. Keeps the log if it is damaged or has no rows, or if
    ``stop()``, which is called between row groups, returns true.
    """
    if segment.sealed:
        return segment
    unfinished = segment.path.with_suffix(_UNFINISHED)
    # The file gets the permissions of the log.
    mode = stat.S_IMODE(segment.path.lstat().st_mode) & 0o666
    with SealedFile(unfinished, mode) as sealed:
        about = _copy(segment, sealed, stop)
        if about is None:
            return segment
        sealed.seal(about)
    result = Segment(segment.path.with_suffix(SEALED))
    unfinished.replace(result.path)
    sync_folder(result.path.parent)
    segment.path.unlink()
    return result


def _copy(segment: Segment, sealed: SealedFile, stop: Callable[[], bool]) -> About | None:
    """Write all rows. None if the log must not be sealed."""
    with open_file(segment.path) as file:
        reader = FrameReader(file)
        for batch in record_batches(reader, ROW_GROUP, compact=True):
            if stop():
                return None
            sealed.write(batch)
    if reader.damaged is not None or not reader.next_row:
        return None
    return _about(reader)


def seal_session(
    session: JournalSession, stop: Callable[[], bool] = lambda: False
) -> list[Segment] | None:
    """Seal the logs of a session whose writer has ended. None if a process is still writing it."""
    try:
        with session.lock().acquire(timeout=0):
            _clean(session)
            logs = [segment for segment in session.segments() if not segment.sealed]
            return [result for log in logs if (result := seal(log, stop)).sealed]
    except Timeout:
        return None


def _clean(session: JournalSession) -> None:
    """Remove the temporary files of a process that was killed while sealing."""
    for path in session.folder.glob(f"*{_UNFINISHED}"):
        path.unlink()
    for path in session.folder.glob(f"*{SEALED}"):
        path.with_suffix(LOG).unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Sync the folder, so that its file names are durable, if the system supports that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
