"""Composes the parts that run handlers, and decides what follows from their events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.handlers.dead_letters.retry_message import RetryHistories
from asyncrevoke.handlers.execution.dispatch import Dispatcher
from asyncrevoke.handlers.execution.failure_policy import FailurePolicy, StopReactions
from asyncrevoke.handlers.execution.invocation import HandlerInvoker
from asyncrevoke.handlers.execution.worker_pool import WorkerPool
from asyncrevoke.handlers.policy.batch import (
    HandlerBatch,
    Item,
    first_unfinished_offset,
    unfinished_records,
)
from asyncrevoke.handlers.scheduling.backlog import Backlog
from asyncrevoke.handlers.scheduling.handler_ordering import (
    HandlerLimiter,
    HandlerOrdering,
    call_limits,
    handler_ordering,
)
from asyncrevoke.handlers.scheduling.lanes import LaneQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """

    def __init__(
        self,
        source: TakenRecords,
        membership: MembershipGuard,
        lookup: HandlerLookup,
        context: RunnerContext,
        stop_reactions: StopReactions,
    ) -> None:
        self._context = context
        self._lookup = lookup
        self._orderings: dict[int, HandlerOrdering] = {}
        self._closed = False
        self._producer: RecordProducer | None = None
        publisher: ResultPublisher | TransactionalPublisher | None = None
        self._transactions = context.transactions
        result_topics = {
            handler.publish_to for handler in lookup.handlers if handler.publish_to is not None
        }
        if self._transactions is not None:
            from asyncrevoke.handlers.execution.transactional_publisher import (
                TransactionalPublisher,
            )

            for topic in sorted(result_topics):
                self._transactions.producer.prepare(topic)
            publisher = TransactionalPublisher(self._transactions, self)
        elif result_topics and context.open_producer is not None:
            from asyncrevoke.handlers.execution.result_publisher import ResultPublisher

            self._producer = producer = context.open_producer()
            for topic in sorted(result_topics):
                producer.prepare(topic)
            publisher = ResultPublisher(producer, self)
        order_by = context.order_by
        self.lanes = lanes = LaneQueue(None if callable(order_by) else order_by, context.null_keys)
        self.backlog = Backlog(source, lanes, context.clock, self)
        histories = RetryHistories(lookup, context.log)
        self.failures = FailurePolicy(context, source, self.backlog, histories, stop_reactions)
        invoker = HandlerInvoker(
            context, lookup, membership, self.backlog, histories, self.failures
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

    async def results_ended(self) -> None:
        """Return when all queued results are acknowledged, or committed, or have failed."""
        if self._transactions is not None:
            await self._transactions.flush()
        if self._producer is not None:
            await self._producer.flush()

    def lose(self, partition: TopicPartition) -> None:
        """The partition is lost: drop its queued records, and cancel its running calls."""
        self.backlog.lose(partition)
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

    def results_refused(self, records: Sequence[Record], error: Exception) -> None:
        """The results of one call for these records are in no transaction."""
        if self.dispatcher.prepare(records[0].topic).batch is None:
            self.results_failed(records, error)
            return
        batch = HandlerBatch(list(records))
        batch.start_call(len(records))
        self._put_failed([batch], error)

    def results_failed(self, records: Sequence[Record], error: Exception) -> None:
        """The results of these records cannot be published.

        The failure policy of the handler decides, unless the partition stops.
        """
        self._put_failed(records, error)

    def _put_failed(self, items: Sequence[Item], error: Exception) -> None:
        left: list[Item] = []
        for item in items:
            ordering = self._orderings.get(id(self.dispatcher.prepare(item.topic)))
            if (
                self._closed
                or ordering is None
                or not self.backlog.put_failed_result(item, error, ordering)
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
                self.backlog.abandon(item)
        self.pool.notify()

    def entries_ready(self) -> None:
        """Entries may be ready: wake workers."""
        self.pool.notify()
