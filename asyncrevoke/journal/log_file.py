"""The log that a session writes, segment by segment."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from asyncrevoke.journal.encoding import encode, log_schema
from asyncrevoke.journal.entries import Batches
from asyncrevoke.journal.segments import LOG, Segment, Session, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncrevoke.journal.arrow import Buffer, RecordBatch
    from asyncrevoke.journal.entries import Entry, Queue

# What goes to the disk or to a topic at once.
_ENTRIES = 4096


class LogFile:
    """Appends entries; used by one thread at a time. ``on_full`` is given each segment that is
    complete, when the next one is begun, and ``on_batch`` each batch that was written."""

    def __init__(
        self,
        session: Session,
        group: str | None,
        *,
        segment_bytes: int,
        segment_seconds: float,
        on_full: Callable[[Segment], None],
        on_batch: Callable[[RecordBatch], None] | None = None,
        hashed: bool = True,
    ) -> None:
        self._hashed = hashed
        self._on_batch = on_batch
        self._session = session
        self.schema = log_schema(session.folder.name, group, hashed=hashed)
        self._segment_bytes = segment_bytes
        self._segment_seconds = segment_seconds
        self._on_full = on_full
        self._number = 0
        self._dirty = False
        self._begin()

    def _begin(self) -> None:
        self._number += 1
        self._segment = Segment(self._session.folder / f"{self._number:06}{LOG}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(self._segment.path, flags, 0o644)
        self._size = 0
        self._since = time.monotonic()
        self._write(self.schema.serialize())
        sync_folder(self._session.folder)

    def take(self, queue: Queue) -> None:
        """Write all that is in the queue; it is not on disk before :meth:`sync`."""
        entries: list[Entry] = []
        first = 0
        while queue:
            try:
                seq, item = queue.popleft()
            except IndexError:
                break  # it is being encoded, and comes again
            if isinstance(item, Batches):
                self._encode(entries, first)
                self._append(item.batches)
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

    def _append(self, batches: Iterable[RecordBatch]) -> None:
        for batch in batches:
            self._write(batch.serialize())
            if self._on_batch is not None:
                self._on_batch(batch)
        if self._size >= self._segment_bytes or self._is_old():
            self._rotate()

    def _is_old(self) -> bool:
        return time.monotonic() - self._since >= self._segment_seconds

    def _write(self, buffer: Buffer) -> None:
        left = memoryview(buffer)
        while left:
            left = left[os.write(self._descriptor, left) :]
        self._size += buffer.size
        self._dirty = True

    def sync(self) -> None:
        """Return when all is on disk."""
        if self._dirty:
            os.fsync(self._descriptor)
            self._dirty = False

    def _rotate(self) -> None:
        full = self.close()
        self._begin()
        self._on_full(full)

    def close(self) -> Segment:
        """Put all on disk, and write no more to this segment."""
        self.sync()
        os.close(self._descriptor)
        return self._segment
