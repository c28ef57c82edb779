"""One call of a handler: arguments, context, middleware, tracer and time limit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import DecodeError, HandlerTimeoutError
from asyncrevoke.client.model import FailurePause, Record
from asyncrevoke.client.printable import reportable
from asyncrevoke.client.producing.exactly_once.finished_records import CallResults
from asyncrevoke.client.runtime.session.membership_guard import MembershipGuard, may_begin
from asyncrevoke.client.runtime.session.status import HANDLER_GRACE
from asyncrevoke.handlers.decoding.decoders import AsyncDecoder
from asyncrevoke.handlers.policy.batch import (
    BatchError,
    HandlerBatch,
    Item,
    Unsent,
    first_unfinished_offset,
    log_fields,
)
from asyncrevoke.handlers.policy.context import HandlerContext, LockedContext
from asyncrevoke.handlers.policy.middleware import CallNext, MiddlewareChain, compose_middleware

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle

    from asyncrevoke.client.log_events import Log
    from asyncrevoke.handlers.dead_letters.retry_message import RetryHistories
    from asyncrevoke.handlers.decoding.arrow_values import HandlerColumns
    from asyncrevoke.handlers.execution.failure_policy import FailurePolicy
    from asyncrevoke.handlers.execution.pipeline import HandlerPipeline
    from asyncrevoke.handlers.execution.result_publisher import ResultPublisher
    from asyncrevoke.handlers.execution.runner_context import RunnerContext
    from asyncrevoke.handlers.execution.transactional_publisher import TransactionalPublisher
    from asyncrevoke.handlers.execution.worker_resources import WorkerResources
    from asyncrevoke.handlers.matching import HandlerLookup
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.policy.signature import BatchHandlerCall, HandlerCall
    from asyncrevoke.handlers.scheduling.backlog import Backlog


class TimeLimit:
    """Warns after half of ``seconds``, and cancels the call after all of them.

    It pauses the partition of a call that ignores the cancellation; in a share group (``releases``)
    it releases the records.
    """

    def __init__(
        self,
        clock: AbstractEventLoop,
        log: Log,
        backlog: Backlog,
        item: Item,
        handler: Handler,
        seconds: float,
        *,
        releases: bool = False,
    ) -> None:
        self._clock = clock
        self._log = log
        self._backlog = backlog
        self._item = item
        self._handler = handler
        self._seconds = seconds
        self._releases = releases
        self._expired = False
        self._timer: TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None

    async def run(self, call: Callable[[], Awaitable[object]]) -> None:
        """Await the call; HandlerTimeoutError if the limit has cancelled it.

        If the call returns, or raises another error, after the limit, so does this.
        """
        task = self._task = asyncio.current_task()
        assert task is not None
        self._start_timer(self._seconds / 2, self._half)
        cancelling = task.cancelling()
        try:
            await call()
        except asyncio.CancelledError as cancelled:
            if self._undo_cancellation(task, cancelling):
                raise HandlerTimeoutError(self._seconds) from cancelled
            raise
        except BaseException:
            self._undo_cancellation(task, cancelling)
            raise
        else:
            self._undo_cancellation(task, cancelling)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _undo_cancellation(self, task: asyncio.Task[object], cancelling: int) -> bool:
        """Undo the cancellation by the limit, if any; return whether it was the only one."""
        return self._expired and task.uncancel() <= cancelling

    def _expire(self) -> None:
        assert self._task is not None
        self._expired = True
        self._start_timer(HANDLER_GRACE, self._cancellation_ignored)
        self._task.cancel()

    def _start_timer(self, delay: float, callback: Callable[[], None]) -> None:
        self._timer = self._clock.call_later(delay, callback)

    def _half(self) -> None:
        self._start_timer(self._seconds / 2, self._expire)
        log_events.HALF_OF_MAX_HANDLER_TIME.write_to(self._log, **self._fields())

    def _cancellation_ignored(self) -> None:
        """The call still runs 5 s after it was cancelled."""
        log_events.HANDLER_DID_NOT_EXIT.write_to(self._log, **self._fields())
        if self._releases:
            self._backlog.give_back(self._item)
        elif not self._backlog.is_paused_by_failure(self._item):
            reason = FailurePause(
                *self._item.topic_partition,
                first_unfinished_offset(self._item),
                self._handler.name,
                "HandlerTimeoutError: the handler did not exit when cancelled",
                self._backlog.calls_of(self._item),
                math.inf,
            )
            self._backlog.pause_after_failure(self._item, reason)

    def _fields(self) -> dict[str, object]:
        fields = log_fields(self._item, self._handler.name)
        return fields | {"max_handler_time": self._seconds}


class HandlerInvoker:
    """Makes the calls of all handlers of a runner."""

    def __init__(
        self,
        context: RunnerContext,
        lookup: HandlerLookup,
        membership: MembershipGuard,
        backlog: Backlog,
        histories: RetryHistories,
        failures: FailurePolicy,
        pipeline: HandlerPipeline,
    ) -> None:
        self._lookup = lookup
        self._pipeline = pipeline
        self._membership = membership
        self._backlog = backlog
        self._failures = failures
        self._histories = histories if histories.topics else None
        self._log = context.log
        self._clock = context.clock
        self._open_producer = context.open_producer
        self._transactions = context.transactions
        self._locks = locks = context.locks
        # A share group's contexts know the locks of their records.
        self._context_of: Callable[..., HandlerContext] = (
            HandlerContext if locks is None else partial(LockedContext, locks.lock_deadline)
        )
        self._state = context.state
        self._workers = context.worker_resources
        self._lifespans = context.lifespans
        self._call_recorder = context.call_recorder
        self._tracer = None if context.observers is None else context.observers.tracer
        # By the ids of handlers: a topic may have several.
        self._middleware: dict[int, MiddlewareChain | None] = {}
        # The calls of handlers that publish.
        self._publishing: dict[int, HandlerCall] = {}
        self._publisher_of_batches: ResultPublisher | TransactionalPublisher | None = None

    def prepare(
        self,
        topic: str,
        handler: Handler,
        publisher: ResultPublisher | TransactionalPublisher | None,
    ) -> Callable[[Record], Awaitable[object]] | None:
        """Prepare the calls of a handler, once, before the first call for a topic.

        Returns a direct first call of a record, which traced records do not use; None if the
        handler has middleware, a time limit, batches, or resources in its context. ``publisher``
        publishes the handler's results, except those of the direct call.
        """
        middleware = compose_middleware(self._lookup.middleware_of(handler))
        self._middleware[id(handler)] = middleware
        call = handler.call
        if publisher is not None and call is not None:
            self._publishing[id(handler)] = publisher.awaited(handler)
        elif publisher is not None:
            self._publisher_of_batches = publisher
        if call is None or middleware is not None:
            return None
        is_retry_topic = handler.retry_topic is not None and handler.retry_topic.topic == topic
        if handler.max_handler_time is not None or is_retry_topic:
            return None
        first: Callable[[Record], Awaitable[object]] = call
        if handler.wants_context:
            if self._workers is not None or self._lifespans is not None:
                return None
            state, log, name = self._state, self._log, handler.name
            producer, transactions = self._open_producer, self._transactions
            context_of = self._context_of
            if transactions is None:
                first = lambda record: call(  # noqa: E731
                    record, context_of(record, 1, state, log, name, None, None, None, producer)
                )
            else:
                begin_call = transactions.finished.begin_call
                refused = partial(self._pipeline.results_refused, handler, 1)
                first = lambda record: call(  # noqa: E731
                    record,
                    HandlerContext(
                        record,
                        1,
                        state,
                        log,
                        name,
                        open_producer=producer,
                        results=begin_call(record, name, refused),
                    ),
                )
        return first if self._call_recorder is None else self._call_recorder.first_call(first)

    def call(self, item: Item, handler: Handler, attempt: int) -> Awaitable[object]:
        """Call the handler with a record or a batch."""
        if isinstance(item, HandlerBatch):
            call = partial(self.call_batch, item, handler, attempt)
            return _call_batch(item, handler, attempt, self._failures, call)
        return self.call_record(item, handler, attempt)

    def call_record(self, record: Record, handler: Handler, attempt: int) -> Awaitable[object]:
        """Call the handler with a single record."""
        assert handler.call is not None
        item, calls = record, attempt
        if self._histories is not None:
            record, calls_before, _ = self._histories.of(item)
            attempt += calls_before
        call = partial(self._publishing.get(id(handler), handler.call), record)
        return self._call(item, handler, _Arguments(record, attempt, calls, None, call))

    async def call_batch(
        self,
        batch: HandlerBatch,
        handler: Handler,
        attempt: int,
        function: BatchHandlerCall,
        values: object,
        records: Sequence[Record],
    ) -> None:
        """Call the handler of a batch with ``values``, which may be some of the batch only."""
        calls = attempt
        if self._histories is not None:
            attempt += self._histories.of(records[0]).calls
            records = [self._histories.of(record).record for record in records]
        if handler.publish_to is not None and self._publisher_of_batches is not None:
            function = self._publisher_of_batches.awaited_batch(
                function, handler.publish_to, handler.name
            )
        call = partial(function, values, records)
        await self._call(batch, handler, _Arguments(records[0], attempt, calls, records, call))

    def _call(self, item: Item, handler: Handler, arguments: _Arguments) -> Awaitable[object]:
        has_context = handler.wants_context or self._middleware[id(handler)] is not None
        if self._workers is not None and has_context:
            return self._call_with_worker_resource(self._workers, item, handler, arguments)
        return self._call_inside(item, handler, arguments, None)

    async def _call_with_worker_resource(
        self, workers: WorkerResources, item: Item, handler: Handler, arguments: _Arguments
    ) -> None:
        waits = not workers.has_free
        resource = await workers.acquire()
        try:
            if waits:
                await may_begin(self._membership)
            await self._call_inside(item, handler, arguments, resource.state)
        finally:
            workers.put_back(resource)

    def _call_inside(
        self, item: Item, handler: Handler, arguments: _Arguments, worker_state: object
    ) -> Awaitable[object]:
        """Make the call inside the handler's middleware, time limit, call recorder and tracer."""
        record, attempt, _, records, function = arguments
        partition_state = None
        if self._lifespans is not None:
            partition_state = self._lifespans.state_of(item.topic_partition)
        context = self._context_of(
            record,
            attempt,
            self._state,
            self._log,
            handler.name,
            records,
            worker_state,
            partition_state,
            self._open_producer,
            self._results_of(item, handler, arguments.calls),
        )
        middleware, call_recorder = self._middleware[id(handler)], self._call_recorder
        longest, tracer = handler.max_handler_time, self._tracer
        if tracer is not None and records is None and not tracer.wants(record):
            tracer = None
        if middleware is None and longest is None and call_recorder is None and tracer is None:
            return function(context)
        call: CallNext = partial(function, context)
        if call_recorder is not None:
            call = partial(
                call_recorder.call, handler.name, handler.registered, context.records, attempt, call
            )
        if middleware is not None:
            call = partial(middleware, context, call)
        if tracer is not None:
            call = partial(tracer.call, handler.name, context.records, attempt, call)
        if longest is None:
            return call()
        releases = self._locks is not None
        limit = TimeLimit(
            self._clock, self._log, self._backlog, item, handler, longest, releases=releases
        )
        return limit.run(call)

    def _results_of(self, item: Item, handler: Handler, calls: int) -> CallResults | None:
        """Where the last of ``calls`` calls publishes to, if its results are written in a
        transaction."""
        if self._transactions is None:
            return None
        refused = partial(self._pipeline.results_refused, handler, calls)
        if not isinstance(item, HandlerBatch):
            return self._transactions.finished.begin_call(item, handler.name, refused)
        results = CallResults(handler.name, refused)
        item.publish_into(results)
        return results


