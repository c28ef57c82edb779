"""Runs handlers on what a source delivers, until the source stops or a handler stops it."""

from __future__ import annotations

import asyncio
import time
from random import random as any_fraction
from typing import TYPE_CHECKING

from asyncrevoke.errors import ConfigError, UnreadableRecordError
from asyncrevoke.handlers.execution.dispatch import HandlerWork
from asyncrevoke.handlers.execution.ending import end
from asyncrevoke.handlers.policy.batch import Item, first_offset, records_of
from asyncrevoke.handlers.scheduling.backlog import Backlog
from asyncrevoke.handlers.scheduling.handler_limiter import Gate
from asyncrevoke.handlers.scheduling.lanes import Entry, LaneQueue
from asyncrevoke.handlers.scheduling.ordering import flow_of
from asyncrevoke.handlers.scheduling.shares import in_flight_limits
from asyncrevoke.handlers.scheduling.worker_pool import Workers
from asyncrevoke.model import UnreadableRecord
from asyncrevoke.runtime.hooks.running_calls import RunningCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from asyncrevoke.config import NullKeys, OrderBy
    from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetters
    from asyncrevoke.handlers.execution.worker_resources import WorkerResources
    from asyncrevoke.handlers.policy.log import Log
    from asyncrevoke.handlers.registry import Handler, Router
    from asyncrevoke.handlers.scheduling.clock import Clock
    from asyncrevoke.handlers.scheduling.record_source import RecordSource
    from asyncrevoke.model import PollResult, TopicPartition
    from asyncrevoke.runtime.hooks.call_recorder import CallLog
    from asyncrevoke.runtime.hooks.journal_hooks import Witness
    from asyncrevoke.runtime.hooks.observers import Observers
    from asyncrevoke.runtime.session.shutdown_deadline import ShutdownDeadline


