"""One call of a handler, with what goes around it: its context, middleware, a limit of time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from asyncrevoke.handlers.execution.time_limit import TimeLimit
from asyncrevoke.handlers.policy.batch import first_offset
from asyncrevoke.handlers.policy.context import HandlerContext
from asyncrevoke.handlers.policy.middleware import chain
from asyncrevoke.runtime.session.membership_guard import may_begin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncrevoke.handlers.dead_letters.retry_message import Past
    from asyncrevoke.handlers.execution.worker_resources import WorkerResources
    from asyncrevoke.handlers.policy.batch import Batch, Item
    from asyncrevoke.handlers.policy.log import Log
    from asyncrevoke.handlers.policy.middleware import Around, CallNext, Middleware
    from asyncrevoke.handlers.policy.signature import BatchCall
    from asyncrevoke.handlers.registry import Handler
    from asyncrevoke.handlers.scheduling.clock import Clock
    from asyncrevoke.model import Record
    from asyncrevoke.runtime.hooks.call_recorder import CallLog
    from asyncrevoke.runtime.hooks.observer import Tracer
    from asyncrevoke.runtime.session.membership_guard import MembershipGuard


class Handlers(Protocol):
    """All handlers; a router is that."""

    @property
    def handlers(self) -> tuple[Handler, ...]:
        """Each of them."""
        ...

    def find(self, topic: str, /) -> Handler:
        """The handler of a topic; ConfigError if there is none."""
        ...

    def middleware_of(self, handler: Handler, /) -> tuple[Middleware, ...]:
        """What goes around a handler, the outermost first."""
        ...


class HandlerCalls:
    """Makes the calls of all handlers. What goes around a handler's is put together once.

    ``stuck`` is told of what goes on after it was cancelled at the end of its time. ``past`` tells
    what was before a record was read, if there are retry topics.
    """

    def __init__(
        self,
        router: Handlers,
        log: Log,
        clock: Clock,
        membership: MembershipGuard,
        stuck: Callable[[Item], None],
        *,
        state: object,
        workers: WorkerResources | None,
        call_log: CallLog | None,
        tracer: Tracer | None,
        past: Callable[[Record], Past] | None,
    ) -> None:
        self._router = router
        self._log = log
        self._clock = clock
        self._membership = membership
        self._stuck = stuck
        self._state = state
        self._workers = workers
        self._call_log = call_log
        self._tracer = tracer
        self._past = past
        self._around: dict[str, Around | None] = {}

    def prepare(self, topic: str, handler: Handler) -> Callable[[Record], Awaitable[object]] | None:
        """To be called once, before the first call for a topic.

        Returns what makes a record's first call in the shortest way, if nothing goes around it but
        a tracer, and that does not want the record.
        """
        around = self._around[topic] = chain(self._router.middleware_of(handler))
        call = handler.call
        if call is None or around is not None:
            return None
        returns = handler.retry_topic is not None and handler.retry_topic.topic == topic
        if handler.max_handler_time is not None or returns:
            return None
        first: Callable[[Record], Awaitable[object]] = call
        if handler.wants_context:
            if self._workers is not None:
                return None
            state, log, name = self._state, self._log, handler.name
            first = lambda record: call(record, HandlerContext(record, 1, state, log, name))  # noqa: E731
        return first if self._call_log is None else self._call_log.first(first)

    def one(self, record: Record, handler: Handler, attempt: int) -> Awaitable[object]:
        """Call the handler of a single record."""
        assert handler.call is not None
        item = record
        if self._past is not None:
            record, before, _ = self._past(item)
            attempt += before
        function = partial(handler.call, record)
        return self._call(item, record, handler, attempt, None, function)

    async def batch(
        self,
        batch: Batch,
        handler: Handler,
        attempt: int,
        function: BatchCall,
        values: list[object],
        records: list[Record],
    ) -> None:
        """Call the handler of a batch with some of its values."""
        if self._past is not None:
            attempt += self._past(records[0]).calls
            records = [self._past(record).record for record in records]
        call = partial(function, values, records)
        await self._call(batch, records[0], handler, attempt, records, call)

    def _call(
        self,
        item: Item,
        record: Record,
        handler: Handler,
        attempt: int,
        records: list[Record] | None,
        function: Callable[[HandlerContext], Awaitable[object]],
    ) -> Awaitable[object]:
        around = self._around[item.topic]
        if self._workers is not None and (handler.wants_context or around is not None):
            return self._with_worker(
                self._workers, item, record, handler, attempt, records, function
            )
        return self._inside(item, record, handler, attempt, records, function, None)

    async def _with_worker(
        self,
        workers: WorkerResources,
        item: Item,
        record: Record,
        handler: Handler,
        attempt: int,
        records: list[Record] | None,
        function: Callable[[HandlerContext], Awaitable[object]],
    ) -> None:
        waits = not workers.has_free
        slot = await workers.take()
        try:
            if waits:
                await may_begin(self._membership)
            await self._inside(item, record, handler, attempt, records, function, slot.state)
        finally:
            workers.give_back(slot)

    def _inside(
        self,
        item: Item,
        record: Record,
        handler: Handler,
        attempt: int,
        records: list[Record] | None,
        function: Callable[[HandlerContext], Awaitable[object]],
        worker_state: object,
    ) -> Awaitable[object]:
        context = HandlerContext(
            record, attempt, self._state, self._log, handler.name, records, worker_state
        )
        around, longest, call_log = (
            self._around[item.topic],
            handler.max_handler_time,
            self._call_log,
        )
        tracer = self._tracer
        if tracer is not None and records is None and not tracer.wants(record):
            tracer = None
        if around is None and longest is None and call_log is None and tracer is None:
            return function(context)
        call: CallNext = partial(function, context)
        if call_log is not None:
            call = partial(
                call_log.call, handler.name, handler.function, context.records, attempt, call
            )
        if around is not None:
            call = partial(around, context, call)
        if tracer is not None:
            call = partial(tracer.call, handler.name, context.records, attempt, call)
        return call() if longest is None else self._limit(item, handler, longest).run(call)

    def _limit(self, item: Item, handler: Handler, seconds: float) -> TimeLimit:
        what = {
            "handler": handler.name,
            "topic": item.topic,
            "partition": item.partition,
            "offset": first_offset(item),
            "max_handler_time": seconds,
        }

        def slow() -> None:
            self._log.warning("a handler has taken half of its max_handler_time", **what)

        def stuck() -> None:
            self._log.error(
                "a handler goes on after it was cancelled: its partition is paused", **what
            )
            self._stuck(item)

        return TimeLimit(self._clock, seconds, slow, stuck)
