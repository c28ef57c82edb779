"""A consumer that has been entered: steps of the iterator, and the way out."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from asyncrevoke.errors import AsyncRevokeError, ConsumerClosedError, IllegalStateError
from asyncrevoke.model import PollResult
from asyncrevoke.runtime.hooks.observer import Facts
from asyncrevoke.runtime.hooks.revoke_warnings import DelayedRevokes
from asyncrevoke.runtime.hooks.running_calls import RunningCalls
from asyncrevoke.runtime.loop.poll_boundary import poll_boundary
from asyncrevoke.runtime.session.membership_guard import ConsumerMembership
from asyncrevoke.runtime.session.record_iterator import RecordIterator
from asyncrevoke.runtime.session.record_owners import RecordOwners
from asyncrevoke.runtime.session.shutdown import Exit
from asyncrevoke.runtime.session.shutdown_deadline import ShutdownDeadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.consumer_core import ConsumerCore
    from asyncrevoke.core.fetch.delayed_topic import TopicDelay
    from asyncrevoke.core.partition.hand_out import RecordReader
    from asyncrevoke.model import (
        BlockingRecord,
        Record,
        RunningHandler,
        TopicPartition,
    )
    from asyncrevoke.runtime.hooks.call_recorder import CallLog
    from asyncrevoke.runtime.hooks.dead_letter_writer import LetterWriter
    from asyncrevoke.runtime.hooks.event_log import EventLog
    from asyncrevoke.runtime.hooks.journal_hooks import Witness
    from asyncrevoke.runtime.hooks.listener_calls import ListenerCalls
    from asyncrevoke.runtime.hooks.observers import Observers
    from asyncrevoke.runtime.loop.driver import Driver
    from asyncrevoke.runtime.session.record_owner import Workers

T = TypeVar("T")

# A loop body that never waits would keep heartbeats from being sent: a step gives way so often.
_TURN = 0.005


class Session:
    """One core on one event loop, from being entered to being closed.

    Also the :class:`~asyncrevoke.handlers.scheduling.record_source.RecordSource` of handlers and
    task groups.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        core: ConsumerCore,
        driver: Driver,
        listener: ListenerCalls,
        log: EventLog,
    ) -> None:
        self.core = core
        self.log = log
        self._config = config
        self.config = config  # for other clients of ours, such as the producer of dead letters
        self._driver = driver
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._stepping = False
        self._turn_since = 0.0
        # One for all that waits once the consumer stops.
        self.deadline = ShutdownDeadline(driver.now, config.close_timeout)
        self._exit = Exit(core, driver, listener, log, self.deadline, self)
        self.membership = ConsumerMembership(core, driver)
        self._reader: RecordIterator | None = None
        self._owners = RecordOwners()
        self._delayed = DelayedRevokes()
        self._running = RunningCalls()
        # None: the real ones.
        self.letters: LetterWriter | None = None
        # Seconds since the epoch.
        self.wall_clock: Callable[[], float] = time.time
        self._delays = False
        # None: nobody writes down what handlers are called with.
        self.call_log: CallLog | None = None
        # None: nobody looks on.
        self.observers: Observers | None = None
        # None: nobody writes a journal.
        self.witness: Witness | None = None
        # The same while a loop of the user's takes the records.
        self._seen_by: Witness | None = None

    def observed_by(self, observers: Observers) -> None:
        """Tell these of all that happens; to be called before :meth:`start`."""
        self.observers = observers
        self.log.on_event = observers.happened
        self._driver.on_end = observers.closed
        observers.opened()

    def facts(self) -> Facts:
        """What the consumer is like now."""
        now = self._driver.now()
        health = self.core.health(now)._replace(blocking_records=self.blocking())
        return Facts(now, health, self.core.partition_statuses())

    def watched_by(self, witness: Witness) -> None:
        """Let everything be written down."""
        self.witness = self._seen_by = witness
        self._exit.at_end = witness.aclose
        witness.opened(self.core, self._driver.fail)

    def start(self) -> None:
        """Begin to connect."""
        self._driver.on_lost = self._lost
        self._driver.on_tick = self._tick
        self._driver.start()

    def delay(self, delays: Mapping[str, TopicDelay]) -> None:
        """Return the records of these topics when they are due; see ``ConsumerCore.delay``."""
        self._delays = bool(delays)
        self.core.delay(delays)

    # --- calls of the core -----------------------------------------------------------------------

    def now(self) -> float:
        """The core's clock in seconds."""
        return self._driver.now()

    def check_thread(self) -> None:
        """Raise RuntimeError unless called from the event loop that the consumer was entered in."""
        if threading.get_ident() != self._thread:
            raise IllegalStateError(
                "a consumer belongs to the thread and event loop that it was entered in: from "
                "another thread use loop.call_soon_threadsafe or asyncio.run_coroutine_threadsafe"
            )

    def check_loop(self) -> None:
        """Like :meth:`check_thread`, for what waits."""
        self.check_thread()
        if asyncio.get_running_loop() is not self._loop:
            raise IllegalStateError(
                "a consumer belongs to the event loop that it was entered in: enter another one "
                "in this event loop"
            )

    def call(self, function: Callable[[], T]) -> T:
        """Call the core and carry out what follows from it; what it raises is the caller's."""
        self.check_thread()
        if self._driver.error is not None:
            raise self._driver.error
        try:
            return function()
        finally:
            self._driver.flush()

    async def ask(self, request: Callable[[], int]) -> object:
        """Call the core for a ticket and wait for what it brings.

        If cancelled, the request goes on without being waited for.
        """
        self.check_loop()
        if self._driver.error is not None:
            raise self._driver.error
        try:
            future = self._driver.ticket(request())
        finally:
            self._driver.flush()
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled() and not _being_cancelled():
                raise ConsumerClosedError(
                    "the consumer was closed while this call waited"
                ) from None
            raise

    # --- positions -------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read this offset next; records of the partition that no one has begun are dropped."""
        self.call(lambda: self.core.seek(self.now(), partition, offset))
        self._owners.drop((partition,))

    async def seek_to(self, partitions: Sequence[TopicPartition], timestamp: int) -> None:
        """Like :meth:`seek`, for an offset that is looked up."""

        def begin() -> int:
            ticket = self.core.seek_to(self.now(), partitions, timestamp)
            self._owners.drop(partitions)
            return ticket

        await self.ask(begin)

    def pause_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Return and begin nothing of these until they are resumed."""
        self.call(lambda: self.core.pause(partitions))
        self._owners.pause(partitions)

    def resume_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Go on with them."""
        self.call(lambda: self.core.resume(self.now(), partitions))
        self._owners.resume(partitions)

    async def unsubscribe(self) -> None:
        """Drain, commit, release, leave the group."""

        def begin() -> int:
            self._owners.leave(sorted(self.core.assignment()))
            return self.core.unsubscribe(self.now())

        await self.ask(begin)

    # --- steps -----------------------------------------------------------------------------------

    async def step(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - a result, not an error, ends it
        max_records: int | None = None,
        *,
        reader: RecordReader | None = None,
    ) -> PollResult | None:
        """One step (R1 to R8); None when the consumer is stopping. See ``Consumer.poll``.

        With a ``reader`` it hands the records out.
        """
        self.check_loop()
        if self._stepping:
            raise IllegalStateError(
                "another task is waiting for the next batch of this consumer: one loop per "
                "consumer; share the work with consumer.task_group() or with handlers"
            )
        self._stepping = True
        self._exit.body = None
        try:
            self._report_read()
            if self._seen_by is not None:
                self._seen_by.asked(counts=True)
            if self.witness is not None and self.witness.behind:
                await self.witness.flush()
            result = await self._step(timeout, max_records, reader)
        except asyncio.CancelledError:
            self.core.interrupt(self._driver.now())
            self._driver.flush()
            raise
        finally:
            self._stepping = False
        if result is None:
            self._exit.loop_left()
        else:
            self._exit.body = asyncio.current_task()
            self._owners.observe(result)
            if reader is not None:
                # Of its records, observers and the witness hear when it has handed them out.
                result = PollResult({}, result.to_be_revoked, result.lost)
            if self.observers is not None:
                self.observers.polled(result)
            if self._seen_by is not None:
                self._seen_by.delivered(result)
        return result

    async def _step(
        self, wait: float | None, max_records: int | None, reader: RecordReader | None
    ) -> PollResult | None:
        driver = self._driver
        started = driver.now()
        deadline = None if wait is None else started + wait
        if started - self._turn_since > _TURN:
            # Before anything is taken, so that a cancellation here costs nothing.
            self._turn_since = started
            await asyncio.sleep(0)
        expired = False
        while True:
            if (error := self._listener.take_error()) is not None:
                raise error
            if driver.error is not None:
                raise driver.error
            driver.wake.clear()
            # From here to the return nothing is awaited: what was taken is delivered (R6).
            result = self._poll(max_records, reader, expired=expired)
            if result is not None:
                return result
            if self.core.ended:
                return None
            expired = not await driver.wait_until(deadline)
            self._turn_since = driver.now()

    def _poll(
        self, max_records: int | None, reader: RecordReader | None, *, expired: bool
    ) -> PollResult | None:
        now = self._driver.now()
        if self._delays:
            # The loop's clock stands still while the machine is suspended.
            self.core.set_wall_clock(self.wall_clock() - now)
        try:
            return self.core.poll(
                now, max_records, expired=expired, records_first=True, reader=reader
            )
        except AsyncRevokeError:
            raise
        except Exception as error:
            self._driver.fail(error)
            raise (self._driver.error or error) from error
        finally:
            self._driver.flush()
            if self.core.owes_plan:
                # To plan and write requests takes about as long as all that is between an answer
                # and its handlers: what was just drained goes to them before we ask for more.
                self._driver.soon(self.core.plan_owed)

    def stop(self) -> None:
        """The next step counts the previous batch, then the iterator ends. From any thread.

        Handlers that run end within ``close_timeout`` from now, and the consumer closes then.
        """
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.stop)
            return
        if self._exit.begun:
            return
        if self._exit.handlers is not None:
            self._exit.begin()
        if self._driver.error is None:
            self.call(lambda: self.core.stop(self.now()))
            self._driver.wake.set()

    # --- RecordSource ----------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Records delivered and neither done nor dropped nor lost."""
        return self.core.in_flight

    @property
    def stopping(self) -> bool:
        """Whether there are no further records."""
        return self.core.stopping or self._exit.begun

    async def poll(self) -> PollResult:
        """One step; StopAsyncIteration when the consumer is stopping."""
        result = await self.step()
        if result is None:
            raise StopAsyncIteration
        return result

    async def step_for(self, reader: RecordReader) -> PollResult:
        """Like :meth:`poll`, for :meth:`records`."""
        result = await self.step(reader=reader)
        if result is None:
            raise StopAsyncIteration
        return result

    def submit(self, record: Record) -> bool:
        """A task is about to hold this record; False if its partition is lost or released."""
        if self._seen_by is not None:
            self._seen_by.submitted(record)
        return self.core.submit(record)

    def complete(self, record: Record) -> bool:
        """The record is done; False if its partition is lost or released."""
        if self._seen_by is not None:
            self._seen_by.completed(record)
        done = self.core.complete(self._driver.now(), record)
        self._driver.flush()
        return done

    def complete_all(self, records: Sequence[Record]) -> None:
        """These records are done; those of lost or released partitions are passed over."""
        self.core.complete_all(self._driver.now(), records)
        self._driver.flush()

    def abandon(self, record: Record) -> None:
        """The record has ended and is not done."""
        self.abandon_all((record,))

    def abandon_all(self, records: Sequence[Record]) -> None:
        """These records were never started, or have ended and are not done."""
        self.core.abandon_all(self._driver.now(), records)
        self._driver.flush()

    def droppable_from(self, partition: TopicPartition, unstarted: Sequence[Record]) -> int:
        """From which offset on a revoke may drop records that were not started."""
        return self.core.droppable_from(partition, unstarted)

    def drop_after(self, partition: TopicPartition, offset: int) -> None:
        """Give up the returned records after ``offset``; none of them was started."""
        self.core.drop_after(self._driver.now(), partition, offset)
        self._driver.flush()

    def limit_in_flight(self, limit_of: Callable[[str], tuple[str, int] | None]) -> None:
        """For each topic, a name and how many records of that name may be in flight."""
        self.core.limit_in_flight(limit_of)

    def is_revoking(self, partition: TopicPartition) -> bool:
        """Whether this partition is on its way to be given up."""
        return self.core.is_revoking(partition)

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether this partition is paused."""
        return partition in self.core.paused()

    def pause(self, record: Record) -> None:
        """Nothing more of this record's partition is returned, until the user resumes it."""
        if self.core.owns(record):
            self.core.pause([record.topic_partition])

    def parked(self) -> AbstractContextManager[None]:
        """Inside, the caller awaits the library: a poll boundary, and no start of a step."""
        return poll_boundary(self.core, self._driver)

    # --- counting --------------------------------------------------------------------------------

    def watch(self, workers: Workers) -> None:
        """Tell these early what is lost, and a task group of each result."""
        if self._owners.add(workers):
            # The next step counts what no task holds.
            self.core.track(True, next_poll_completes=True)

    def records(self) -> RecordIterator:
        """The iterator over single records."""
        if self._reader is None:
            self._reader = RecordIterator(self, self.membership, self._seen_by)
        return self._reader

    def _report_read(self) -> None:
        """Tell observers what the reader has handed out: the rest of a step may never be."""
        if self.observers is not None and self._reader is not None:
            read = self._reader.unreported()
            if read:
                self.observers.polled(PollResult(read))

    def _lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._owners.lose(sorted(partitions))

    def blocking(self) -> tuple[BlockingRecord, ...]:
        """What holds back each partition that is to be given up, and whose it is."""
        return tuple(
            record._replace(handler=self._owners.name_of(record))
            for record in self.core.blocking_records(self._driver.now())
        )

    def running(self) -> tuple[RunningHandler, ...]:
        """The calls of handlers that have not ended, the longest first."""
        return tuple(self._running.look(self.now(), list(self._owners.running())))

    def _tick(self) -> None:
        self.running()
        self._say_what_blocks()
        if self.observers is not None:
            self._report_read()
            self.observers.ticked(self._driver.loop_lag)

    def _say_what_blocks(self) -> None:
        due = self._delayed.due(self.blocking())
        for record in due:
            fields = {name: what for name, what in record._asdict().items() if what is not None}
            self.log.warning("revoke held back", **fields)
        if due:
            self._driver.tell_blocking(due)

    # --- the way out -----------------------------------------------------------------------------

    @property
    def failure(self) -> BaseException | None:
        """What has ended the consumer, or its handlers, for good."""
        handlers = self._exit.handlers
        if handlers is not None and handlers.done() and not handlers.cancelled():
            return handlers.exception() or self._driver.error
        return self._driver.error

    @property
    def closing(self) -> bool:
        """Whether the consumer can be used no more."""
        return self._exit.closing

    async def handlers_ended(self) -> None:
        """Return when the handlers have ended, or when the consumer has closed without them."""
        await self._exit.handlers_ended()

    def wait_for(self, handlers: asyncio.Task[None]) -> None:
        """Let closing wait for this task, which stops when :meth:`poll` does."""
        self._exit.handlers = handlers
        self._seen_by = None
        self.core.track(True)

    def close_soon(self) -> None:
        """Begin to close, without being waited for: the handlers have ended."""
        self._exit.begin()

    async def aclose(self, *, graceful: bool = True) -> None:
        """Close within ``close_timeout``; see :meth:`Exit.aclose`."""
        self.check_loop()
        self._report_read()
        await self._exit.aclose(graceful=graceful)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
