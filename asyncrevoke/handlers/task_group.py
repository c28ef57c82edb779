"""Runs tasks that the user's loop submits, and completes their records when the tasks have
ended."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar, TypeVarTuple

from asyncrevoke.client import log_events
from asyncrevoke.client.config.inherit import INHERIT
from asyncrevoke.client.errors import (
    ConfigError,
    DecodeError,
    HandlerExitError,
    IllegalStateError,
)
from asyncrevoke.client.producing.exactly_once.known_topics import wait_for_topic
from asyncrevoke.client.producing.message import SAME_KEY, Headers, Message, SameKey
from asyncrevoke.client.runtime.session.record_owners import RecordOwner
from asyncrevoke.handlers.execution.pipeline import HandlerPipeline
from asyncrevoke.handlers.execution.result_publisher import encoded_result
from asyncrevoke.handlers.policy.batch import unfinished_records
from asyncrevoke.handlers.policy.group_types import check_group_type
from asyncrevoke.handlers.policy.limits import HandlerLimits
from asyncrevoke.handlers.policy.registration import Handler
from asyncrevoke.handlers.scheduling.handler_ordering import HandlerOrdering, lane_key
from asyncrevoke.handlers.task_records import Task, TaskRecords

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Awaitable,
        Callable,
        Hashable,
        Iterable,
        Iterator,
        Sequence,
    )
    from typing import Self

    from asyncrevoke.client.errors import PublishError
    from asyncrevoke.client.model import PollResult, Record, TopicPartition, UnwrittenRecords
    from asyncrevoke.handlers.execution.runner_context import RunnerContext
    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.policy.middleware import Middleware
    from asyncrevoke.handlers.policy.registration import OnError
    from asyncrevoke.handlers.policy.retry import Retry
    from asyncrevoke.handlers.scheduling.record_source import RecordSource

Ts = TypeVarTuple("Ts")
R = TypeVar("R")
# In place of a handler's name, for results of tasks.
TASKS = "tasks"
# The most tasks that one log line names.
_MAX_NAMED = 20
_State: TypeAlias = Literal["new", "entered", "left"]


class TaskResult(Generic[R]):
    """The result of a record's task. ``value`` is None if the task has failed or was dropped."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.ended = asyncio.Event()
        self.value: tuple[R] | None = None

    async def await_call(self, call: Callable[[], Awaitable[R]]) -> None:
        """Make the call, and keep its result."""
        self.value = (await call(),)


class _TaskHandler:
    """The :class:`HandlerLookup` of a task group: one handler for the tasks of all topics."""

    def __init__(self, handler: Handler) -> None:
        self.handlers = (handler,)

    def get(self, _topic: str) -> Handler:
        return self.handlers[0]

    def handlers_of(self, _topic: str) -> tuple[Handler, ...]:
        return self.handlers

    def find(self, _topic: str) -> Handler:
        return self.handlers[0]

    def matcher_of(self, _topic: str) -> None:
        return None

    def middleware_of(self, _handler: Handler) -> tuple[Middleware, ...]:
        return ()


