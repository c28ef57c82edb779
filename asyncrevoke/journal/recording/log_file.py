"""Writes the log of a session, segment by segment."""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING

from asyncrevoke.journal.files import PRIVATE, create_file
from asyncrevoke.journal.format.frames import Frame, SegmentHeader, header_frame
from asyncrevoke.journal.recording.encoding import encode
from asyncrevoke.journal.recording.entries import EncodedRows, Entry, Queue
from asyncrevoke.journal.segments import LOG, JournalSession, Segment, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


# Entries that are encoded at once.
_ENTRIES = 4096


class LogFile:
    """Appends entries. Used by one thread at a time. With ``keep_frames``, :meth:`take_written`
    returns the frames of the rows that were written. ``new_in`` are the folders that have a new
    entry, that of the session among them."""

    def __init__(
        self,
        session: JournalSession,
        group: str | None,
        *,
        new_in: Iterable[Path] = (),
        segment_bytes: int,
        segment_seconds: float,
        keep_frames: bool = False,
        hashed: bool = True,
        mode: int = PRIVATE,
    ) -> None:
        self._mode = mode
        self._hashed = hashed
        self._keep_frames = keep_frames
        self._written: list[Frame] = []
        self._full: list[Segment] = []
        self._session = session
        self._group = group
        self._segment_bytes = segment_bytes
        self._segment_seconds = segment_seconds
        self._number = 0
        # The number of the next row.
        self._row = 0
        self._dirty = False
        self._begin(None)
        for folder in new_in:
            sync_folder(folder)

    def _begin(self, previous: bytes | None) -> None:
        self._number += 1
        self._segment = Segment(self._session.folder / f"{self._number:06}{LOG}")
        self._descriptor = create_file(self._segment.path, self._mode)
        self._size = 0
        self._since = time.monotonic()
        self._digest = hashlib.sha256()
        name = self._session.folder.name
        header = SegmentHeader(name, self._group, self._number, previous)
        self._write(header_frame(header, self._row).data)
        sync_folder(self._session.folder)

    @property
    def piece_header(self) -> SegmentHeader:
        """The header for pieces of this session's log, which are sent to a topic."""
        return SegmentHeader(self._session.folder.name, self._group, 0)

    def take(self, queue: Queue) -> None:
        """Write the whole queue. Its rows are on disk only after :meth:`sync`."""
        entries: list[Entry] = []
        first = 0
        while queue:
            try:
                seq, item = queue.popleft()
            except IndexError:
                break  # encode_last() has taken it, and appends it again
            if isinstance(item, EncodedRows):
                self._encode(entries, first)
                self._append(item.frames)
                entries = []
                continue
            if not entries:
                first = seq
            entries.append(item)
            if len(entries) >= _ENTRIES:
                self._encode(entries, first)
                entries = []
        self._encode(entries, first)

    def _encode(self, entries: list[Entry], seq: int) -> None:
        if entries:
            self._append(encode(entries, seq, hashed=self._hashed))

    def _append(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self._write(frame.data)
            self._row = frame.first + frame.rows
            if self._keep_frames:
                self._written.append(frame)
        age = time.monotonic() - self._since
        if self._size >= self._segment_bytes or age >= self._segment_seconds:
            self._full.append(self.close())
            self._begin(self._digest.digest())

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._descriptor, left) :]
        self._digest.update(data)
        self._size += len(data)
        self._dirty = True

    def take_written(self) -> list[Frame]:
        """The frames of the rows that were written since the last call."""
        written, self._written = self._written, []
        return written

    def take_full(self) -> list[Segment]:
        """The segments that were ended since the last call because of their size or age."""
        full, self._full = self._full, []
        return full

    def sync(self) -> None:
        """Return when all written rows are on disk."""
        if self._dirty:
            os.fsync(self._descriptor)
            self._dirty = False

    def close(self) -> Segment:
        """Sync and end this segment."""
        self.sync()
        os.close(self._descriptor)
        return self._segment