class _Arguments(NamedTuple):
    """The arguments of one call: ``record`` is the first one, ``records`` are all of a batch.
    ``attempt`` counts it with those before the record was written to a retry topic, ``calls``
    without."""

    record: Record
    attempt: int
    calls: int
    records: Sequence[Record] | None
    call: Callable[[HandlerContext], Awaitable[object]]


async def _call_batch(
    batch: HandlerBatch,
    handler: Handler,
    calls: int,
    failures: FailurePolicy,
    call: Callable[[BatchHandlerCall, object, Sequence[Record]], Awaitable[None]],
) -> None:
    """Write unsent records, and call the handler with all others that decode.

    ``calls`` counts this call. A record whose value does not decode goes to the dead letter topic,
    or is skipped. If ``retry`` applies, or ``on_error`` stops or pauses instead, the handler is
    called with the values before it, and then DecodeError is raised.

    When this returns, all records are done. When it raises, ``batch.records`` are not done; if
    ``batch.errors`` is not empty, only its records have failed, otherwise all of ``batch.called``.
    """
    assert handler.batch is not None
    while batch.unsent:
        unsent = batch.unsent[0]
        await failures.send_to_topic(unsent, handler, calls - 1)
        failures.complete_all([unsent.record])
        batch.first_unsent_written()
    values, count, undecodable = await _decode(batch, handler, calls, failures)
    called = batch.start_call(count)
    if called:
        try:
            await call(handler.batch.call, values, called)
        except BatchError as error:
            batch.use_objects()
            called = batch.called
            if all(index in range(len(called)) for index in error.errors):
                failed = {
                    called[index]: reportable(error.errors[index]) for index in sorted(error.errors)
                }
                batch.call_failed(failed)
                _complete(batch, [record for record in called if record not in failed], failures)
            raise
        except BaseException:
            batch.use_objects()
            raise
        batch.call_succeeded()
        _complete(batch, called, failures)
    if undecodable is not None:
        raise undecodable


async def _decode(
    batch: HandlerBatch, handler: Handler, calls: int, failures: FailurePolicy
) -> tuple[object, int, DecodeError | None]:
    """Decode values up to the first error that stops the batch; return them, how many there are,
    and the error."""
    assert handler.batch is not None
    is_retry_topic = handler.retry_topic is not None and handler.retry_topic.topic == batch.topic
    if handler.batch.columns is not None:
        records = [failures.original(r) for r in batch.records] if is_retry_topic else batch.records
        return await _decode_columns(
            batch, records, handler, handler.batch.columns, calls, failures
        )
    decode = cast("Callable[[Record], Any]", handler.batch.decode)
    awaits = isinstance(decode, AsyncDecoder)
    values: list[object] = []
    for record in list(batch.records):
        try:
            value = decode(failures.original(record) if is_retry_topic else record)
            values.append(await value if awaits else value)
        except DecodeError as error:
            if not await _undecodable(batch, record, error, handler, calls, failures):
                return values, len(values), error
    return values, len(values), None


async def _decode_columns(
    batch: HandlerBatch,
    records: Sequence[Record],
    handler: Handler,
    columns: HandlerColumns,
    calls: int,
    failures: FailurePolicy,
) -> tuple[object, int, DecodeError | None]:
    rows, reasons = await columns.of(records)
    if not reasons:
        return columns.shown(rows), len(records), None
    batch.use_objects()
    decoded: list[int] = []
    stopped: DecodeError | None = None
    for row, record in enumerate(list(batch.records)):
        if row not in reasons:
            decoded.append(row)
            continue
        error = DecodeError(record.topic_partition, record.offset, reasons[row])
        if not await _undecodable(batch, record, error, handler, calls, failures):
            stopped = error
            break
    return columns.shown(rows.take(decoded)), len(decoded), stopped


async def _undecodable(
    batch: HandlerBatch,
    record: Record,
    error: DecodeError,
    handler: Handler,
    calls: int,
    failures: FailurePolicy,
) -> bool:
    """Send a record elsewhere, or skip it; False if it stays in the batch, and stops it."""
    if failures.may_retry(record, handler, error, calls):
        return False
    if failures.topic_for(record, handler, error) is not None:
        await failures.send_to_topic(Unsent(record, error), handler, 0)
        failures.complete_all([record])
    elif not failures.give_up(record, handler, error):
        return False
    batch.remove([record])
    return True


def _complete(batch: HandlerBatch, records: Sequence[Record], failures: FailurePolicy) -> None:
    failures.complete_all(records, batch.results)
    if len(records) == len(batch.records):
        batch.remove_all()
    else:
        batch.remove(set(records))
