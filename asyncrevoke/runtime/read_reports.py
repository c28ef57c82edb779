"""Reports the records that a loop over single records has taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.model import PollResult

if TYPE_CHECKING:
    from asyncrevoke.runtime.observers import Observers
    from asyncrevoke.runtime.record_iterator import RecordIterator


class ReadReports:
    """Reports them to observers now and then, since the loop may never take the rest of a batch."""

    def __init__(self, observers: Observers | None) -> None:
        self._observers = observers
        self._reader: RecordIterator | None = None

    def read_by(self, reader: RecordIterator) -> None:
        """Records are taken from this iterator from now on."""
        self._reader = reader

    def report(self) -> None:
        """Report what was taken since the last call."""
        if self._observers is not None and self._reader is not None:
            read = self._reader.take_unreported()
            if read:
                self._observers.on_poll(PollResult(read))
