"""Decides about a record whose call has failed: retry, another topic, skip, pause or stop."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, Protocol

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import (
    DecodeError,
    HandlerExitError,
    UnmatchedRecordError,
    UnreadableRecordError,
)
from asyncrevoke.client.model import FailurePause, Record, TopicPartition
from asyncrevoke.client.printable import is_caught_by, named_error
from asyncrevoke.client.producing.trace_context import replace_headers
from asyncrevoke.client.runtime.loop.entering import UnguardedScriptError
from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
from asyncrevoke.handlers.dead_letters.held_records import HeldRecords
from asyncrevoke.handlers.dead_letters.producer import TransactionalDeadLetters
from asyncrevoke.handlers.dead_letters.retry_message import (
    RetryHistories,
    RetryHistory,
    RetryMessage,
)
from asyncrevoke.handlers.execution.acknowledgement_policy import (
    AcknowledgementPolicy,
    LockLostError,
)
from asyncrevoke.handlers.execution.worker_resources import WorkerResourceError
from asyncrevoke.handlers.policy.batch import (
    HandlerBatch,
    Item,
    Unsent,
    first_unfinished_offset,
    log_fields,
    unfinished_records,
)
from asyncrevoke.handlers.policy.retry import Pause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.log_events import LogEvent
    from asyncrevoke.client.producing.exactly_once.finished_records import CallResults
    from asyncrevoke.client.runtime.hooks.observers import Headers
    from asyncrevoke.client.runtime.hooks.recorders import FailureDecision
    from asyncrevoke.handlers.execution.pipeline import HandlerPipeline
    from asyncrevoke.handlers.execution.runner_context import RunnerContext
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.scheduling.backlog import Backlog
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry
    from asyncrevoke.handlers.scheduling.record_source import TakenRecords


# The most characters of an error that health() shows.
_MAX_REASON = 200


class StopReactions(Protocol):
    """Reacts to a failure that stops the consumer or the task group.

    Implemented by :class:`HandlerRunner` and :class:`TrackedTaskGroup`.
    """

    def stop_after_failure(self, error: BaseException) -> None:
        """Start no call, let running calls end, and raise the first such error."""


class FailurePolicy:
    """Applies ``retry``, ``retry_topic``, ``dead_letter`` and ``on_error`` of handlers.

    ``held`` are the failed records that wait until another topic takes them.
    """

    def __init__(
        self,
        context: RunnerContext,
        source: TakenRecords,
        backlog: Backlog,
        histories: RetryHistories,
        reactions: StopReactions,
        pipeline: HandlerPipeline,
    ) -> None:
        self._log = context.log
        self._random = context.random
        self._dead_letters = context.dead_letters
        self._wall_clock = context.wall_clock
        self._recorder = context.recorder
        self._call_recorder = context.call_recorder
        self._observers = observers = context.observers
        self._tracer = None if observers is None else observers.tracer
        self._source = source
        self._locks = locks = context.locks
        self._acknowledgements = None if locks is None else AcknowledgementPolicy(locks, self)
        self._backlog = backlog
        self._histories = histories
        self._reactions = reactions
        self._pipeline = pipeline
        self._holds_unwritten = context.holds_unwritten
        self._transactions = transactions = context.transactions
        self._transactional_letters: TransactionalDeadLetters | None = None
        if transactions is not None:
            self._transactional_letters = TransactionalDeadLetters(transactions)
        self.held = HeldRecords(context.clock, context.log, backlog)
        # Types of errors logged since a partition was paused: an outage logs no line for each.
        self._logged_pauses: dict[TopicPartition, set[type[BaseException]]] = {}
        # Topics with skipped records that no handler takes.
        self._with_unmatched: set[str] = set()

    def apply(self, entry: Entry, handler: Handler, error: BaseException) -> bool:
        """Decide about a failed item. Returns True if no record of it is left: the item is done."""
        item = entry[1]
        if isinstance(error, LockLostError):
            self._backlog.abandon(item)
            return True
        calls = self._backlog.calls_of(item)
        if self._transactions is not None:
            self._transactions.finished.discard_results(unfinished_records(item))
        stops = isinstance(error, (WorkerResourceError, UnguardedScriptError))
        reason = None
        if isinstance(error, WorkerResourceError) and error.__cause__ is not None:
            reason, error = "worker_resources could not be opened", error.__cause__
        if is_caught_by(error, SystemExit) or is_caught_by(error, KeyboardInterrupt):
            error, stops = HandlerExitError(error), True
        trace = () if self._tracer is None else self._tracer.take_failed_call(error)
        if stops:
            self._stop_consumer(entry, error, handler, reason)
        elif self._backlog.is_paused_by_failure(item):
            self._abandon(entry, error, handler)
        elif isinstance(error, NotSentError):
            cause = error if error.__cause__ is None else error.__cause__
            if isinstance(item, HandlerBatch):
                calls -= 1  # this attempt has only written
            self._not_sent(entry, cause, handler, error.topic, calls)
        elif isinstance(item, HandlerBatch):
            return self._batch_failed(entry, item, error, handler, calls, trace)
        else:
            return self._record_failed(entry, Unsent(item, error, trace), handler, calls)
        return False

    def call_cancelled(self, item: Item, handler: Handler, error: BaseException) -> None:
        """Abandon the item. An error raised instead of the cancellation is logged."""
        if not isinstance(error, asyncio.CancelledError):
            self.warn(log_events.FAILED_WHEN_CANCELLED, item, handler, error)
        if self._recorder is not None:
            self._recorder.handler_cancelled(unfinished_records(item), error)
        self._backlog.abandon(item)

    def stop(self, error: BaseException) -> None:
        """Stop the consumer or the task group."""
        self._reactions.stop_after_failure(error)

    # -- single records, also of batches ---------------------------------------------------------

    def original(self, record: Record) -> Record:
        """The record that a record of a retry topic was before it failed."""
        return self._histories.of(record).record

    def complete_all(self, records: Sequence[Record], results: CallResults | None = None) -> None:
        """Count records of a batch as done; ``results`` of their call enter one transaction with
        all of them."""
        if self._recorder is not None:
            self._recorder.batch_completed(records)
        if self._transactions is not None and results is not None:
            self._transactions.finished_together(records, results)
        else:
            self._source.complete_all(records)

    def give_up(self, record: Record, handler: Handler, error: BaseException) -> bool:
        """Skip, reject, or later release a record that has failed for good; returns False, without
        effect, if ``on_error`` pauses or stops instead."""
        if handler.on_error == "skip":
            self.skip(record, handler, error)
            return True
        shared = self._acknowledgements
        return shared is not None and shared.give_up(record, handler, error)

    def skip(self, record: Record, handler: Handler, error: BaseException) -> None:
        """Count a failed record as done."""
        if isinstance(error, UnmatchedRecordError):
            self._log_unmatched(record)
        else:
            self.warn(log_events.RECORD_SKIPPED, record, handler, error)
        self.report("skipped", record, handler, error)
        self._source.complete(record)

    async def send_to_topic(self, unsent: Unsent, handler: Handler, calls: int) -> None:
        """Write a record to the retry topic or to the dead letter topic."""
        record, error, trace = unsent
        topic = self.topic_for(record, handler, error)
        assert topic is not None
        assert self._dead_letters is not None
        history = self._histories.of(record)
        if not isinstance(error, (DecodeError, UnmatchedRecordError, UnreadableRecordError)):
            history = history._replace(calls=history.calls + calls)
        later = handler.retry_topic
        to_retry_topic = later is not None and later.topic == topic
        try:
            if later is not None and to_retry_topic:
                due = self._wall_clock() + later.delay
                message: DeadLetter = RetryMessage(history, error, due)
            else:
                message = DeadLetter(history.record, error, history.calls)
            if trace:
                message.set_headers(replace_headers(message.headers, trace))
            decision: FailureDecision = "sent_to_retry_topic" if to_retry_topic else "dead_lettered"
            written = partial(
                self._written_to_topic, record, history, handler, error, topic, decision
            )
            if self._transactional_letters is not None:
                refused = partial(self._pipeline.dead_letter_refused, handler, calls, unsent, topic)
                await self._transactional_letters.send(topic, message, record, refused, written)
                self.held.in_transaction(record)
            else:
                await self._dead_letters.send(topic, message)
        except Exception as failure:
            raise NotSentError(topic) from failure
        self._record_decision(decision, record, error)
        if self._transactional_letters is None:
            written()

    def _written_to_topic(
        self,
        record: Record,
        history: RetryHistory,
        handler: Handler,
        error: BaseException,
        topic: str,
        decision: FailureDecision,
    ) -> None:
        """All in-sync replicas have the record in another topic; or its transaction is
        committed."""
        if self._locks is not None:
            self._locks.reject(record)
        self.held.written(topic)
        self.held.transaction_ended(record)
        self.warn(
            log_events.UNMATCHED_RECORD_SENT
            if isinstance(error, UnmatchedRecordError)
            else log_events.SENT_TO_RETRY_TOPIC
            if decision == "sent_to_retry_topic"
            else log_events.DEAD_LETTER_SENT,
            record,
            handler,
            error,
            to_topic=topic,
            attempts=history.calls,
        )
        if self._observers is not None:
            name = "" if isinstance(error, UnmatchedRecordError) else handler.name
            self._observers.on_failure_decision(name, record, decision)
            if decision == "dead_lettered":
                self._observers.on_dead_letter(history.record, topic, error)

    def may_retry(self, record: Record, handler: Handler, error: BaseException, calls: int) -> bool:
        """Whether ``retry`` allows another call. A record of a retry topic has one call each time
        it is read."""
        retry = handler.retry
        if retry is None or not retry.allows(error, calls):
            return False
        return not self._histories.of(record).retry_topic_reads

    def topic_for(self, record: Record, handler: Handler, error: BaseException) -> str | None:
        """The topic that a failed record goes to; None if ``on_error`` decides."""
        later = handler.retry_topic
        reads = self._histories.of(record).retry_topic_reads
        if later and later.takes(error, handler.retry, reads):
            return later.topic
        return handler.dead_letter

    # -- failures --------------------------------------------------------------------------------

    def _record_failed(self, entry: Entry, failed: Unsent, handler: Handler, calls: int) -> bool:
        record, error, _ = failed
        if self.may_retry(record, handler, error, calls):
            self._retry(entry, error, handler, calls)
        elif (topic := self.topic_for(record, handler, error)) is not None:
            if self.held.is_blocked(topic) and self._backlog.may_retry(record):
                if self._locks is not None:
                    self._locks.wait((record,))
                self.held.hold_behind(entry, topic, calls, failed)
            else:
                self._backlog.send_next(entry, calls, failed)
        elif self.give_up(record, handler, error):
            self._backlog.forget_attempts(record)
            return True
        else:
            self._apply_on_error(entry, error, handler)
        return False

    def _batch_failed(
        self,
        entry: Entry,
        batch: HandlerBatch,
        error: BaseException,
        handler: Handler,
        calls: int,
        trace: Headers,
    ) -> bool:
        to_retry: list[BaseException] = []
        errors = batch.errors or dict.fromkeys(batch.called, error)
        for record, its_error in errors.items():
            if self.may_retry(record, handler, its_error, calls):
                to_retry.append(its_error)
            elif self.topic_for(record, handler, its_error) is not None:
                batch.send_elsewhere(Unsent(record, its_error, trace))
            elif self.give_up(record, handler, its_error):
                batch.remove([record])
            else:
                self._apply_on_error(entry, its_error, handler)
                return False
        if to_retry:
            self._retry(entry, to_retry[0], handler, calls)
        elif batch.unsent:
            self._backlog.send_next(entry, calls)
        elif batch.records and self.may_retry(batch.records[0], handler, error, calls):
            # The records of the call are done: the value after them does not decode.
            self._retry(entry, error, handler, calls)
        elif batch.records:
            self._apply_on_error(entry, error, handler)
        else:
            self._backlog.forget_attempts(batch)
            self._backlog.batch_ended(batch)
            return True
        return False

    def _retry(self, entry: Entry, error: BaseException, handler: Handler, calls: int) -> None:
        item = entry[1]
        if not self._backlog.may_retry(item):
            self._abandon(entry, error, handler)
            return
        assert handler.retry is not None
        delay = handler.retry.delay(calls, self._random)
        self.warn(
            log_events.HANDLER_RETRIED, item, handler, error, attempt=calls, seconds=round(delay, 3)
        )
        self.report("retried", item, handler, error)
        if self._locks is not None:
            self._locks.wait(unfinished_records(item))
        self._backlog.retry_later(entry, delay, calls)

    def _abandon(self, entry: Entry, error: BaseException, handler: Handler) -> None:
        """Make no further attempt: the next owner of the partition gets the records."""
        self.warn(log_events.FAILED_WHILE_STOPPING, entry[1], handler, error)
        self.report("abandoned", entry[1], handler, error)
        self._backlog.abandon_lane(entry)

    def _apply_on_error(self, entry: Entry, error: BaseException, handler: Handler) -> None:
        """Pause or stop; the caller asks :meth:`give_up` before."""
        if isinstance(handler.on_error, Pause):
            self._pause_until_success(entry, error, handler, handler.on_error)
        elif handler.on_error == "pause":
            self._pause_until_resumed(entry, error, handler)
        else:
            self._stop_consumer(entry, error, handler)

    def _stop_consumer(
        self, entry: Entry, error: BaseException, handler: Handler, reason: str | None = None
    ) -> None:
        item = entry[1]
        # The traceback follows when running calls have ended.
        log_events.NO_FURTHER_RECORDS.write_to(
            self._log,
            **log_fields(item, "" if isinstance(error, UnmatchedRecordError) else handler.name),
            error=named_error(error, _MAX_REASON),
            **{} if reason is None else {"reason": reason},
        )
        self.report("stopped", item, handler, error)
        self._backlog.abandon(item)
        self.stop(error)

    def _pause_until_success(
        self, entry: Entry, error: BaseException, handler: Handler, pause: Pause
    ) -> None:
        """Pause the partition until another attempt at this item succeeds.

        A record that cannot be read, or decoded at any time, would never succeed: its partition
        waits for ``resume``.
        """
        item = entry[1]
        if isinstance(error, UnreadableRecordError) or (
            isinstance(error, DecodeError) and not error.temporary
        ):
            self._pause_until_resumed(entry, error, handler)
        elif not self._backlog.may_retry(item):
            self._abandon(entry, error, handler)
        else:
            reason = self._pause_of(item, error, handler, pause.probe_after)
            self.report("paused", item, handler, error)
            logged = self._logged_pauses.setdefault(item.topic_partition, set())
            if self._backlog.pause_until_success(entry, reason):
                logged.clear()
            if type(error) not in logged:
                logged.add(type(error))
                self.warn(
                    log_events.PAUSED_UNTIL_SUCCESS,
                    item,
                    handler,
                    error,
                    attempt=reason.attempts,
                    seconds=reason.probe_after,
                )

    def _pause_of(
        self, item: Item, error: BaseException, handler: Handler, probe_after: float
    ) -> FailurePause:
        return FailurePause(
            *item.topic_partition,
            first_unfinished_offset(item),
            handler.name,
            named_error(error, _MAX_REASON),
            self._backlog.calls_of(item),
            probe_after,
        )

    def _not_sent(
        self,
        entry: Entry,
        error: BaseException,
        handler: Handler,
        topic: str,
        calls: int,
    ) -> None:
        """Hold a failed record that could not be written to ``topic``."""
        if self._locks is not None:
            self._locks.wait(unfinished_records(entry[1]))
        if not self._backlog.may_retry(entry[1]):
            self._abandon(entry, error, handler)
        elif self._holds_unwritten:
            fields = log_fields(entry[1], handler.name)
            self.held.write_failed(entry, topic, error, calls, fields)
        else:
            self._pause_until_resumed(entry, error, handler, unsent_to=topic)

    def _pause_until_resumed(
        self,
        entry: Entry,
        error: BaseException,
        handler: Handler,
        unsent_to: str | None = None,
    ) -> None:
        """Pause the partition, which stays assigned; do not cancel running calls.

        ``unsent_to`` is the topic to which the record could not be written.
        """
        item = entry[1]
        self.report("paused", item, handler, error)
        self._backlog.pause_after_failure(item, self._pause_of(item, error, handler, math.inf))
        to_topic = {} if unsent_to is None else {"to_topic": unsent_to}
        log_events.PAUSED_UNTIL_RESUME.write_to(
            self._log, **log_fields(item, handler.name), **to_topic, exc_info=error
        )
        self._backlog.abandon_lane(entry)

    # -- logging and reporting --------------------------------------------------------------------

    def report(
        self, decision: FailureDecision, item: Item, handler: Handler, error: BaseException
    ) -> None:
        """Report this decision about the records of an item."""
        name = "" if isinstance(error, UnmatchedRecordError) else handler.name
        for record in unfinished_records(item):
            self._record_decision(decision, record, error)
            if self._observers is not None:
                self._observers.on_failure_decision(name, record, decision)

    def _record_decision(
        self, decision: FailureDecision, record: Record, error: BaseException
    ) -> None:
        if self._recorder is not None:
            self._recorder.failure_decided(record, decision, error)
        if self._call_recorder is not None:
            self._call_recorder.failure_decided(record, decision, error)

    def _log_unmatched(self, record: Record) -> None:
        """Log only the first such record of a topic: many may be skipped, as intended."""
        if record.topic not in self._with_unmatched:
            self._with_unmatched.add(record.topic)
            log_events.UNMATCHED_RECORDS_SKIPPED.write_to(
                self._log, partition=str(record.topic_partition), offset=record.offset
            )

    def warn(
        self, event: LogEvent, item: Item, handler: Handler, error: BaseException, **fields: object
    ) -> None:
        """Log a failure of an item."""
        event.write_to(self._log, **log_fields(item, handler.name), **fields, exc_info=error)


class NotSentError(Exception):
    """A record could not be written to ``topic``; the cause says why."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic
