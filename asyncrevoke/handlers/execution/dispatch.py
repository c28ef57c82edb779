"""The chain of a record, from the worker that takes it until it is done.

::

    entry = lanes.take()                              # Worker.run: order, limits, pauses
    try:
        journal.started(record)                       # Dispatcher._recorded
        arguments = decode(record.value), context     # signature._bind, HandlerInvoker
        result = await time_limit(tracer(middleware(handler(arguments))))  # HandlerInvoker
        acknowledged = publish(result)                # ResultPublisher, if there is publish_to
    except error:                                     # FailurePolicy.apply
        retry, dead letter, skip, pause or stop       # the next call: Dispatcher._next_call
    completed(record)                                 # after the call, or when acknowledged
    source.complete_all(completed_in_this_turn)       # Dispatcher.flush_completed

A handler without context, middleware, limit and journal is called by :meth:`Worker.run` itself:
:meth:`Dispatcher.prepare` leaves out each step that a topic does not need, before its first record.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.config.inherit import INHERIT
from asyncrevoke.client.errors import ConfigError, UnmatchedRecordError
from asyncrevoke.client.runtime.session.membership_guard import MembershipGuard, may_begin
from asyncrevoke.handlers.execution.acknowledgement_policy import LockLostError
from asyncrevoke.handlers.execution.failure_policy import NotSentError
from asyncrevoke.handlers.policy.batch import (
    HandlerBatch,
    Item,
    Unsent,
    log_fields,
    unfinished_records,
)
from asyncrevoke.handlers.policy.results import lacks_return_annotation
from asyncrevoke.handlers.scheduling.attempts import TRACED, AttemptState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.client.runtime.hooks.observers import Observers
    from asyncrevoke.client.runtime.hooks.recorders import SessionRecorder
    from asyncrevoke.handlers.execution.failure_policy import FailurePolicy
    from asyncrevoke.handlers.execution.invocation import HandlerInvoker
    from asyncrevoke.handlers.execution.result_publisher import ResultPublisher
    from asyncrevoke.handlers.execution.runner_context import RunnerContext
    from asyncrevoke.handlers.execution.transactional_publisher import TransactionalPublisher
    from asyncrevoke.handlers.matching import HandlerLookup, SharedTopic
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.scheduling.backlog import Backlog
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry
    from asyncrevoke.handlers.scheduling.record_source import RecordLocks, TakenRecords

    FirstCall = Callable[[Item], Awaitable[object]]
    QueueResult = Callable[[Item, object], Awaitable[object] | None]


class Dispatcher:
    """Prepares topics, calls handlers, and reports the results.

    ``calls`` and ``completed`` are called for each record, so their functions are chosen
    once, by whether the consumer has batches or a journal.
    """

    def __init__(
        self,
        context: RunnerContext,
        source: TakenRecords,
        membership: MembershipGuard,
        lookup: HandlerLookup,
        backlog: Backlog,
        invoker: HandlerInvoker,
        failures: FailurePolicy,
        publisher: ResultPublisher | TransactionalPublisher | None,
    ) -> None:
        self._source = source
        self._membership = membership
        self._lookup = lookup
        self._backlog = backlog
        self._invoker = invoker
        self._failures = failures
        self._can_send = context.dead_letters is not None
        self._publisher = publisher
        self._publishes = context.open_producer is not None
        self._log = context.log
        # Whether a result may be acknowledged after its call has returned.
        self._publishes_later = context.recorder is None and context.call_recorder is None
        self._order_by = context.order_by
        self._locks = context.locks
        self._recorder = recorder = context.recorder
        # The items whose next call :meth:`start_again` makes.
        self.attempts: Mapping[Item, object] = backlog.attempts
        self.start_again = self._recorded(self._next_call, batches=True)
        self._observers = observers = context.observers
        self._tracer = None if observers is None else observers.tracer
        timed = observers is not None and (
            observers.wants("on_handlers_completed") or observers.wants("on_handler_error")
        )
        self.call_times: dict[str, list[float] | SharedTopicTimes] | None = {} if timed else None
        # Writing to another topic is not a call: the items being written, and the topic and index
        # of each time in ``call_times`` that is not the time of a call.
        self._sending: set[Item] = set()
        self._sent: list[tuple[str, int]] = []
        self._handlers: dict[str, Handler] = {}
        # By prepared topic with several handlers.
        self.matchers: dict[str, SharedTopic] = {}
        # By prepared topic: _first_call(), or the function that HandlerInvoker.prepare() returned;
        # and what queues results, if records are completed when their results are acknowledged.
        self.calls: dict[str, tuple[FirstCall, QueueResult | None]] = {}
        # Topics whose first calls HandlerInvoker.prepare() made; not for records that are traced.
        self._direct: set[str] = set()
        # Records whose handlers have returned, until flush_completed().
        self._completed: list[Record] = []
        if recorder is not None:
            recorder.watch_completed(self._completed)
        has_batches = any(handler.batch for handler in lookup.handlers)
        self.completed: Callable[[Item], object] = (
            self._item_completed
            if has_batches
            else cast("Callable[[Item], object]", self._completed.append)
        )
        self.worker_has_failed = False

    def prepare(self, topic: str) -> Handler:
        """Prepare the calls of a topic's handlers, and return the first of these.

        Raises ConfigError if the topic has no handler.
        """
        known = self._handlers.get(topic)
        if known is not None:
            return known
        handler = self._lookup.find(topic)
        matcher = self._lookup.matcher_of(topic)
        handlers = (handler,) if matcher is None else matcher.handlers
        for one in handlers:
            sends = one.dead_letter is not None or one.retry_topic is not None
            if sends and not self._can_send:
                raise ConfigError(
                    f"{one.name} has a dead letter topic or a retry topic, and nothing sends to it"
                )
        self._handlers[topic] = handler
        if self.call_times is not None:
            self.call_times[topic] = [] if matcher is None else SharedTopicTimes()
        if self._recorder is not None:
            order_by = self._order_by if handler.order_by is INHERIT else handler.order_by
            order = "function" if callable(order_by) else order_by
            names = ", ".join(one.name for one in handlers)
            self._recorder.handler_registered(topic, names, order)
        if matcher is None:
            self._prepare_calls(topic, handler)
        else:
            self.matchers[topic] = matcher
            for one in handlers:
                # The attempts of a record have its handler.
                self._invoker.prepare(topic, one, self._publisher_for(one))
            batches = handler.batch is not None
            first = self._recorded(self._first_call_of_shared_topic, batches=batches)
            self.calls[topic] = first, None
        return handler

    def handler_of(self, item: Item) -> Handler:
        """The handler of an item of a prepared topic."""
        if self.matchers and (chosen := self._backlog.handler_of(item)) is not None:
            return chosen
        return self._handlers[item.topic]

    def name_at(self, partition: TopicPartition, offset: int) -> str:
        """The name of a record's handler; if it is unknown, the names of the topic's handlers."""
        handler = self.prepare(partition.topic)
        matcher = self.matchers.get(partition.topic)
        if matcher is None:
            return handler.name
        chosen = self._backlog.handler_at(partition, offset)
        return ", ".join(one.name for one in matcher.handlers) if chosen is None else chosen.name

    def _publisher_for(self, handler: Handler) -> ResultPublisher | TransactionalPublisher | None:
        return self._publisher if handler.publish_to is not None else None

    def _prepare_calls(self, topic: str, handler: Handler) -> None:
        publisher = self._publisher_for(handler)
        direct = self._invoker.prepare(topic, handler, publisher)
        queue: QueueResult | None = None
        if direct is not None and publisher is not None:
            if self._publishes_later:
                queue = cast("QueueResult", publisher.queue_of(handler))
            else:
                direct = None
        if direct is not None:
            self._direct.add(topic)
        first = cast("FirstCall | None", direct) or self._first_call
        batches = handler.batch is not None
        first = self._begun(self._recorded(first, batches=batches), batches=batches)
        if (
            self._publishes
            and handler.publish_to is None
            and not handler.only_replays_keep_results
            and lacks_return_annotation(handler)
        ):
            first = self._checked_first_call(topic, handler, first)
        self.calls[topic] = first, queue

    def _checked_first_call(self, topic: str, handler: Handler, first: FirstCall) -> FirstCall:
        """A first call that warns if the first call that returns has returned a value."""

        async def call(item: Item) -> None:
            returned = await first(item)
            if self.calls[topic][0] is call:
                self.calls[topic] = first, None
                if returned is not None:
                    log_events.RESULTS_LOST.write_to(self._log, handler=handler.name)

        return call

    def choose_traced(self, topic: str, records: Sequence[Record]) -> None:
        """Let the tracer choose which of these records it traces, before they are queued."""
        if self._tracer is not None and records and topic in self._direct:
            chosen = self._tracer.choose(records)
            if chosen:
                self._backlog.trace(chosen)

    # -- ends of calls ---------------------------------------------------------------------------

    def call_raised(self, item: Item, seconds: float, error: BaseException, /) -> None:
        """Report the error of a handler to observers; other errors are ignored.

        These are errors of writing to another topic, and of records that no handler takes.
        """
        if self._observers is None or self.call_times is None:
            return
        if item in self._sending:
            self._sending.remove(item)
        elif not isinstance(error, (UnmatchedRecordError, LockLostError)):
            self._observers.on_handler_error(self.handler_of(item).name, item, seconds, error)

    def records_completed(self, records: Sequence[Record]) -> None:
        """The results of these records are acknowledged, or empty: the records are done."""
        self._completed.extend(records)

    def turn_began(self) -> None:
        """Handlers may start in this turn of the event loop."""
        if self._recorder is not None:
            self._recorder.loop_turn_began()

    def flush_completed(self) -> None:
        """Complete the records whose handlers have returned since the last call of this."""
        if self._recorder is not None:
            self._recorder.loop_turn_ended(self._completed)
        if self._completed:
            completed = self._completed.copy()
            self._completed.clear()
            self._source.complete_all(completed)
        if self.call_times is not None and self._observers is not None:
            self._report_times(self.call_times, self._observers)

    def handle_failure(self, entry: Entry, error: BaseException, /) -> bool:
        """Apply the handler's failure policy; True if the item is done in spite of the failure."""
        return self._failures.apply(entry, self.handler_of(entry[1]), error)

    def call_cancelled(self, item: Item, error: BaseException, /) -> None:
        """Abandon the item."""
        self._failures.call_cancelled(item, self.handler_of(item), error)

    def worker_failed(self, error: BaseException, /) -> None:
        """Stop without waiting for running calls."""
        self.worker_has_failed = True
        self._failures.stop(error)

    # -- calls -----------------------------------------------------------------------------------

    def _begun(self, call: FirstCall, *, batches: bool) -> FirstCall:
        """Return ``call``, or a function that calls it with records whose locks have not passed."""
        locks = self._locks
        if locks is None:
            return call
        begin_record = cast("Callable[[Item], bool]", locks.begin)

        def begun_batch(item: Item) -> Awaitable[object]:
            begin(item, locks)
            return call(item)

        def begun(item: Item) -> Awaitable[object]:
            if begin_record(item):
                return call(item)
            raise LockLostError

        return begun_batch if batches else begun

    def _recorded(self, call: FirstCall, *, batches: bool) -> FirstCall:
        """Return ``call``, or a function that first records its start in the journal."""
        recorder = self._recorder
        if recorder is None:
            return call
        if recorder.strict:
            return partial(self._call_when_recorded, recorder, call)

        def began_batch(item: Item) -> None:
            recorder.handlers_started(unfinished_records(item))

        began_record = cast("Callable[[Item], object]", recorder.handler_started)
        began = began_batch if batches else began_record

        def recorded(item: Item) -> Awaitable[object]:
            began(item)
            return call(item)

        return recorded

    async def _call_when_recorded(
        self, recorder: SessionRecorder, call: FirstCall, item: Item
    ) -> object:
        await recorder.record_start(unfinished_records(item))
        await may_begin(self._membership)
        recorder.handlers_started(unfinished_records(item))
        return await call(item)

    def _first_call(self, item: Item) -> Awaitable[object]:
        return self._invoker.call(item, self._handlers[item.topic], 1)

    def _next_call(self, item: Item) -> Awaitable[object]:
        """Make the next call of an item that has failed, or a special first call."""
        state = self._backlog.attempts[item]
        if state is TRACED:
            self._backlog.forget_attempts(item)
            if self._locks is not None:
                begin(item, self._locks)
            return self._first_call(item)
        return self._next_attempt(item, state)

    def _first_call_of_shared_topic(self, item: Item) -> Awaitable[object]:
        return self._next_attempt(item, AttemptState(0))

    def _returned(self, topic: str, handler: str | None) -> None:
        """A call of ``handler`` has returned; None: a record was written to another topic."""
        times = None if self.call_times is None else self.call_times[topic]
        if isinstance(times, SharedTopicTimes):
            times.returned(handler)
        elif times is not None and handler is None:
            # The worker appends the time next, as if this were a call.
            self._sent.append((topic, len(times)))

    async def _next_attempt(self, item: Item, state: AttemptState) -> None:
        handler = state.handler or self._handlers[item.topic]
        if (error := state.take_result_error()) is not None:
            if isinstance(error, NotSentError) and self.call_times is not None:
                self._sending.add(item)
            raise error
        if state.unsent is not None:
            if self._locks is not None and self._locks.lock_deadline(state.unsent.record) is None:
                raise LockLostError
            await self._send_to_topic(state.unsent, handler, state.calls)
        elif state.fails_with is not None:
            if self._locks is not None:
                begin(item, self._locks)
            raise state.fails_with
        else:
            self._backlog.retry_started(item)
            if self._locks is not None:
                begin(item, self._locks)
            await self._invoker.call(item, handler, state.start_call())
            self._returned(item.topic, handler.name)
        if self._backlog.attempt_succeeded(item):
            log_events.PAUSED_RECORD_SUCCEEDED.write_to(self._log, **log_fields(item, handler.name))

    async def _send_to_topic(self, unsent: Unsent, handler: Handler, calls: int) -> None:
        record = unsent.record
        if self.call_times is None:
            await self._failures.send_to_topic(unsent, handler, calls)
            return
        self._sending.add(record)
        await self._failures.send_to_topic(unsent, handler, calls)
        self._sending.remove(record)
        self._returned(record.topic, None)

    def _item_completed(self, item: Item) -> None:
        if isinstance(item, HandlerBatch):
            self._backlog.batch_ended(item)
        else:
            self._completed.append(item)

    def _report_times(
        self, every: dict[str, list[float] | SharedTopicTimes], observers: Observers
    ) -> None:
        for topic, index in reversed(self._sent):
            times = every[topic]
            if isinstance(times, list):
                del times[index]
        self._sent.clear()
        for topic, times in every.items():
            if isinstance(times, SharedTopicTimes):
                for name, seconds in times.take().items():
                    observers.on_handlers_completed(name, topic, seconds)
            elif times:
                every[topic] = []
                observers.on_handlers_completed(self._handlers[topic].name, topic, times)


def begin(item: Item, locks: RecordLocks) -> None:
    """A handler is about to be called with an item. Raises LockLostError if no lock is left;
    records of a batch whose locks have passed are removed."""
    if isinstance(item, HandlerBatch):
        item.remove({record for record in item.records if not locks.begin(record)})
        is_lost = not item.unfinished
    else:
        is_lost = not locks.begin(item)
    if is_lost:
        raise LockLostError


class SharedTopicTimes:
    """The times of calls of a topic with several handlers, by handler.

    A worker appends the seconds of a call; :meth:`returned` has named the handler before.
    """

    __slots__ = ("_handler", "_seconds")

    def __init__(self) -> None:
        self._handler: str | None = None
        self._seconds: dict[str, list[float]] = {}

    def returned(self, handler: str | None) -> None:
        """A call of this handler has returned; None: the next time is not that of a call."""
        self._handler = handler

    def append(self, seconds: float) -> None:
        """Add the seconds of the call that has returned."""
        if self._handler is not None:
            self._seconds.setdefault(self._handler, []).append(seconds)

    def take(self) -> dict[str, list[float]]:
        """Return the seconds of the calls since the last :meth:`take`, by handler."""
        seconds, self._seconds = self._seconds, {}
        return seconds
