"""Reports how transactions end, and for how long none was committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.producing.exactly_once.finished_records import owners_of, result_counts
from asyncrevoke.client.runtime.hooks.observers import EndedTransaction
from asyncrevoke.client.runtime.hooks.recorders import WrittenResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from asyncrevoke.client.core.commit.transactional_committer import ComposedOffsets
    from asyncrevoke.client.model import Record
    from asyncrevoke.client.producing.exactly_once.batch_transaction import BatchTransaction
    from asyncrevoke.client.producing.exactly_once.finished_records import Entry
    from asyncrevoke.client.producing.message import RecordFields, ResultOfRecord
    from asyncrevoke.client.producing.transactions.transaction import PlacedRecord
    from asyncrevoke.client.runtime.hooks.observers import Observers, TransactionOutcome
    from asyncrevoke.client.runtime.hooks.recorders import SessionRecorder


class TransactionReports:
    """``recorder`` is that of the journal. ``now`` is the event loop's clock, in seconds."""

    def __init__(
        self,
        observers: Observers | None,
        recorder: SessionRecorder | None,
        now: Callable[[], float],
    ) -> None:
        self._observers = observers
        self._recorder = recorder
        self.written = None if recorder is None else self._record_written
        self._wants = observers is not None and observers.wants("on_transaction")
        self._now = now
        self._began = 0.0
        # When the first transaction after the last committed one began.
        self._since: float | None = None
        self._records = 0
        self._results: Sequence[RecordFields] = ()
        self._of_batch: Sequence[ResultOfRecord] = ()
        self._taken: Mapping[int, Sequence[Entry]] = {}

    @property
    def seconds(self) -> float | None:
        """The time since the first transaction began after the last one that was committed."""
        return None if self._since is None else self._now() - self._since

    @property
    def duration(self) -> float:
        """The seconds since the last transaction began."""
        return self._now() - self._began

    def began(
        self,
        records: int,
        batch: BatchTransaction | None,
        results: Sequence[RecordFields],
        of_batch: Sequence[ResultOfRecord],
        taken: Mapping[int, Sequence[Entry]],
    ) -> None:
        """A transaction of so many records, and of a batch, begins, with these results: first those
        of the batch, then those of the entries."""
        self._began = self._now()
        if self._since is None:
            self._since = self._began
        self._records = records + (0 if batch is None else batch.count)
        self._results = results
        self._of_batch, self._taken = of_batch, taken

    def _record_written(self, placed: Iterable[PlacedRecord]) -> None:
        """All results are written, and nothing is committed."""
        assert self._recorder is not None
        sources = dict(zip(map(id, self._results), self._records_of_results(), strict=True))
        self._recorder.results_written(
            [
                WrittenResult(record, partition, offset)
                for token, partition, offset in placed
                if (record := sources.get(id(token))) is not None
            ]
        )

    def _records_of_results(self) -> Iterator[Record | None]:
        """For each result the record that it is of: of a batch with one result for each record the
        one at its place, otherwise the first one."""
        for _, record in self._of_batch:
            yield record
        number, before = 0, None
        for entry in owners_of(self._taken):
            number = number + 1 if entry is before else 0
            before = entry
            records, _, results = entry
            if not isinstance(records, tuple):
                yield records
            else:
                yield records[number if len(results) == len(records) else 0]

    def nothing_waits(self) -> None:
        """There is nothing to commit."""
        self._since = None

    def committed(self, composed: ComposedOffsets) -> None:
        """The last transaction is committed, with these offsets. Called before partitions are
        released."""
        self._since = None
        if self._recorder is not None:
            offsets = {i.partition: entry.offset for i, entry in composed.entries.items()}
            self._recorder.transaction_committed(offsets, composed.identity)
        of_batch, taken = self._of_batch, self._taken
        self._ended("committed", None)
        observers = self._observers
        if observers is None or not observers.wants("on_results_published"):
            return
        counts = result_counts(taken)
        counts.update(("", result.topic) for result, _ in of_batch)
        for (handler, topic), count in counts.items():
            observers.on_results_published(handler, topic, count)

    def aborted(self, outcome: TransactionOutcome, error: Exception | None) -> None:
        """The last transaction is aborted."""
        self._ended(outcome, error)

    def _ended(self, outcome: TransactionOutcome, error: Exception | None) -> None:
        results, self._results, self._of_batch, self._taken = self._results, (), (), {}
        observers = self._observers
        if observers is None or not self._wants:
            return
        headers = (
            () if observers.tracer is None else [headers for *_, headers, _ in results if headers]
        )
        observers.on_transaction(
            EndedTransaction(outcome, self._records, len(results), self.duration, error, headers)
        )
