"""Tasks of the user's own loop, counted: their records are committed as they finish."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVarTuple

from asyncrevoke.errors import IllegalStateError
from asyncrevoke.handlers.drain_watch import DrainWatch
from asyncrevoke.handlers.flow import lane_key
from asyncrevoke.handlers.lanes import LaneQueue
from asyncrevoke.handlers.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import TracebackType
    from typing import Self

    from asyncrevoke.config import NullKeys, OrderBy
    from asyncrevoke.handlers.lanes import Entry, Order
    from asyncrevoke.handlers.log import Log
    from asyncrevoke.handlers.source import RecordSource
    from asyncrevoke.model import PollResult, Record, TopicPartition

Ts = TypeVarTuple("Ts")


class _Job:
    """A record and what is to be done with it."""

    __slots__ = ("key", "ledger_id", "offset", "record", "start")

    def __init__(self, record: Record, start: Callable[[], Awaitable[object]]) -> None:
        self.record = record
        self.start = start
        self.key = record.key
        self.offset = record.offset
        self.ledger_id = record.ledger_id


OnTaskError: TypeAlias = Literal["stop", "skip"]
_State: TypeAlias = Literal["new", "entered", "left"]


class TrackedTaskGroup:
    """Runs ``submit``-ted work in ordered lanes, and counts each record as done when it ends.

    ``concurrency`` tasks run at once, and those of one lane (``order_by``) one after another in
    the order of submission. At most ``max_in_flight`` records are submitted and not finished.
    Offsets are committed contiguously; a revoke is delayed by itself while tasks of its partition
    run; a lost partition's tasks are cancelled.

    A task that fails, with ``on_error="stop"``: tasks that have not started are dropped (those
    below a started one of their partition still run), the iterator ends, what runs is waited for,
    and the error is raised by the next ``submit`` or by leaving the group. ``"skip"`` logs it and
    counts the record as done. CancelledError that nobody here has caused is a failure, and so are
    SystemExit and KeyboardInterrupt, always with "stop".

    Leaving the group normally waits for all tasks. If an exception (or a cancellation) leaves the
    body, tasks are cancelled, and their records do not count: commits do not pass them.
    """

    def __init__(
        self,
        source: RecordSource,
        *,
        concurrency: int,
        max_in_flight: int,
        log: Log,
        order_by: OrderBy | None = "key",
        null_keys: NullKeys = "ordered",
        on_error: OnTaskError = "stop",
    ) -> None:
        self._source = source
        self._log = log
        self._order_by = order_by
        self._nulls: NullKeys = null_keys
        self._lanes: LaneQueue[_Job] = LaneQueue(
            None if callable(order_by) else order_by, null_keys
        )
        self._work = JobWork(source, on_error, log, self._stop, self._ended)
        self._workers: Workers[_Job] = Workers(self._lanes, self._work, concurrency, log)
        self._watch = DrainWatch(
            lambda: [(partition, job.offset) for partition, job in self._workers.running()], log
        )
        self._room = asyncio.Semaphore(max_in_flight)
        self._in_flight = 0
        self._state: _State = "new"
        self._failure: BaseException | None = None

    @property
    def in_flight(self) -> int:
        """Records submitted whose tasks have not ended."""
        return self._in_flight

    async def __aenter__(self) -> Self:
        """Enter; if cancelled, nothing has begun."""
        if self._state != "new":
            raise IllegalStateError("a task group is entered once: make another one")
        self._state = "entered"
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for all tasks, or cancel them if an error leaves the body.

        Raises the error of a failed task. If cancelled while waiting, tasks are cancelled as well.
        """
        self._state = "left"
        with self._source.parked():
            try:
                if (error is None or error is self._failure) and not self._work.has_crashed:
                    await self._workers.drained()
            finally:
                self._watch.close()
                await self._end()
        if self._failure is None or error is self._failure:
            return
        if error is None:
            raise self._failure
        self._log.error("a task failed, and another error left its group", exc_info=self._failure)

    async def submit(
        self, function: Callable[[Record, *Ts], Awaitable[object]], record: Record, *args: *Ts
    ) -> bool:
        """Run ``function(record, *args)`` when its lane and the concurrency allow.

        Waits until fewer than ``max_in_flight`` records are in flight (a poll boundary: the time
        does not count towards ``max_poll_interval``). The record is registered before this
        returns True, and before anything of the task runs. False, and nothing is run, if the
        record's partition is lost or released, or the record is done or submitted already.

        Raises the error of a failed task, DecodeError if ``order_by`` is a function and fails, and
        IllegalStateError outside ``async with``. If cancelled, nothing was registered. From inside
        a task of this group it may wait for ever if ``max_in_flight`` tasks do the same.
        """
        self._check_open()
        order = self._order(record)
        if self._room.locked():
            with self._source.parked():
                await self._room.acquire()
        else:
            await self._room.acquire()
        taken = False
        try:
            self._check_open()
            taken = self._source.submit(record)
        finally:
            if not taken:
                self._room.release()
        if not taken:
            return False
        self._in_flight += 1
        job = _Job(record, lambda: function(record, *args))
        self._lanes.put(record.topic_partition, (job,), order)
        self._workers.notify()
        # No await from the registration on: a cancellation could hide it from the caller.
        return True

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions are lost: nothing more of them is started, and what runs is cancelled.

        The consumer calls this as soon as it knows; ``observe`` does it too.
        """
        for partition in partitions:
            for _ in self._lanes.lose(partition):
                self._ended()
            self._workers.cancel(partition)
        self._workers.notify()

    def observe(self, batch: PollResult) -> None:
        """A step is about to return this: the consumer tells before the user sees it."""
        if batch.lost:
            self.lose(batch.lost)
        self._watch.watch(sorted(batch.to_be_revoked))

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._state != "entered":
            raise IllegalStateError("submit works inside `async with consumer.task_group(...)`")

    def _order(self, record: Record) -> Order[_Job] | None:
        if not callable(self._order_by):
            return None
        key = lane_key(self._order_by, self._nulls, record)
        return lambda _jobs: (key,)

    def _ended(self) -> None:
        self._in_flight -= 1
        self._room.release()

    def _abandon(self, job: _Job) -> None:
        self._source.abandon(job.record)
        self._ended()

    def _stop(self, error: BaseException) -> None:
        if self._failure is not None:
            self._log.error("a further task failed while its group stops", exc_info=error)
            return
        self._failure = error
        for partition in self._lanes.partitions():
            for job in self._lanes.drain(partition):
                self._abandon(job)
        self._source.stop()

    async def _end(self) -> None:
        left: list[_Job] = []
        try:
            left = await self._workers.close()
        finally:
            for job in self._lanes.clear():
                self._abandon(job)
            for job in left:
                self._log.error(
                    "a task was cancelled and has not ended: it is left behind",
                    topic=job.record.topic,
                    partition=job.record.partition,
                    offset=job.offset,
                )
                self._abandon(job)


class JobWork:
    """One task at a time, and what its failure means."""

    def __init__(
        self,
        source: RecordSource,
        on_error: OnTaskError,
        log: Log,
        stop: Callable[[BaseException], None],
        ended: Callable[[], None],
    ) -> None:
        self._source = source
        self._on_error = on_error
        self._log = log
        self._stop = stop
        self._ended = ended
        self.has_crashed = False

    def start(self, job: _Job, /) -> Awaitable[object]:
        """Call the user's function."""
        return job.start()

    def finished(self, job: _Job, /) -> None:
        """The record is done."""
        self._source.complete(job.record)
        self._ended()

    def failed(self, entry: Entry[_Job], error: BaseException, /) -> bool:
        """Apply the policy."""
        job = entry[1]
        record = job.record
        if self._on_error == "skip" and not isinstance(error, (SystemExit, KeyboardInterrupt)):
            self._log.warning(
                "a task failed: its record is skipped",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                exc_info=error,
            )
            self.finished(job)
            return True
        error.add_note(f"in a task for {record.topic}-{record.partition} at offset {record.offset}")
        self._source.abandon(record)
        self._ended()
        self._stop(error)
        return False

    def cancelled(self, job: _Job, error: BaseException, /) -> None:
        """The record is not done. An error raised while being cancelled is only logged."""
        record = job.record
        self._source.abandon(record)
        self._ended()
        if not isinstance(error, asyncio.CancelledError):
            self._log.warning(
                "a task failed while it was cancelled",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                exc_info=error,
            )

    def crashed(self, error: BaseException, /) -> None:
        """A worker itself has failed: stop without waiting for what runs."""
        self.has_crashed = True
        self._stop(error)
