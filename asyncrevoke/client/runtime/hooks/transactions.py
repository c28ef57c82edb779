"""Passes what ends in transactions to whoever writes them (``processing="exactly_once"``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.model import Record, TopicPartition, TransactionProgress


class WritesTransactions(Protocol):
    """Writes the results and the offsets of finished records in transactions. Every method returns
    at once.

    Implemented by :class:`asyncrevoke.client.producing.exactly_once.RecordTransactions`.
    """

    def transaction_due(self) -> None:
        """The core asks for a transaction."""

    def records_finished(self, records: Sequence[Record]) -> None:
        """The handlers of these records have ended: they are done when their results are
        committed."""

    def records_abandoned(self, records: Sequence[Record]) -> None:
        """These records are not done: their results are dropped."""

    def partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing of these partitions may be committed any more."""

    def waiting_records(self, partitions: Iterable[TopicPartition]) -> Iterable[Record]:
        """The finished records of these partitions that are in no committed transaction."""
        ...

    def progress(self) -> TransactionProgress:
        """What waits for a transaction now."""
        ...

    async def commit(self) -> None:
        """Return when each record that has finished by now is in a committed transaction, or
        failed, or can be in none: one before it will not finish, and the completion map has no
        room. If cancelled, the transactions go on."""

    async def aclose(self) -> None:
        """Write nothing more; abort what is open, unless its commit was requested."""


class TransactionHook:
    """``writer`` writes the transactions of a session; None without any."""

    def __init__(self) -> None:
        self.writer: WritesTransactions | None = None

    def write_by(self, writer: WritesTransactions) -> None:
        """From now on ``writer`` writes them."""
        self.writer = writer
