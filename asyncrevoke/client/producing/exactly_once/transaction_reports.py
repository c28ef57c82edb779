"""Reports how transactions end, and for how long none was committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.producing.exactly_once.finished_records import result_counts
from asyncrevoke.client.runtime.hooks.observers import EndedTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncrevoke.client.producing.exactly_once.batch_transaction import BatchTransaction
    from asyncrevoke.client.producing.exactly_once.finished_records import Entry
    from asyncrevoke.client.producing.message import PublishedRecord, RecordFields
    from asyncrevoke.client.runtime.hooks.observers import Observers, TransactionOutcome


class TransactionReports:
    """``now`` is the event loop's clock, in seconds."""

    def __init__(self, observers: Observers | None, now: Callable[[], float]) -> None:
        self._observers = observers
        self._wants = observers is not None and observers.wants("on_transaction")
        self._now = now
        self._began = 0.0
        # When the first transaction after the last committed one began.
        self._since: float | None = None
        self._records = 0
        self._results: Sequence[RecordFields] = ()

    @property
    def seconds(self) -> float | None:
        """The time since the first transaction began after the last one that was committed."""
        return None if self._since is None else self._now() - self._since

    def began(
        self, records: int, batch: BatchTransaction | None, results: Sequence[RecordFields]
    ) -> None:
        """A transaction of so many records, and of a batch, begins, with these results."""
        self._began = self._now()
        if self._since is None:
            self._since = self._began
        self._records = records + (0 if batch is None else batch.count)
        self._results = results

    def nothing_waits(self) -> None:
        """There is nothing to commit."""
        self._since = None

    def committed(
        self, taken: Mapping[int, Sequence[Entry]], of_batch: Sequence[PublishedRecord]
    ) -> None:
        """The last transaction is committed, with the results of these entries and of a batch."""
        self._since = None
        self._ended("committed", None)
        observers = self._observers
        if observers is None or not observers.wants("on_results_published"):
            return
        counts = result_counts(taken)
        counts.update(("", result.topic) for result in of_batch)
        for (handler, topic), count in counts.items():
            observers.on_results_published(handler, topic, count)

    def aborted(self, outcome: TransactionOutcome, error: Exception | None) -> None:
        """The last transaction is aborted."""
        self._ended(outcome, error)

    def _ended(self, outcome: TransactionOutcome, error: Exception | None) -> None:
        results, self._results = self._results, ()
        observers = self._observers
        if observers is None or not self._wants:
            return
        headers = (
            () if observers.tracer is None else [headers for *_, headers, _ in results if headers]
        )
        seconds = self._now() - self._began
        observers.on_transaction(
            EndedTransaction(outcome, self._records, len(results), seconds, error, headers)
        )
