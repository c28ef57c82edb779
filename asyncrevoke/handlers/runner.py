"""Runs handlers on the records of a source, until it stops or a failed handler stops it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.deadline import time_for_running
from asyncrevoke.client.errors import ConfigError, UnreadableRecordError
from asyncrevoke.client.model import (
    FailurePause,
    Outage,
    PollResult,
    Record,
    TopicPartition,
    UnreadableRecord,
    UnwrittenRecords,
)
from asyncrevoke.client.runtime.session.record_owners import RecordOwner
from asyncrevoke.client.runtime.session.status import RunningCall
from asyncrevoke.handlers.decoding.outages import outages_of
from asyncrevoke.handlers.execution.pipeline import HandlerPipeline
from asyncrevoke.handlers.policy.batch import first_unfinished_offset, unfinished_records
from asyncrevoke.handlers.scheduling.handler_ordering import HandlerInFlightLimits, HandlerOrdering

if TYPE_CHECKING:
    from asyncio import TimerHandle
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from asyncrevoke.handlers.execution.runner_context import RunnerContext
    from asyncrevoke.handlers.matching import HandlerLookup, SharedTopic
    from asyncrevoke.handlers.scheduling.record_source import RecordSource


class HandlerRunner(RecordOwner):
    """The only poller of ``source``: takes records, runs their handlers, completes them.

    When the revocation of a partition is announced, records that have not started are dropped, and
    running handlers end without retries. Gaps are handled before, unless the next owner learns what
    is done beyond them (``TakenRecords.droppable_from``). The same happens to all partitions when
    the source stops; then gaps are dropped shortly before the deadline, or at once after a failure.
    The handlers of a lost partition are cancelled.
    """

    def __init__(self, source: RecordSource, lookup: HandlerLookup, context: RunnerContext) -> None:
        self._source = source
        self._lookup = lookup
        self._context = context
        self._log = context.log
        # What has stopped the runner; None if nothing has.
        self.failure: BaseException | None = None
        # When gaps of revoked partitions are dropped, and those of all when the source has stopped.
        self._gap_timers: dict[TopicPartition | None, TimerHandle] = {}
        self._pipeline = pipeline = HandlerPipeline(
            source, source.membership, lookup, context, self
        )
        self._orderings = {
            id(handler): pipeline.ordering_of(handler) for handler in lookup.handlers
        }
        limits = HandlerInFlightLimits(lookup, context.max_in_flight)
        if limits:
            source.limit_in_flight(limits)

    async def run(self) -> None:
        """Handle records until the source stops; return when all handlers have ended.

        Raises the error that stopped it: of a handler with ``on_error="stop"`` or of
        ``source.poll``, HandlerExitError for a handler that raised SystemExit or KeyboardInterrupt,
        or ConfigError for a topic without a handler. Failed records are abandoned: no commit passes
        them, and closing does not wait for them.

        If cancelled, handlers are cancelled too, and their records are abandoned. The cancellation
        ends when the handlers have ended, or after 5 s; then each that still runs is logged.
        """
        pipeline = self._pipeline
        try:
            await self._poll_until_stopped()
            self._drain()
            if not pipeline.dispatcher.worker_has_failed:
                with self._source.awaiting_library():
                    await pipeline.pool.wait_until_idle()
                    await pipeline.results_ended()
        except asyncio.CancelledError:
            if self.failure is not None:
                log_events.CANCELLED_AFTER_FAILURE.write_to(self._log, exc_info=self.failure)
            raise
        finally:
            for timer in self._gap_timers.values():
                timer.cancel()
            await pipeline.close()
        if self.failure is not None:
            raise self.failure

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the queued records of these lost partitions, and cancel their running handlers.

        A poll result that lists a loss does the same; closing calls this earlier.
        """
        for partition in partitions:
            self._pipeline.lose(partition)
        self._pipeline.pool.notify()

    def lose_records(self, is_lost: Callable[[Record], bool]) -> None:
        """Cancel the running calls all of whose records are lost. What has not started is dropped
        when it would start: no lock is left to begin with."""
        self._pipeline.pool.cancel_calls(
            lambda item: all(is_lost(record) for record in unfinished_records(item))
        )

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Start no record that was delivered before a seek of these partitions.

        Running handlers are not cancelled.
        """
        for partition in partitions:
            self._pipeline.backlog.seek(partition)

    def pause_by_user(self, partitions: Iterable[TopicPartition]) -> None:
        """Start no record of these partitions until they are resumed."""
        for partition in partitions:
            self._pipeline.backlog.pause_by_user(partition)

    def resume_by_user(self, partitions: Iterable[TopicPartition]) -> None:
        """Start records of these partitions again."""
        for partition in partitions:
            self._pipeline.backlog.resume(partition)

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """Start no record of partitions that the user has unassigned.

        Records whose handlers run stay in flight until these have ended.
        """
        gone = frozenset(partitions)
        for partition in gone:
            self._pipeline.backlog.seek(partition)
        for partition, item in self._pipeline.pool.running():
            if partition in gone:
                for record in unfinished_records(item):
                    self._source.submit(record)

    def running(self) -> Iterator[RunningCall]:
        """The calls that run now."""
        pipeline = self._pipeline
        for _, item in pipeline.pool.running():
            handler = pipeline.dispatcher.handler_of(item)
            attempt = pipeline.backlog.calls_of(item)
            where = item.topic, item.partition, first_unfinished_offset(item)
            yield RunningCall(item, attempt, handler.name, *where, handler.max_handler_time)

    def failure_pauses(self) -> Sequence[FailurePause]:
        """Why partitions are paused until a failed record succeeds."""
        return self._pipeline.backlog.failure_pauses()

    def unwritten(self) -> Iterator[UnwrittenRecords]:
        """The failed records that are held until another topic takes them."""
        return self._pipeline.failures.held.unwritten()

    def outages(self) -> Iterator[Outage]:
        """The servers that do not respond to decoders and encoders."""
        handlers = self._lookup.handlers
        return outages_of(part for one in handlers for part in (one.decoder, one.encoder))

    def name_of(self, partition: TopicPartition, offset: int) -> str | None:
        """The name of a record's handler; if it is unknown, the names of the topic's handlers."""
        return self._pipeline.dispatcher.name_at(partition, offset)

    def stop_after_failure(self, error: BaseException) -> None:
        """Start no record, let running handlers end, and let :meth:`run` raise the first error."""
        if self.failure is not None:
            log_events.ANOTHER_HANDLER_FAILED.write_to(self._log, exc_info=error)
            return
        self.failure = error
        self._pipeline.backlog.stop()
        self._source.stop()

    def report_ended(self) -> None:
        """Count the records whose calls have ended in this turn of the event loop."""
        self._pipeline.dispatcher.flush_completed()

    def _drain(self) -> None:
        """Start no record, except those of gaps until shortly before the deadline."""
        backlog, deadline = self._pipeline.backlog, self._context.deadline
        if self.failure is not None:
            backlog.stop()
        elif backlog.drain() and deadline is not None:
            seconds = deadline.until_gaps_end()
            if seconds is not None:
                log_events.CLOSING_HANDLES_GAPS.write_to(self._log, seconds=round(seconds, 3))
                timer = self._context.clock.call_later(seconds, self._drop_gaps)
                self._gap_timers[None] = timer

    def _drop_gap_in_time(self, partition: TopicPartition) -> None:
        """Drop the gap of a revoked partition in time for its running handlers, and its lifespan,
        to end before its deadline."""
        seconds = self._source.revocation_ends_in(partition)
        former = self._gap_timers.pop(partition, None)
        if former is not None:
            former.cancel()
        if seconds is not None:
            self._gap_timers[partition] = self._context.clock.call_later(
                max(0.0, seconds - time_for_running(seconds)), lambda: self._drop_gap(partition)
            )

    def _drop_gap(self, partition: TopicPartition) -> None:
        del self._gap_timers[partition]
        if self._source.is_revoking(partition):
            log_events.GAPS_DROPPED.write_to(self._log, partition=str(partition))
            self._pipeline.backlog.drop_gap(partition)

    def _drop_gaps(self) -> None:
        if self.failure is None:
            log_events.GAPS_DROPPED.write_to(self._log)
        self._pipeline.backlog.stop()

    async def _poll_until_stopped(self) -> None:
        while self.failure is None:
            try:
                batch = await self._source.poll()
            except StopAsyncIteration:
                return
            except Exception as error:  # noqa: BLE001 - raised by run, when handlers have ended
                self.stop_after_failure(error)
                return
            try:
                self._take(batch)
            except ConfigError as error:
                self.stop_after_failure(error)
                return
            if self.failure is None:
                # A poll that never waits would keep the workers from running.
                await asyncio.sleep(0)

    def _take(self, batch: PollResult) -> None:
        if batch.lost:
            self.lose(batch.lost)
        dispatcher, backlog = self._pipeline.dispatcher, self._pipeline.backlog
        lanes = self._pipeline.lanes
        for partition, records in batch.by_partition().items():
            handler = dispatcher.prepare(partition.topic)
            ordering = self._orderings[id(handler)]
            matcher = dispatcher.matchers.get(partition.topic)
            if matcher is not None:
                self._take_matched(partition, records, matcher, ordering)
                continue
            # Of a partition's records, only the last one may be unreadable.
            last = records[-1]
            readable = records[:-1] if isinstance(last, UnreadableRecord) else records
            if handler.batch is None:
                dispatcher.choose_traced(partition.topic, readable)
                lanes.put(partition, readable, ordering.lane_keys, ordering.limiter)
            elif readable:
                backlog.put_for_batches(partition, readable, handler.batch, ordering)
            if isinstance(last, UnreadableRecord):
                backlog.fail_when_taken(last, UnreadableRecordError.of(last))
                lanes.put(partition, (last,), ordering.lane_keys, ordering.limiter)
        self._pipeline.pool.notify()
        for partition in sorted(batch.to_be_revoked):
            if backlog.revocation_announced(partition):
                self._drop_gap_in_time(partition)

    def _take_matched(
        self,
        partition: TopicPartition,
        records: Sequence[Record],
        matcher: SharedTopic,
        ordering: HandlerOrdering,
    ) -> None:
        """Choose the handler of each record of a topic with several handlers, and queue it.

        All of these handlers share the partition's lanes.
        """
        backlog = self._pipeline.backlog
        batch = matcher.handlers[0].batch
        collected: list[Record] = []
        single: list[Record] = []
        for record in records:
            if isinstance(record, UnreadableRecord):
                error: BaseException | None = UnreadableRecordError.of(record)
                handler = matcher.fallback
            else:
                handler, error = matcher.choose(record)
            if batch is not None and error is None:
                collected.append(record)
            else:
                backlog.choose_handler(record, handler, error)
                single.append(record)
        if batch is not None and collected:
            backlog.put_for_batches(partition, collected, batch, ordering)
        self._pipeline.lanes.put(partition, single, ordering.lane_keys, ordering.limiter)
