"""Writes the folder of ``asyncrevoke journal collect``, from pieces of logs in a topic.

The topic is untrusted. A piece is written only if it is complete, belongs to one session with a
valid id, repeats no row, and is no larger than what ``KafkaSink`` sends. So no name in the topic
leads out of the folder, and the folder is no larger than the topic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from asyncrevoke.client.errors import JournalError
from asyncrevoke.journal.files import PRIVATE, folder_mode
from asyncrevoke.journal.format.schema import VERSION
from asyncrevoke.journal.format.sealed import About, SealedFile
from asyncrevoke.journal.segments import SEALED, problem_of_piece, read_piece
from asyncrevoke.journal.session_id import SessionId

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.journal.format.arrow import RecordBatch

# Limit for sessions: more than a group starts in years.
MOST_SESSIONS: Final = 10_000
# Limit for groups whose committed offsets are requested.
_MOST_GROUPS: Final = 100
# Limit for files that are open for writing.
_MOST_OPEN: Final = 100
# Limit for gaps in the rows of a session, which retention or an attacker may leave.
_MOST_RANGES: Final = 10_000


class CollectedFolder:
    """Writes pieces to files; :meth:`seal` completes them. ``sessions`` and ``rows`` count what was
    written; ``groups`` are those of the sessions."""

    def __init__(self, folder: Path, most_sessions: int = MOST_SESSIONS) -> None:
        self._folder = folder
        self._most_sessions = most_sessions
        # Ordered by the time of the last piece.
        self._open: OrderedDict[SessionId, SealedFile] = OrderedDict()
        self._segments: dict[SessionId, int] = {}
        self._known: dict[SessionId, RowRanges] = {}
        self.rows = 0
        self.groups: set[str] = set()

    @property
    def sessions(self) -> int:
        """The number of sessions of which rows were written."""
        return len(self._known)

    def begin(self) -> None:
        """Create the folder."""
        self._folder.mkdir(folder_mode(PRIVATE), parents=True, exist_ok=True)

    def take(self, piece: bytes) -> bool:
        """Write the rows of a piece. Returns False, and writes nothing, for an invalid piece.

        Raises JournalError if there are too many sessions; OSError.
        """
        content = read_piece(piece)
        if problem_of_piece(content) is not None or content.about is None:
            return False
        name = SessionId(content.about.session)
        first, end = _rows_of(content.batches)
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= self._most_sessions:
                raise JournalError(
                    f"the topic has more than {self._most_sessions:,} sessions: raise the "
                    "limit with max_sessions=N if no other program has written to the topic"
                )
            known = self._known[name] = RowRanges()
        if not known.add(first, end):
            return False
        group = content.batches[0].column("group")[0].as_py()
        if isinstance(group, str) and len(self.groups) < _MOST_GROUPS:
            self.groups.add(group)
        file = self._file_of(name)
        for batch in content.batches:
            file.write(batch)
        self.rows += end - first
        return True

    def _file_of(self, name: SessionId) -> SealedFile:
        file = self._open.get(name)
        if file is None:
            if len(self._open) >= _MOST_OPEN:
                self._seal(*self._open.popitem(last=False))
            number = self._segments[name] = self._segments.get(name, 0) + 1
            path = self._folder / name
            if number == 1:
                path.mkdir(folder_mode(PRIVATE))
            file = self._open[name] = SealedFile(path / f"{number:06}{SEALED}", PRIVATE)
        self._open.move_to_end(name)
        return file

    def _seal(self, name: SessionId, file: SealedFile) -> None:
        file.seal(About(name, self._segments[name], None, None, VERSION))

    def seal(self) -> None:
        """Seal all files, after the topic was read to its end."""
        while self._open:
            self._seal(*self._open.popitem())

    def abandon(self) -> None:
        """Remove the files that are not sealed."""
        while self._open:
            _, file = self._open.popitem()
            file.abandon()


class RowRanges:
    """The row numbers of a session that were added, as sorted ranges that do not touch."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def add(self, first: int, end: int) -> bool:
        """Add the numbers from ``first`` up to, not including, ``end``. Returns False if one of
        them was added before, or there are too many gaps."""
        firsts, ends = self._firsts, self._ends
        at = bisect_right(firsts, first)
        if (at and ends[at - 1] > first) or (at < len(firsts) and firsts[at] < end):
            return False
        follows = bool(at) and ends[at - 1] == first
        leads = at < len(firsts) and firsts[at] == end
        if follows and leads:
            ends[at - 1] = ends[at]
            del firsts[at], ends[at]
        elif follows:
            ends[at - 1] = end
        elif leads:
            firsts[at] = first
        elif len(firsts) >= _MOST_RANGES:
            return False
        else:
            firsts.insert(at, first)
            ends.insert(at, end)
        return True


def _rows_of(batches: list[RecordBatch]) -> tuple[int, int]:
    """The number of the first row, and the number after the last row. Row numbers are
    consecutive."""
    first = batches[0].column("seq")[0].as_py()
    rows = sum(batch.num_rows for batch in batches)
    return first, first + rows
