"""How many finished records one transaction takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.client.core.commit.fitting_records import TransactionRoom

if TYPE_CHECKING:
    from asyncrevoke.client.producing.exactly_once.finished_records import FinishedRecords

# Of all transactions: so many records, and bytes of their results. One record may have more.
MOST_RECORDS: Final = 65_536
MOST_BYTES: Final = 32 * 1024 * 1024
# A transaction that has taken this part of transaction_timeout is followed by a longer one, which
# takes about twice as much of it.
_SHORT: Final = 0.25


class TransactionLimit:
    """At most 65,536 records and 32 MiB of results, and as many records as are written within
    ``timeout``, the seconds of ``transaction_timeout``.

    After a transaction that was not written in time, the next one takes half of its records, at
    least one. So repetitions end: with a committed transaction, as soon as its records are few
    enough for the brokers; if they cannot write one record in time, each repetition has one. After
    a commit within a quarter of ``timeout``, a transaction takes twice as many records as before.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self.records = MOST_RECORDS

    def room(self, finished: FinishedRecords) -> TransactionRoom | None:
        """What the next transaction takes of these records; None: all of them."""
        if finished.count <= self.records and finished.size <= MOST_BYTES:
            return None
        return TransactionRoom(self.records, MOST_BYTES, finished.size_of)

    def timed_out(self, records: int) -> None:
        """A transaction with so many records was not written in time."""
        if records:
            self.records = min(self.records, max(1, records // 2))

    def committed(self, seconds: float) -> None:
        """A transaction was committed within so many seconds."""
        if seconds < self._timeout * _SHORT:
            self.records = min(MOST_RECORDS, self.records * 2)
