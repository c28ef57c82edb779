"""Composes the parts that run handlers, and decides what follows from their events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.handlers.dead_letters.retry_message import RetryHistories
from asyncrevoke.handlers.execution.dispatch import Dispatcher
from asyncrevoke.handlers.execution.failure_policy import (
    FailurePolicy,
    NotSentError,
    StopReactions,
)
from asyncrevoke.handlers.execution.invocation import HandlerInvoker
from asyncrevoke.handlers.execution.worker_pool import WorkerPool
from asyncrevoke.handlers.policy.batch import (
    HandlerBatch,
    Item,
    Unsent,
    first_unfinished_offset,
    unfinished_records,
)
from asyncrevoke.handlers.scheduling.attempts import AttemptState
from asyncrevoke.handlers.scheduling.backlog import Backlog
from asyncrevoke.handlers.scheduling.handler_ordering import (
    HandlerLimiter,
    HandlerOrdering,
    call_limits,
    handler_ordering,
)
from asyncrevoke.handlers.scheduling.lanes import LaneQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from asyncrevoke.client.errors import PublishError
    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.client.producing.record_producer import RecordProducer
    from asyncrevoke.client.runtime.session.membership_guard import MembershipGuard
    from asyncrevoke.handlers.execution.result_publisher import ResultPublisher
    from asyncrevoke.handlers.execution.runner_context import RunnerContext
    from asyncrevoke.handlers.execution.transactional_publisher import TransactionalPublisher
    from asyncrevoke.handlers.matching import HandlerLookup
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.scheduling.record_source import TakenRecords


class HandlerPipeline:
    """Backlog, lanes, workers and dispatch of one runner or task group.

    A record is put into ``lanes`` and waits in its lane until a worker of ``pool`` takes it;
    ``dispatcher`` calls its handler. ``stop_reactions`` reacts to a failure that stops all of this.
    ``ordering_of_item`` is that of records which return to their lanes because their results are
    refused; by default that of their topic's first handler.
    """

    def __init__(
        self,
        source: TakenRecords,
        membership: MembershipGuard,
        lookup: HandlerLookup,
        context: RunnerContext,
        stop_reactions: StopReactions,
        ordering_of_item: Callable[[Item], HandlerOrdering | None] | None = None,
    ) -> None:
        self._context = context
        self._ordering_of_item = ordering_of_item or self._ordering_of_first
        self._lookup = lookup
        self._orderings: dict[int, HandlerOrdering] = {}
        self._closed = False
        self._producer: RecordProducer | None = None
        self._transactions = context.transactions
        publisher = self._open_publisher()
        order_by = context.order_by
        self.lanes = lanes = LaneQueue(None if callable(order_by) else order_by, context.null_keys)
        self.backlog = Backlog(source, lanes, context.clock, self)
        histories = RetryHistories(lookup, context.log)
        self.failures = FailurePolicy(
            context, source, self.backlog, histories, stop_reactions, self
        )
        invoker = HandlerInvoker(
            context, lookup, membership, self.backlog, histories, self.failures, self
        )
        self.dispatcher = Dispatcher(
            context,
            source,
            membership,
            lookup,
            self.backlog,
            invoker,
            self.failures,
            publisher,
        )
        self.pool = WorkerPool(
            lanes,
            self.dispatcher,
            context.concurrency,
            membership,
            context.deadline,
        )

    def _open_publisher(self) -> ResultPublisher | TransactionalPublisher | None:
        """What publishes the results of handlers; None if there are none."""
        transactions, open_producer = self._transactions, self._context.open_producer
        handlers = self._lookup.handlers
        topics = sorted({one.publish_to for one in handlers if one.publish_to is not None})
        if transactions is not None:
            from asyncrevoke.handlers.execution.transactional_publisher import (
                TransactionalPublisher,
            )

            for topic in topics:
                transactions.producer.prepare(topic)
            return TransactionalPublisher(transactions, self)
        if not topics or open_producer is None:
            return None
        from asyncrevoke.handlers.execution.result_publisher import ResultPublisher

        self._producer = producer = open_producer()
        for topic in topics:
            producer.prepare(topic)
        return ResultPublisher(producer, self)

    def ordering_of(self, handler: Handler) -> HandlerOrdering:
        """Make the ordering of a handler, once, with a limiter if the handler has limits."""
        context, limits = self._context, call_limits(self._lookup, handler)
        limiter: HandlerLimiter | None = None
        if limits.delay_calls:
            limiter = HandlerLimiter(context.clock, limits.concurrency, limits.rate, self.backlog)
        ordering = handler_ordering(
            handler, context.order_by, context.null_keys, limiter, self.backlog
        )
        self._orderings[id(handler)] = ordering
        return ordering

    def _ordering_of_first(self, item: Item) -> HandlerOrdering | None:
        """The ordering of a prepared topic: all its handlers have that of the first one."""
        return self._orderings.get(id(self.dispatcher.prepare(item.topic)))

    async def results_ended(self) -> None:
        """Return when all queued results are acknowledged, or committed, or have failed."""
        if self._transactions is not None:
            await self._transactions.flush()
        if self._producer is not None:
            await self._producer.flush()

    def lose(self, partition: TopicPartition) -> None:
        """The partition is lost: drop its queued records, and cancel its running calls."""
        self.backlog.lose(partition)
        self.failures.held.lose(partition)
        self.pool.cancel(partition)

    async def close(self) -> None:
        """Cancel running calls, and abandon all records that are not done, even if cancelled."""
        abandoned: list[Item] = []
        try:
            abandoned = await self.pool.close()
        finally:
            self._closed = True
            self.failures.held.close()
            if self._producer is not None and self._producer.queued:
                self._producer.stop()
            self.backlog.abandon_queued()
            for item in abandoned:
                log_events.HANDLER_ABANDONED.write_to(
                    self._context.log,
                    partition=str(item.topic_partition),
                    offset=first_unfinished_offset(item),
                )
                self.backlog.abandon(item)

    # -- reactions -------------------------------------------------------------------------------

    def record_completed(self, record: Record) -> None:
        """A handler has returned no result, or all its results are acknowledged."""
        self.dispatcher.records_completed((record,))

    def results_acknowledged(self, records: Sequence[Record]) -> None:
        """The results of these records are acknowledged: complete the records.

        A response acknowledges batches of several partitions: their records complete together.
        """
        self.dispatcher.records_completed(records)
        self.pool.schedule_flush()

    def results_refused(
        self, handler: Handler, calls: int, records: Sequence[Record], error: PublishError
    ) -> None:
        """The results of the last of ``calls`` calls of the handler for these records are in no
        transaction, because a broker refuses one: the records fail."""
        items: Sequence[Item] = records
        if handler.batch is not None:
            batch = HandlerBatch(list(records))
            batch.start_call(len(records))
            items = [batch]
        state = AttemptState(calls, None, handler)
        state.result_failed(error)
        self._put_failed([(item, state) for item in items], error)

    def dead_letter_refused(
        self,
        handler: Handler,
        calls: int,
        unsent: Unsent,
        topic: str,
        _records: Sequence[Record],
        error: PublishError,
    ) -> None:
        """A record that has failed is in no transaction, because a broker refuses what was written
        to ``topic`` in its place: it is held."""
        failure = NotSentError(topic)
        failure.__cause__ = error
        if handler.batch is None:
            item: Item = unsent.record
            state = AttemptState(calls, None, handler)
            state.send_elsewhere(unsent)
        else:
            item = batch = HandlerBatch([unsent.record])
            batch.send_elsewhere(unsent)
            # The attempt that has only written is not counted.
            state = AttemptState(calls + 1, None, handler)
        state.result_failed(failure)
        self.failures.held.refused_in_transaction(topic, item)
        self._put_failed([(item, state)], error)

    def results_failed(self, records: Sequence[Record], error: Exception) -> None:
        """The results of these records cannot be published.

        The failure policy of the handler decides, unless the partition stops.
        """
        failed: list[tuple[Item, AttemptState]] = []
        for record in records:
            state = AttemptState(1)
            state.result_failed(error)
            failed.append((record, state))
        self._put_failed(failed, error)

    def _put_failed(self, items: Iterable[tuple[Item, AttemptState]], error: Exception) -> None:
        left: list[Item] = []
        for item, state in items:
            ordering = self._ordering_of_item(item)
            if (
                self._closed
                or ordering is None
                or not self.backlog.put_failed_result(item, state, ordering)
            ):
                left.append(item)
        if left:
            log_events.RESULTS_NOT_PUBLISHED.write_to(
                self._context.log,
                partition=str(left[0].topic_partition),
                offset=first_unfinished_offset(left[0]),
                count=sum(len(unfinished_records(item)) for item in left),
                exc_info=error,
            )
            for item in left:
                for record in unfinished_records(item):
                    self.failures.held.transaction_ended(record)
                self.backlog.abandon(item)
        self.pool.notify()

    def entries_ready(self) -> None:
        """Entries may be ready: wake workers."""
        self.pool.notify()
