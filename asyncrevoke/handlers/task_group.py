"""Tasks of the user's own loop, counted: their records are committed as they finish."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from random import random as any_fraction
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar, TypeVarTuple

from asyncrevoke.errors import HandlerExitError, IllegalStateError
from asyncrevoke.handlers.execution.dispatch import HandlerWork
from asyncrevoke.handlers.execution.ending import end
from asyncrevoke.handlers.policy.limits import Limits
from asyncrevoke.handlers.registry import Handler
from asyncrevoke.handlers.scheduling.backlog import Backlog
from asyncrevoke.handlers.scheduling.lanes import LaneQueue
from asyncrevoke.handlers.scheduling.ordering import Flow, lane_key
from asyncrevoke.handlers.scheduling.task_records import TaskRecords
from asyncrevoke.handlers.scheduling.worker_pool import Workers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from asyncrevoke.config import NullKeys, OrderBy
    from asyncrevoke.handlers.dead_letters.dead_letter import LetterSender
    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.policy.log import Log
    from asyncrevoke.handlers.policy.middleware import Middleware
    from asyncrevoke.handlers.policy.retry import Retry
    from asyncrevoke.handlers.registry import OnError
    from asyncrevoke.handlers.scheduling.clock import Clock
    from asyncrevoke.handlers.scheduling.record_source import RecordSource
    from asyncrevoke.model import PollResult, Record, TopicPartition
    from asyncrevoke.runtime.hooks.journal_hooks import Witness
    from asyncrevoke.runtime.hooks.observers import Observers
    from asyncrevoke.runtime.session.shutdown_deadline import ShutdownDeadline

Ts = TypeVarTuple("Ts")
R = TypeVar("R")
# Tasks that one log line names.
_NAMED = 20
_State: TypeAlias = Literal["new", "entered", "left"]


class _AllTopics:
    """The tasks of a group as if they were one handler, whose failures have one policy."""

    def __init__(self, handler: Handler) -> None:
        self.handlers = (handler,)

    def find(self, _topic: str) -> Handler:
        return self.handlers[0]

    def middleware_of(self, _handler: Handler) -> tuple[Middleware, ...]:
        return ()


class _Result(Generic[R]):
    """What a record's task will have returned, if it ends well."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.ended = asyncio.Event()
        self.value: tuple[R] | None = None

    async def of(self, call: Awaitable[R]) -> None:
        """Await the call and keep what it returns."""
        self.value = (await call,)