class TrackedTaskGroup(RecordOwner):
    """Runs tasks on records in ordered lanes; a record is done when its task has ended.

    ``concurrency`` tasks run at once. Tasks of one lane (``order_by``) run one after another, in
    the order of submission. At most ``max_in_flight`` records are in flight. Offsets are committed
    contiguously. A revocation waits for the running tasks of its partition; a loss cancels them.

    A failed task is treated like a failed handler. ``retry`` calls it again, while its lane waits.
    After the last attempt the record goes to the topic ``dead_letter``, or ``on_error`` decides:
    ``"stop"`` (the default) drops tasks that have not started and ends the iterator. Running tasks
    have ``close_timeout`` to end. The next ``submit`` or ``map``, or leaving the group, raises the
    error. ``"skip"`` logs the error, and the record is done. ``"pause"`` pauses the partition:
    ``submit`` returns False for its records until the user resumes it. A CancelledError that the
    library has not caused is a failure. SystemExit and KeyboardInterrupt always stop.

    An announced revocation, or leaving the group, abandons a record that waits for its next attempt
    and the records behind it in its lane: they are not done.

    Leaving the group waits for all tasks that run or are ready. If an exception or a cancellation
    leaves the body, tasks are cancelled, and their records are not done.
    """

    observes_results = True

    def __init__(
        self,
        source: RecordSource,
        context: RunnerContext,
        *,
        retry: Retry | None = None,
        dead_letter: str | None = None,
        on_error: OnError = "stop",
    ) -> None:
        self._source = source
        self._context = context
        self._log = context.log
        # The shutdown deadline begins with the first failure.
        self._deadline = context.deadline
        self._timeout: asyncio.Timeout | None = None
        self._room = asyncio.Semaphore(context.max_in_flight)
        self._records = TaskRecords(source, self._room)
        handler = Handler(
            name="a task of the task group",
            registered=self._records.call,
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
            order_by=INHERIT,
            limits=HandlerLimits(),
        )
        check_group_type(handler, "consumer")
        self._handler = handler
        self._pipeline = HandlerPipeline(
            self._records,
            source.membership,
            _TaskHandler(handler),
            context,
            self,
            self._ordering_again,
        )
        # Whether a task has published results in a transaction.
        self._publishes = False
        self._state: _State = "new"
        self._failure: BaseException | None = None

    @property
    def in_flight(self) -> int:
        """Submitted records whose tasks have not ended, including those that wait for a retry."""
        return len(self._records)

    async def __aenter__(self) -> Self:
        """Enter the group. Raises IllegalStateError if it was entered before."""
        if self._state != "new":
            raise IllegalStateError("a task group is entered once: make another one")
        self._state = "entered"
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Wait for tasks, or cancel them if an error leaves the body.

        Raises the error of a failed task. If cancelled while waiting, tasks are cancelled too.
        """
        self._state = "left"
        if self._context.transactions is None:
            self._records.stop_retries()
        with self._source.awaiting_library():
            try:
                failed = error is not None and error is not self._failure
                if not failed and not self._pipeline.dispatcher.worker_has_failed:
                    await self._wait_for_tasks()
            finally:
                await self._pipeline.close()
        if self._failure is None or error is self._failure:
            return
        if error is None:
            raise self._failure
        log_events.TASK_FAILED_BESIDE_ERROR.write_to(self._log, exc_info=self._failure)

    async def _wait_for_tasks(self) -> None:
        try:
            async with asyncio.timeout(None) as timeout:
                self._timeout = timeout
                try:
                    self._set_timeout_after_failure()
                    await self._pipeline.pool.wait_until_idle()
                    if self._publishes:
                        # Tasks whose results are refused have failed.
                        await self._pipeline.results_ended()
                        await self._pipeline.pool.wait_until_idle()
                    self._records.stop_retries()
                finally:
                    self._timeout = None
        except TimeoutError:
            running = [item for _, item in self._pipeline.pool.running()]
            log_events.TASKS_CANCELLED.write_to(
                self._log,
                running=len(running),
                tasks=[
                    f"{self.name_of(item.topic_partition, item.offset)} "
                    f"{item.topic_partition} offset {item.offset}"
                    for item in running[:_MAX_NAMED]
                ],
            )

    def _set_timeout_after_failure(self) -> None:
        if self._deadline is None or self._failure is None:
            return
        deadline = self._deadline.begin()
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(deadline.work)

    async def submit(
        self, function: Callable[[Record, *Ts], Awaitable[object]], record: Record, *args: *Ts
    ) -> bool:
        """Run ``function(record, *args)`` when its lane and the concurrency allow.

        Waits until fewer than ``max_in_flight`` records are in flight; the time does not count
        towards ``max_poll_interval``. The record is registered before this returns True, and before
        the task runs. Returns False, and runs nothing, if the record's partition is lost, released
        or paused by a failure, or if the record is done or submitted already. A record of a paused
        partition is delivered again when the partition is resumed.

        Raises the error of a failed task, DecodeError if an ``order_by`` function fails, and
        IllegalStateError outside ``async with``. If cancelled, nothing was registered.

        Hazard: tasks of this group that call ``submit`` wait for ever if ``max_in_flight`` of them
        do so at once.
        """
        return await self._submit(record, function, partial(function, record, *args), None)

    async def publish(
        self,
        record: Record,
        topic: str,
        value: object,
        *,
        key: bytes | str | SameKey | None = SAME_KEY,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Add a result of the running task of ``record``, with ``processing="exactly_once"``.

        It is written in the transaction that commits the record, if the task succeeds. If a broker
        refuses it then, the task has failed. The arguments are those of
        :meth:`HandlerContext.publish`. Waits until the topic is known. Raises PublishError,
        IllegalStateError for a record without a running task, and ConfigError without
        ``processing="exactly_once"``. If cancelled, nothing was added.
        """
        transactions = self._context.transactions
        if transactions is None:
            raise ConfigError(
                'publish() of a task group needs processing="exactly_once": otherwise use '
                "consumer.producer.publish()"
            )
        self._check_runs(record)
        with transactions.producer.spans(in_call=True) as spans:
            message = Message(
                value, key=key, headers=headers, partition=partition, timestamp=timestamp
            )
            result = encoded_result(topic, message, record, spans)
            await wait_for_topic(lambda: transactions.producer, topic)
            self._check_runs(record)
            calls = self._pipeline.backlog.calls_of(record)
            refused = partial(self._results_refused, self._records.task_of(record), calls)
            transactions.finished.call_results(record, TASKS, refused).append(result)
            self._publishes = True

    def _check_runs(self, record: Record) -> None:
        if record not in self._records:
            raise IllegalStateError("only the running task of a record publishes its results")

    def _results_refused(
        self, task: Task, calls: int, records: Sequence[Record], error: PublishError
    ) -> None:
        """The results of a task that has ended are in no transaction: the task has failed."""
        self._records.add_again(records[0], task)
        self._pipeline.results_refused(self._handler, calls, records, error)

    async def map(
        self,
        function: Callable[[Record, *Ts], Awaitable[R]],
        records: Iterable[Record],
        *args: *Ts,
    ) -> AsyncGenerator[tuple[Record, R]]:
        """Submit all records, and yield ``(record, result)`` for each result of ``function``.

        Results come in the order of ``records``. Records without a result are left out: skipped,
        written to the dead letter topic, abandoned, or of a lost or paused partition. A record is
        done when its task has ended, whatever you do with the result: do inside the function what
        must not be lost.

        Submits while fewer than ``max_in_flight`` records are in flight, and otherwise waits as
        ``submit`` does. Raises the error of a failed task. If cancelled, or left early, submitted
        tasks keep running.
        """
        results: deque[TaskResult[R]] = deque()
        for record in records:
            while results and (results[0].ended.is_set() or self._room.locked()):
                result = results.popleft()
                if (value := await self._value(result)) is not None:
                    yield result.record, value[0]
            submitted: TaskResult[R] = TaskResult(record)
            call = partial(submitted.await_call, partial(function, record, *args))
            if await self._submit(record, function, call, submitted.ended):
                results.append(submitted)
        for result in results:
            if (value := await self._value(result)) is not None:
                yield result.record, value[0]

    async def _value(self, result: TaskResult[R]) -> tuple[R] | None:
        if not result.ended.is_set():
            with self._source.awaiting_library():
                await result.ended.wait()
        if result.value is None and self._failure is not None:
            raise self._failure
        return result.value

    async def _submit(
        self,
        record: Record,
        function: object,
        call: Callable[[], Awaitable[object]],
        ended: asyncio.Event | None,
    ) -> bool:
        self._check_open()
        ordering = self._ordering_of(record)
        if self._room.locked():
            with self._source.awaiting_library():
                await self._room.acquire()
        else:
            await self._room.acquire()
        dispatcher, backlog = self._pipeline.dispatcher, self._pipeline.backlog
        taken = False
        try:
            self._check_open()
            dispatcher.prepare(record.topic)
            taken = self._source.submit(record)
            if taken and backlog.is_paused_by_failure(record):
                # Otherwise the next poll would count it as done.
                self._source.abandon(record)
                taken = False
        finally:
            if not taken:
                self._room.release()
        if not taken:
            return False
        self._records.add(record, function, call, ended)
        dispatcher.choose_traced(record.topic, (record,))
        self._pipeline.lanes.put(
            record.topic_partition, (record,), ordering.lane_keys, ordering.limiter
        )
        self._pipeline.pool.notify()
        # No await after the registration: a cancelled caller would not know of it.
        return True

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Start no task of these lost partitions, and cancel those that run.

        The consumer calls this as soon as it knows of a loss; ``observe`` does the same later.
        """
        for partition in partitions:
            running = [item for tp, item in self._pipeline.pool.running() if tp == partition]
            self._pipeline.lose(partition)
            self._records.lose(partition, running)
        self._pipeline.pool.notify()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Start no task of records that were delivered before a seek of these partitions.

        Running tasks are not cancelled.
        """
        for partition in partitions:
            self._pipeline.backlog.seek(partition)

    def resume_by_user(self, partitions: Iterable[TopicPartition]) -> None:
        """Submitted records of these partitions start again after a failure has paused them."""
        for partition in partitions:
            self._pipeline.backlog.resume(partition)

    def name_of(self, partition: TopicPartition, offset: int) -> str | None:
        """The name of the function that was submitted with a record; None if none was."""
        return self._records.name_of(partition, offset)

    def unwritten(self) -> Iterator[UnwrittenRecords]:
        """The failed records that are held until the dead letter topic takes them."""
        return self._pipeline.failures.held.unwritten()

    def observe(self, batch: PollResult) -> None:
        """The iterator is about to return this batch to the user."""
        if batch.lost:
            self.lose(batch.lost)
        for partition in sorted(batch.to_be_revoked):
            self._pipeline.backlog.abandon_retries(partition)

    def stop_after_failure(self, error: BaseException) -> None:
        """Start no task, end the iterator, and let the next call raise the first error."""
        if isinstance(error, HandlerExitError):
            error = error.reason
        if self._failure is not None:
            log_events.ANOTHER_TASK_FAILED.write_to(self._log, exc_info=error)
            return
        self._failure = error
        self._set_timeout_after_failure()
        self._pipeline.backlog.stop()
        self._source.stop()

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._state != "entered":
            raise IllegalStateError(
                "submit and map work inside `async with consumer.task_group(...)`"
            )

    def _ordering_again(self, item: Item) -> HandlerOrdering | None:
        """The ordering of a submitted record whose results are refused."""
        try:
            return self._ordering_of(unfinished_records(item)[0])
        except DecodeError:
            return None

    def _ordering_of(self, record: Record) -> HandlerOrdering:
        order_by = self._context.order_by
        if not callable(order_by):
            return HandlerOrdering(None, None, one_batch_at_a_time=True)
        key = lane_key(order_by, self._context.null_keys, record)

        def keys(_items: Sequence[Item]) -> tuple[Hashable]:
            return (key,)

        return HandlerOrdering(keys, None, one_batch_at_a_time=True)
