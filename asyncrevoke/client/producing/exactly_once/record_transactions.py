"""Writes results and offsets of finished records in transactions, one after another (KIP-447).

::

    handlers, tasks -> records_finished -> FinishedRecords
    TransactionDue  -> begin_transaction (core): which records, which offsets
                    -> Produce, TxnOffsetCommit, EndTxn (RecordProducer)
                    -> transaction_committed (core): the records are done
                    or transaction_aborted: they wait for the next transaction
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from asyncrevoke.client import log_events
from asyncrevoke.client.core.commit.transactional_committer import TransactionalCommitter
from asyncrevoke.client.errors import (
    AsyncRevokeError,
    ConsumerClosedError,
    FatalError,
    IllegalStateError,
    PartitionLostError,
    ProducerFencedError,
    PublishError,
    TransactionError,
)
from asyncrevoke.client.model import TransactionProgress
from asyncrevoke.client.printable import named_error
from asyncrevoke.client.producing.exactly_once.commits_in_doubt import MOST_REASON, was_committed
from asyncrevoke.client.producing.exactly_once.finished_records import (
    FinishedRecords,
    dead_letters,
    owners_of,
    records_in,
    records_of,
    results_of,
)
from asyncrevoke.client.producing.exactly_once.refused_records import (
    fail_records,
    refused_owners,
    refused_results,
)
from asyncrevoke.client.producing.exactly_once.transaction_limit import (
    MOST_BYTES,
    MOST_RECORDS,
    TransactionLimit,
)
from asyncrevoke.client.producing.exactly_once.transaction_reports import TransactionReports
from asyncrevoke.client.producing.exactly_once.transactional_producer import transactional_producer
from asyncrevoke.client.producing.transactions.group_offsets import (
    GroupOffsets,
    OffsetsRejectedError,
)
from asyncrevoke.client.producing.transactions.transaction import TransactionTimedOutError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from asyncrevoke.client.core.commit.transactional_committer import ComposedOffsets
    from asyncrevoke.client.model import GroupMetadata, Record, TopicPartition
    from asyncrevoke.client.producing.exactly_once.batch_transaction import BatchTransaction
    from asyncrevoke.client.producing.exactly_once.finished_records import (
        CallResults,
        Entry,
        ResultTarget,
    )
    from asyncrevoke.client.producing.message import RecordFields, ResultOfRecord
    from asyncrevoke.client.producing.record_producer import RecordProducer
    from asyncrevoke.client.protocol.messages import ErrorCode
    from asyncrevoke.client.runtime.hooks.observers import TransactionOutcome
    from asyncrevoke.client.runtime.session.session import Session

# Beyond this part of the most records of a transaction, or bytes of their results, one begins
# without waiting for ``transaction_interval``. Beyond the most, records in flight use capacity.
_URGENT: Final = 4
# A batch fails if so many transactions of it were not written in time.
_ATTEMPTS: Final = 3


class RecordTransactions:
    """The transactions of one session; see the module."""

    def __init__(self, session: Session) -> None:
        self._session = session
        committer = session.core.committer
        assert isinstance(committer, TransactionalCommitter)
        self._committer = committer
        self._loop = asyncio.get_running_loop()
        self.finished = FinishedRecords()
        self._due = asyncio.Event()
        self._changed = asyncio.Event()
        # The transaction that is being written, and its entries.
        self._current: ComposedOffsets | None = None
        self._taken: dict[int, list[Entry]] = {}
        self._taken_count = self._taken_size = 0
        self._reports = TransactionReports(session.observers, session.recorder, self._loop.time)
        self._limit = TransactionLimit(session.config.transaction_timeout)
        # Finished records, and bytes of their results, that had no room in the last transaction.
        self._left = (0, 0)
        self._reported = False
        self._is_stuck = False  # no finished record could be in the last transaction
        # The open block of a batch, and whether it has ended and is to be committed.
        self._batch: BatchTransaction | None = None
        self._committing_batch = False
        # The one whose results are being written.
        self._written_batch: BatchTransaction | None = None
        self._producer: RecordProducer | None = None
        self._task: asyncio.Task[None] | None = None
        self._report_ended: Callable[[], None] = lambda: None

    def serve(self, report_ended: Callable[[], None]) -> None:
        """``report_ended`` reports calls that have ended, or a later record of a key could be
        written before an earlier one."""
        self._report_ended = report_ended

    def start(self) -> None:
        """Begin to write transactions when they are due."""
        self._task = self._loop.create_task(self._run(), name="asyncrevoke transactions")

    async def aclose(self) -> None:
        """Write nothing more. A transaction that is being written is aborted, unless its commit was
        requested."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._producer is not None:
            await self._producer.aclose()

    @property
    def producer(self) -> RecordProducer:
        """The producer of the transactions, which knows the topics of results."""
        if self._producer is None:
            self._producer = transactional_producer(self._session)
        return self._producer

    @property
    def waiting(self) -> int:
        """The finished records that are in no committed transaction."""
        return self.finished.count + self._taken_count

    def progress(self) -> TransactionProgress:
        """See :class:`~asyncrevoke.client.runtime.hooks.transactions.WritesTransactions`."""
        size = self.finished.size + self._taken_size
        return TransactionProgress(self.waiting, size, self._reports.seconds)

    async def flush(self) -> None:
        """Return when every record that has finished is in a committed transaction, or failed, or
        can be in none: one before it will not finish, and the completion map has no room."""
        await self._until(lambda: self.waiting == 0)

    async def commit(self) -> None:
        """See :class:`~asyncrevoke.client.runtime.hooks.transactions.WritesTransactions`."""
        finished = set(self._waiting())
        await self._until(lambda: finished.isdisjoint(self._waiting()))

    async def _until(self, done: Callable[[], bool]) -> None:
        self._is_stuck = False
        task = self._task
        while not (done() or self._is_stuck or task is None or task.done()):
            self._report(urgent=True)
            self._changed.clear()
            await self._changed.wait()

    # --- handlers --------------------------------------------------------------------------------

    def add_result(self, record: Record, target: ResultTarget, value: bytes) -> None:
        """The handler of a record has returned this result; its topic is known."""
        self.finished.add_result(record, target, value)
        if not self._reported:
            self._report_soon()

    def records_finished(self, records: Sequence[Record]) -> None:
        """See :class:`~asyncrevoke.client.runtime.hooks.transactions.WritesTransactions`."""
        self.finished.add(records)
        if not self._reported:
            self._report_soon()

    def finished_together(self, records: Sequence[Record], results: CallResults) -> None:
        """A call for all of these records has ended, with these results."""
        self.finished.add_together(records, results)
        if not self._reported:
            self._report_soon()

    def records_abandoned(self, records: Sequence[Record]) -> None:
        """See :class:`~asyncrevoke.client.runtime.hooks.transactions.WritesTransactions`."""
        self.finished.discard_results(records)

    def waiting_records(self, partitions: Iterable[TopicPartition]) -> Iterable[Record]:
        """See :class:`~asyncrevoke.client.runtime.hooks.transactions.WritesTransactions`."""
        wanted = frozenset(partitions)
        return [record for record in self._waiting() if record.topic_partition in wanted]

    def _waiting(self) -> list[Record]:
        return [*records_in(self._taken), *self.finished.records()]

    def _report_soon(self) -> None:
        """Report to the core once in an iteration of the event loop."""
        self._reported = True
        self._loop.call_soon(self._report_now)

    def _report_now(self) -> None:
        self._reported = False
        try:
            self._report()
        except AsyncRevokeError:
            # The consumer has failed or closed: nothing more is committed.
            self._changed.set()

    def _report(self, *, urgent: bool = False) -> None:
        finished = self.finished
        waiting = 0 if finished.size > MOST_BYTES else min(self.waiting, MOST_RECORDS)
        count, size = finished.count - self._left[0], finished.size - self._left[1]
        urgent |= count > min(self._limit.records, MOST_RECORDS // _URGENT)
        urgent |= size > MOST_BYTES // _URGENT
        self._session.call(self._committer.records_finished, waiting, urgent=urgent)

    # --- batches ---------------------------------------------------------------------------------

    def open_batch(self, batch: BatchTransaction) -> None:
        """The block of a batch begins. Raises IllegalStateError within another one."""
        if self._batch is not None:
            raise IllegalStateError("another transaction of this consumer is open")
        self._batch = batch

    def close_batch(self) -> None:
        """The block of the batch has ended."""
        self._batch = None
        self._committing_batch = False

    @property
    def has_open_batch(self) -> bool:
        """Whether a block of a batch is open."""
        return self._batch is not None

    async def commit_batch(self, batch: BatchTransaction) -> None:
        """Commit the results and the offsets of a batch. If cancelled, the transaction is aborted,
        or awaited if its commit was requested; if cancelled again, the consumer fails.

        Raises PublishError, PartitionLostError, and the error that has ended the consumer.
        """
        self._committing_batch = True
        self._due.set()
        task = self._task
        assert task is not None
        try:
            await asyncio.wait((batch.ended, task), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # It is not committed once more.
            self._batch = None
            if not self._abort_current(TransactionError("the commit was cancelled")):
                await self._written(batch)
            raise
        if not batch.ended.done():
            raise ConsumerClosedError("the consumer has ended before the transaction was committed")
        batch.ended.result()

    async def _written(self, batch: BatchTransaction) -> None:
        """Wait until it is known whether this batch is committed, if it is being written."""
        try:
            while self._written_batch is batch:
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            # To return the batch again could publish its results twice.
            self._session.fail(TransactionError("cancelled twice in a commit", in_doubt=True))
            raise

    @staticmethod
    def _batch_failed(batch: BatchTransaction, error: Exception) -> None:
        if not batch.ended.done():
            batch.ended.set_exception(error)

    # --- the core --------------------------------------------------------------------------------

    def transaction_due(self) -> None:
        """See :class:`~asyncrevoke.client.runtime.hooks.transactions.WritesTransactions`."""
        self._due.set()

    def partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """See :class:`~asyncrevoke.client.runtime.hooks.transactions.WritesTransactions`."""
        lost = frozenset(partitions)
        self.finished.lose(lost)
        self._changed.set()
        current = self._current
        if current is not None and any(i.partition in lost for i in current.entries):
            self._abort_current(PartitionLostError(sorted(lost)))

    def _abort_current(self, error: Exception) -> bool:
        producer = None if self._current is None else self._producer
        return producer is not None and producer.abort_transaction(error)

    # --- transactions ----------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                await self._write()
        except AsyncRevokeError as error:
            if not self._session.has_failed and not self._session.closed:
                self._session.fail(error)
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self._session.fail(error)
        finally:
            self._changed.set()

    async def _write(self) -> None:
        """Write one transaction, if there is anything to commit."""
        session, committer = self._session, self._committer
        self._report_ended()
        batch = self._batch if self._committing_batch else None
        room = self._limit.room(self.finished)
        composed = session.call(
            committer.begin_transaction,
            self.finished.offsets(),
            with_batch=batch is not None,
            room=room,
        )
        if composed is None:
            return
        has_content = bool(composed.entries) or batch is not None
        included = composed.included if has_content else {}
        size = self.finished.size
        taken, dropped = self.finished.take(included, composed.dropped)
        for entries in dropped.values():
            session.abandon_all([record for entry in entries for record in records_of(entry)])
        self._is_stuck = not (has_content or composed.is_delayed)
        if not has_content:
            self._reports.nothing_waits()
            self._left = self.finished.count, self.finished.size
            if not composed.is_delayed:
                self._changed.set()
            return
        self._current = composed
        self._taken = taken
        self._taken_count = sum(map(len, composed.completes.values()))
        self._taken_size = size - self.finished.size
        is_limited = room is not None and bool(composed.included)
        self._left = (0, 0) if is_limited else (self.finished.count, self.finished.size)
        try:
            if batch is None:
                await self._commit(composed, ())
            else:
                await self._commit_with(composed, batch)
        finally:
            self._current, self._taken, self._taken_count, self._taken_size = None, {}, 0, 0
            self._report_soon()
            self._changed.set()

    async def _commit_with(self, composed: ComposedOffsets, batch: BatchTransaction) -> None:
        # Requested once: when its block goes on is up to the user's task.
        self._committing_batch = False
        # A partition that was lost and is assigned again is another instance.
        kept = {instance.partition for instance in composed.batch}
        try:
            results = batch.results_without(batch.partitions - kept)
        except PartitionLostError as error:
            self._batch_failed(batch, error)
            self._put_back(None)
            if composed.entries:
                self._session.call(self._committer.transaction_aborted, composed)
            return
        self._written_batch = batch
        try:
            await self._commit(composed, results)
        finally:
            self._written_batch = None
        # Aborted: once more, unless the block was cancelled.
        self._committing_batch = self._batch is batch and not batch.ended.done()

    async def _commit(self, composed: ComposedOffsets, of_batch: Sequence[ResultOfRecord]) -> None:
        offsets, written = self._offsets_of(composed), self._reports.written
        results: list[RecordFields] = [*(each for each, _ in of_batch), *results_of(self._taken)]
        self._reports.began(self._taken_count, self._written_batch, results, of_batch, self._taken)
        try:
            await self.producer.commit_transaction(results, offsets, written)
        except OffsetsRejectedError as error:
            self._aborted("offsets_rejected", composed, error, error.errors)
        except PartitionLostError:
            self._aborted("partition_lost", composed, None, at_once=True)
        except ProducerFencedError as error:
            await self._begin_with_another_id(error)
            self._aborted("fenced", composed, error)
        except PublishError as error:
            self._refused(composed, error, results, len(of_batch))
        except TransactionTimedOutError as error:
            self._limit.timed_out(self._taken_count)
            if (late := self._written_batch) is not None:
                late.timed_out += 1
                if late.timed_out >= _ATTEMPTS:
                    self._batch_failed(late, error)
            self._aborted("timed_out", composed, error)
        except TransactionError as error:
            if error.in_doubt and await was_committed(self._session, composed, error, self._settle):
                self._committed(composed)
                return
            if (fatal := self.producer.fatal_error) is not None:
                raise FatalError(str(fatal)) from error
            self._aborted("failed", composed, error)
        else:
            self._limit.committed(self._reports.duration)
            self._committed(composed)

    def _offsets_of(self, composed: ComposedOffsets) -> GroupOffsets:
        def renewed(rejected: GroupMetadata) -> GroupMetadata | None:
            return self._session.call(self._committer.renewed_identity, composed, rejected)

        return GroupOffsets(composed.identity, tuple(composed.entries.values()), renewed)

    async def _settle(self) -> None:
        """Wait until the transaction has ended, or this producer cannot end it any more: then its
        offsets are pending until the coordinator does. Raises FatalError and TransactionError."""
        try:
            await self.producer.transaction_settled()
        except ProducerFencedError as error:
            await self._begin_with_another_id(error)
        except TransactionError as error:
            if (fatal := self.producer.fatal_error) is not None:
                raise FatalError(str(fatal)) from error
            raise

    async def _begin_with_another_id(self, error: ProducerFencedError) -> None:
        """A random transactional id is given up; one that is configured is used by another member.
        Raises ProducerFencedError."""
        if self._session.config.group_instance_id is not None:
            raise error
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.aclose()

    def _committed(self, composed: ComposedOffsets) -> None:
        self._reports.committed(composed)
        self._session.call(self._committer.transaction_committed, composed)
        if self._written_batch is not None and not self._written_batch.ended.done():
            self._written_batch.ended.set_result(None)
        if self.finished.has_dead_letters:
            for letter in dead_letters(self._taken):
                letter.committed()

    def _aborted(
        self,
        outcome: TransactionOutcome,
        composed: ComposedOffsets,
        error: Exception | None,
        errors: Mapping[TopicPartition, ErrorCode] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """Nothing of the transaction is visible; its records wait for the next one."""
        self._put_back(error)
        self._reports.aborted(outcome, error)
        aborted = self._committer.transaction_aborted
        self._session.call(aborted, composed, errors, at_once=at_once)

    def _put_back(self, error: Exception | None) -> None:
        """The records wait for the next transaction, except those of lost partitions."""
        taken, self._taken, self._taken_count, self._taken_size = self._taken, {}, 0, 0
        count = len(records_in(taken))
        if self._written_batch is not None:
            count += self._written_batch.count
        self.finished.put_back(taken)
        assigned = self._session.core.assignment.partitions()
        gone = {record.topic_partition for record in self.finished.records()} - assigned
        if gone:
            self.finished.lose(gone)
        if error is not None and count:
            log_events.TRANSACTION_ABORTED.write_to(
                self._session.log, reason=named_error(error, MOST_REASON), records=count
            )

    def _refused(
        self,
        composed: ComposedOffsets,
        error: PublishError,
        results: Sequence[RecordFields],
        of_batch: int,
    ) -> None:
        """A broker has refused results, the first ``of_batch`` of which are of the batch: their
        records fail, the others wait for the next one."""
        refused = refused_results(error, results)
        owners = [self._written_batch] * of_batch + owners_of(self._taken)
        ids = refused_owners(refused, results, owners)
        failed = [entry for taken in self._taken.values() for entry in taken if id(entry) in ids]
        self._taken = {
            tracker_id: [entry for entry in taken if id(entry) not in ids]
            for tracker_id, taken in self._taken.items()
        }
        self._aborted("results_refused", composed, error, at_once=True)
        log_events.TRANSACTION_RESULTS_REFUSED.write_to(
            self._session.log, topic=error.topic, reason=error.reason, results=len(refused)
        )
        batch = self._written_batch
        if batch is not None and id(batch) in ids:
            self._batch_failed(batch, error)
        if not ids:
            raise FatalError(str(error)) from error
        fail_records(failed, error)