class HandlerRunner:
    """The only poller of ``source``: takes records, runs their handlers, completes them.

    Handlers run in lanes (``order_by``), at most ``concurrency`` at once; how many records are
    taken ahead is the source's to bound, which ``max_in_flight`` is for and the handlers' own
    limits are told. A partition in ``to_be_revoked`` drains: with H the
    highest offset whose handler has started, what comes after H is dropped at once and the rest
    runs to its end, without further attempts. Stopping drops at once whatever has not started, of
    every partition. A lost partition's handlers are cancelled.

    ``state`` is what handlers get as ``HandlerContext.state``. ``clock`` (the event loop) times
    retries, batches and handlers, and ``random`` (from 0 to 1) varies the waits of retries.
    ``dead_letters`` is needed if a handler has a dead letter topic or a retry topic, and
    ``wall_clock`` (seconds since the epoch) says until when records wait there. ``workers`` gives
    each call its ``HandlerContext.worker_state``. ``deadline`` bounds what it waits for once it is
    cancelled.
    """

    def __init__(
        self,
        source: RecordSource,
        router: Router,
        *,
        concurrency: int,
        log: Log,
        order_by: OrderBy | None = "key",
        null_keys: NullKeys = "ordered",
        max_in_flight: int = 2000,
        state: object = None,
        clock: Clock | None = None,
        random: Callable[[], float] = any_fraction,
        dead_letters: DeadLetters | None = None,
        wall_clock: Callable[[], float] = time.time,
        workers: WorkerResources | None = None,
        call_log: CallLog | None = None,
        observers: Observers | None = None,
        witness: Witness | None = None,
        deadline: ShutdownDeadline | None = None,
    ) -> None:
        self._source = source
        self._log = log
        self._lanes: LaneQueue[Item] = LaneQueue(
            None if callable(order_by) else order_by, null_keys
        )
        clock = clock or asyncio.get_running_loop()
        self._backlog = Backlog(source, self._lanes, clock)
        self._flows = {
            id(handler): flow_of(
                handler, order_by, null_keys, self._gate(handler, clock), self._backlog.refuse
            )
            for handler in router.handlers
        }
        limits = in_flight_limits(router, max_in_flight)
        if limits is not None:
            source.limit_in_flight(limits)
        self._work = HandlerWork(
            source,
            router,
            self._backlog,
            log,
            self._stop,
            state=state,
            clock=clock,
            random=random,
            dead_letters=dead_letters,
            wall_clock=wall_clock,
            workers=workers,
            call_log=call_log,
            observers=observers,
            witness=witness,
            order_by=order_by,
        )
        self._workers: Workers[Item] = Workers(
            self._lanes, self._work, concurrency, log, source.membership, deadline
        )
        self._backlog.waiting.notify = self._workers.notify
        self._failure: BaseException | None = None

    @property
    def failure(self) -> BaseException | None:
        """What has stopped it first, if anything has failed."""
        return self._failure

    async def run(self) -> None:
        """Handle records until the source stops, then drain, and return.

        Raises what stopped it, when all has drained: the error of a handler whose policy is
        "stop", HandlerExitError for a handler that raised SystemExit or KeyboardInterrupt, an
        error of ``source.poll``, ConfigError for a topic without handler. The records that failed
        are abandoned, so that neither a commit passes them nor a close waits for them.

        If cancelled, handlers are cancelled too and what has not ended is abandoned; it returns
        when they have ended, or 5 s later, naming those that have not.
        """
        try:
            await self._poll_until_stopped()
            self._drain_all()
            if not self._work.has_crashed:
                with self._source.parked():
                    await self._workers.drained()
        except asyncio.CancelledError:
            if self._failure is not None:
                self._log.error("cancelled while a failure drained", exc_info=self._failure)
            raise
        finally:
            await end(self._workers, self._backlog, self._log)
        if self._failure is not None:
            raise self._failure

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions are lost: drop what is queued of them and cancel what runs.

        Poll results do this by themselves; it may be called earlier, for example while closing.
        """
        for partition in partitions:
            self._backlog.lose(partition)
            self._workers.cancel(partition)
        self._workers.notify()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """The user has sought these: no handler begins with a record from before, and those that
        run go on."""
        for partition in partitions:
            self._backlog.drop(partition)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """No handler begins with a record of these until they are resumed."""
        for partition in partitions:
            self._backlog.pause(partition)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Handlers begin again."""
        for partition in partitions:
            self._backlog.resume(partition)

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """These are given up: no handler begins, and records of those that run are held."""
        gone = frozenset(partitions)
        for partition in gone:
            self._backlog.drop(partition)
        for partition, item in self._workers.running():
            if partition in gone:
                for record in records_of(item):
                    self._source.submit(record)

    def running(self) -> Iterator[RunningCall]:
        """The calls that have begun and not ended."""
        for _, item in self._workers.running():
            handler = self._work.prepare(item.topic)
            attempt = self._work.attempt_of(item)
            where = item.topic, item.partition, first_offset(item)
            yield RunningCall(item, attempt, handler.name, *where, handler.max_handler_time)

    def name_of(self, partition: TopicPartition, _offset: int) -> str | None:
        """The handler that has a record of this partition."""
        return self._work.prepare(partition.topic).name

    async def _poll_until_stopped(self) -> None:
        while self._failure is None:
            try:
                batch = await self._source.poll()
            except StopAsyncIteration:
                return
            except Exception as error:  # noqa: BLE001 - raised by run, after the drain
                self._stop(error)
                return
            try:
                self._take(batch)
            except ConfigError as error:
                self._stop(error)
                return
            if self._failure is None:
                # A source that always has records must not keep the loop from the workers.
                await asyncio.sleep(0)

    def _take(self, batch: PollResult) -> None:
        if batch.lost:
            self.lose(batch.lost)
        for partition, records in batch.by_partition().items():
            handler = self._work.prepare(partition.topic)
            flow, batches = self._flows[id(handler)], handler.batch
            # Of a partition's records, only the last one may be unreadable.
            last = records[-1]
            unreadable = isinstance(last, UnreadableRecord)
            readable = records[:-1] if unreadable else records
            if batches is None:
                self._work.choose(partition.topic, readable)
                self._backlog.put(partition, readable, flow)
            elif readable:
                self._backlog.collect(
                    partition, readable, batches.max_records, batches.max_wait, flow
                )
            if isinstance(last, UnreadableRecord):
                self._backlog.refuse(last, UnreadableRecordError.of(last))
                self._backlog.put(partition, (last,), flow)
        self._workers.notify()
        for partition in sorted(batch.to_be_revoked):
            self._backlog.drain(partition)

    def _gate(self, handler: Handler, clock: Clock) -> Gate[Entry[Item]] | None:
        limits = handler.limits
        if not limits.needs_gate:
            return None
        return Gate(clock, limits.concurrency, limits.rate, self._backlog.admit)

    def _drain_all(self) -> None:
        self._backlog.drain_all()

    def _stop(self, error: BaseException) -> None:
        """No new records; what has started runs to its end; ``run`` raises the first error."""
        if self._failure is not None:
            self._log.error("a further handler failed while the consumer stops", exc_info=error)
            return
        self._failure = error
        self._drain_all()
        self._source.stop()