class TrackedTaskGroup:
    """Runs tasks on records in ordered lanes, and counts each record as done when its task ends.

    ``concurrency`` tasks run at once, and those of one lane (``order_by``) one after another in
    the order of submission. At most ``max_in_flight`` records are submitted and not finished.
    Offsets are committed contiguously; a revoke is delayed by itself while tasks of its partition
    run; a lost partition's tasks are cancelled.

    A task that fails goes the way of a handler that fails: it is called again as ``retry`` says,
    while its lane waits; then its record goes to the topic ``dead_letter``, or by ``on_error``.
    ``"stop"`` (the default): tasks that have not started are dropped, the iterator ends, what runs
    is waited for, for ``close_timeout`` at most, and the error is raised by the next ``submit`` or
    ``map``, or by leaving the group. ``"skip"`` logs it and counts the
    record as done. ``"pause"`` stops its partition, whose records ``submit`` refuses from then on,
    until it is resumed. CancelledError that nobody here has caused is a failure; SystemExit and
    KeyboardInterrupt always stop.

    A record that waits for its next attempt gets none when its partition is to be given up, or the
    group is left: it is not done, nor is what waits behind it.

    Leaving the group normally waits for all tasks that run or are ready to. If an exception (or a
    cancellation) leaves the body, tasks are cancelled, and their records do not count: commits do
    not pass them.
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
        retry: Retry | None = None,
        dead_letter: str | None = None,
        on_error: OnError = "stop",
        dead_letters: LetterSender | None = None,
        clock: Clock | None = None,
        random: Callable[[], float] = any_fraction,
        observers: Observers | None = None,
        witness: Witness | None = None,
        deadline: ShutdownDeadline | None = None,
    ) -> None:
        # Begins with the first failure.
        self._deadline = deadline
        # While the group is left: what bounds that after a failure.
        self._limit: asyncio.Timeout | None = None
        clock = clock or asyncio.get_running_loop()
        self._log = log
        self._order_by = order_by
        self._nulls: NullKeys = null_keys
        self._room = asyncio.Semaphore(max_in_flight)
        self._records = TaskRecords(source, self._room.release)
        self._source = source
        self._dead_letters = dead_letters
        self._lanes: LaneQueue[Item] = LaneQueue(
            None if callable(order_by) else order_by, null_keys
        )
        self._backlog = Backlog(self._records, self._lanes, clock)
        handler = Handler(
            name="a task of the task group",
            function=self._records.call,
            topics=(),
            pattern=None,
            retry=retry,
            retry_topic=None,
            dead_letter=dead_letter,
            on_error=on_error,
            call=self._records.call,
            wants_context=False,
            batch=None,
            max_handler_time=None,
            decoder=None,
            order_by="as configured",
            limits=Limits(),
        )
        self._work = HandlerWork(
            self._records,
            _AllTopics(handler),
            self._backlog,
            log,
            self._stop,
            state=None,
            clock=clock,
            random=random,
            dead_letters=dead_letters,
            wall_clock=time.time,
            observers=observers,
            witness=witness,
            order_by=order_by,
        )
        self._workers: Workers[Item] = Workers(
            self._lanes, self._work, concurrency, log, source.membership, deadline
        )
        self._backlog.waiting.notify = self._workers.notify
        self._state: _State = "new"
        self._failure: BaseException | None = None

    @property
    def in_flight(self) -> int:
        """Records submitted whose tasks have not ended; those that wait for a retry included."""
        return len(self._records)

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
        """Wait for tasks, or cancel them if an error leaves the body.

        Raises the error of a failed task. If cancelled while waiting, tasks are cancelled as well.
        """
        self._state = "left"
        self._records.ending = True  # no further attempts
        with self._source.parked():
            try:
                if (error is None or error is self._failure) and not self._work.has_crashed:
                    await self._drained()
            finally:
                await self._end()
        if self._failure is None or error is self._failure:
            return
        if error is None:
            raise self._failure
        self._log.error("a task failed, and another error left its group", exc_info=self._failure)

    async def _drained(self) -> None:
        try:
            async with asyncio.timeout(None) as limit:
                self._limit = limit
                try:
                    self._limit_after_failure()
                    await self._workers.drained()
                finally:
                    self._limit = None
        except TimeoutError:
            running = [item for _, item in self._workers.running()]
            names = [self.name_of(item.topic_partition, item.offset) for item in running]
            self._log.warning(
                "close_timeout reached: running tasks are cancelled, their records come again",
                running=len(running),
                tasks=[
                    f"{name} {item.topic}-{item.partition} offset {item.offset}"
                    for name, item in zip(names, running, strict=True)
                ][:_NAMED],
            )

    def _limit_after_failure(self) -> None:
        if self._deadline is None or self._failure is None:
            return
        deadline = self._deadline.begin()
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(deadline.work)

    async def submit(
        self, function: Callable[[Record, *Ts], Awaitable[object]], record: Record, *args: *Ts
    ) -> bool:
        """Run ``function(record, *args)`` when its lane and the concurrency allow.

        Waits until fewer than ``max_in_flight`` records are in flight (a poll boundary: the time
        does not count towards ``max_poll_interval``). The record is registered before this
        returns True, and before anything of the task runs. False, and nothing is run, if the
        record's partition is lost or released, or paused by a failure, or the record is done or
        submitted already.

        Raises the error of a failed task, DecodeError if ``order_by`` is a function and fails, and
        IllegalStateError outside ``async with``. If cancelled, nothing was registered. From inside
        a task of this group it may wait for ever if ``max_in_flight`` tasks do the same.
        """
        return await self._submit(record, function, partial(function, record, *args), None)

    async def map(
        self,
        function: Callable[[Record, *Ts], Awaitable[R]],
        records: Iterable[Record],
        *args: *Ts,
    ) -> AsyncGenerator[tuple[Record, R]]:
        """Submit all records, and yield ``(record, what function(record, *args) returned)``.

        In the order of ``records``, however their tasks end. Records without a result are left
        out: skipped, dead-lettered, of a lost or paused partition, or given up. A record is done
        when its task has ended, whatever you do with its result afterwards: what must not be lost
        belongs into the function.

        Submits as far as there is room, and waits for tasks as ``submit`` waits for room. Raises
        the error of a failed task. If cancelled, or left early, what was submitted goes on.
        """
        results: deque[_Result[R]] = deque()
        for record in records:
            while results and (results[0].ended.is_set() or self._room.locked()):
                result = results.popleft()
                if (value := await self._value(result)) is not None:
                    yield result.record, value[0]
            future: _Result[R] = _Result(record)
            call = partial(_keep, future, partial(function, record, *args))
            if await self._submit(record, function, call, future.ended.set):
                results.append(future)
        for result in results:
            if (value := await self._value(result)) is not None:
                yield result.record, value[0]

    async def _value(self, result: _Result[R]) -> tuple[R] | None:
        if not result.ended.is_set():
            with self._source.parked():
                await result.ended.wait()
        if result.value is None and self._failure is not None:
            raise self._failure
        return result.value

    async def _submit(
        self,
        record: Record,
        function: object,
        call: Callable[[], Awaitable[object]],
        on_end: Callable[[], None] | None,
    ) -> bool:
        self._check_open()
        flow = self._flow(record)
        if self._room.locked():
            with self._source.parked():
                await self._room.acquire()
        else:
            await self._room.acquire()
        taken = False
        try:
            self._check_open()
            self._work.prepare(record.topic)
            taken = not self._backlog.is_halted(record) and self._source.submit(record)
        finally:
            if not taken:
                self._room.release()
        if not taken:
            return False
        self._records.add(record, function, call, on_end)
        self._work.choose(record.topic, (record,))
        self._backlog.put(record.topic_partition, (record,), flow)
        self._workers.notify()
        # No await from the registration on: a cancellation could hide it from the caller.
        return True

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions are lost: nothing more of them is started, and what runs is cancelled.

        The consumer calls this as soon as it knows; ``observe`` does it too.
        """
        for partition in partitions:
            self._backlog.lose(partition)
            running = [item for tp, item in self._workers.running() if tp == partition]
            self._records.lose(partition, running)
            self._workers.cancel(partition)
        self._workers.notify()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """The user has sought these: no task begins with a record from before, and those that run
        go on."""
        for partition in partitions:
            self._backlog.drop(partition)

    def name_of(self, partition: TopicPartition, offset: int) -> str | None:
        """The function that was submitted with a record."""
        return self._records.name_of(partition, offset)

    def observe(self, batch: PollResult) -> None:
        """A step is about to return this: the consumer tells before the user sees it."""
        if batch.lost:
            self.lose(batch.lost)
        for partition in sorted(batch.to_be_revoked):
            for entry in self._backlog.waiting.give_up(partition):
                self._backlog.give_up(entry)

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._state != "entered":
            raise IllegalStateError(
                "submit and map work inside `async with consumer.task_group(...)`"
            )

    def _flow(self, record: Record) -> Flow:
        if not callable(self._order_by):
            return Flow(None, None, alone=True)
        key = lane_key(self._order_by, self._nulls, record)

        def only_one(_items: Sequence[Item]) -> tuple[Hashable]:
            return (key,)

        return Flow(only_one, None, alone=True)

    def _stop(self, error: BaseException) -> None:
        if isinstance(error, HandlerExitError):
            error = error.reason
        if self._failure is not None:
            self._log.error("a further task failed while its group stops", exc_info=error)
            return
        self._failure = error
        self._limit_after_failure()
        self._backlog.drain_all()
        self._source.stop()

    async def _end(self) -> None:
        try:
            await end(self._workers, self._backlog, self._log)
        finally:
            if self._dead_letters is not None:
                await self._dead_letters.aclose()


async def _keep(result: _Result[R], call: Callable[[], Awaitable[R]]) -> None:
    await result.of(call())
