"""The public face: a consumer to iterate, or to give handlers to."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Literal

from asyncrevoke.config import ConsumerConfig
from asyncrevoke.config.inherit import INHERIT
from asyncrevoke.errors import (
    ConfigError,
    ConsumerClosedError,
    FatalError,
    HandlerExitError,
    IllegalStateError,
    PartitionLostError,
)
from asyncrevoke.handlers.host import HandlerHost
from asyncrevoke.model import Record
from asyncrevoke.runtime.hooks.rebalance_listener import RebalanceListener
from asyncrevoke.runtime.loop.event_loop import check_event_loop
from asyncrevoke.runtime.loop.signals import drain_on_signals
from asyncrevoke.runtime.session.partition_calls import PartitionCalls, to_offsets, to_partitions
from asyncrevoke.runtime.session.probe import probe
from asyncrevoke.runtime.session.shutdown_deadline import ShutdownDeadline
from asyncrevoke.runtime.session.subscription_calls import SubscriptionCalls, read_from

if TYPE_CHECKING:
    import re
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self, Unpack

    from asyncrevoke.config import ConsumerOptions, GroupProtocol, OrderBy
    from asyncrevoke.config.inherit import Inherit
    from asyncrevoke.handlers.execution.worker_resources import OpenWorkerResource
    from asyncrevoke.handlers.policy.decoding import Decoder
    from asyncrevoke.handlers.policy.middleware import M
    from asyncrevoke.handlers.policy.registration import HandlerOptions, OnError
    from asyncrevoke.handlers.policy.retry import Retry
    from asyncrevoke.handlers.registry import F, Router
    from asyncrevoke.handlers.task_group import TrackedTaskGroup
    from asyncrevoke.model import (
        BrokerPattern,
        GroupMetadata,
        Health,
        OffsetAndMetadata,
        PollResult,
        TopicPartition,
    )
    from asyncrevoke.runtime.hooks.journal_hooks import Journal
    from asyncrevoke.runtime.hooks.observer import Observer
    from asyncrevoke.runtime.session.probe import Probe
    from asyncrevoke.runtime.session.record_iterator import RecordIterator
    from asyncrevoke.runtime.session.session import Session

__all__ = ["Consumer", "RebalanceListener"]


class Consumer(SubscriptionCalls, PartitionCalls):
    """Reads topics, alone or in a group, and gives partitions up in two steps (KIP-983).

    ::

        async with Consumer("orders", group_id="billing") as consumer:
            async for batch in consumer:
                for record in batch.records:
                    await handle(record)

    Asking for the next batch says that the last one is done, and it is committed for you. So a
    wrapper that asks ahead, or tasks of your own, need ``commit_mode="ack"`` or a
    :meth:`task_group`.

    Topics are given by name or by one ``pattern``, which must match a whole name; a
    :class:`BrokerPattern` is resolved by the broker (KIP-848). ``listener``
    hears of rebalances. ``resources`` is an async context manager that is entered before the first
    handler runs and left after the last one has ended; handlers have what it gives as
    ``HandlerContext.state``. ``worker_resources`` is called with that, and returns another one:
    each call of a handler has one as ``HandlerContext.worker_state`` that no other has at the same
    time. It is opened when it is first needed, at most ``concurrency`` of them; one that cannot be
    opened stops the consumer, and ``run`` raises its error. ``decoder`` makes the values of those
    handlers that have none of their own, see :meth:`handler`. ``journal`` writes down what is done,
    see :class:`~asyncrevoke.journal.Journal`. All options are described at
    :class:`~asyncrevoke.config.ConsumerConfig`.
    Constructing a consumer connects to nothing and needs no event loop. Raises ConfigError.
    """

    def __init__(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | BrokerPattern | None = None,
        listener: RebalanceListener | None = None,
        resources: AbstractAsyncContextManager[object] | None = None,
        decoder: Decoder | None = None,
        worker_resources: OpenWorkerResource | None = None,
        journal: Journal | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._config = ConsumerConfig.from_options(**options)
        super().__init__(*read_from(topics, pattern, "Consumer", self._group_protocol))
        self._check_assignors()
        self._listener = listener
        self._journal = journal
        self._hosting = HandlerHost(self._config, resources, decoder, worker_resources)
        self._handlers: asyncio.Task[None] | None = None
        self._observers: list[Observer] = []

    @property
    def config(self) -> ConsumerConfig:
        """All options of this consumer."""
        return self._config

    @property
    def hosting(self) -> HandlerHost:
        """Its handlers and what they need, for those that run them on records of another source."""
        return self._hosting

    @property
    def closes_by(self) -> float | None:
        """When closing must have ended, by the event loop's clock: ``close_timeout`` seconds after
        what has begun it. None while nothing has."""
        return None if self._session is None else self._session.deadline.end

    def observe(self, observer: Observer) -> None:
        """Let metrics, traces or a page look on; without any, they cost nothing.

        To be called before the consumer is entered; an observer belongs to one consumer, unless it
        says otherwise. Raises ConfigError for what is no observer, and IllegalStateError.
        """
        if self._session is not None:
            raise IllegalStateError("observe() is called before the consumer is entered")
        from asyncrevoke.runtime.hooks.observers import check_observer  # noqa: PLC0415 - if used

        self._observers.append(check_observer(observer))

    def _check_assignors(self) -> None:
        if len(self._config.assignors) > 1 or not isinstance(self._config.assignors[0], str):
            from asyncrevoke.core.assignors import (  # noqa: PLC0415 - not for one of ours
                choose_protocol,
                find_assignors,
            )

            choose_protocol(find_assignors(self._config.assignors))

    # --- entering and leaving --------------------------------------------------------------------

    async def start(self) -> None:
        """Enter: begin to connect, and start the handlers if there are any.

        Does not wait for a broker: while none answers, log lines say what is waited for. A
        consumer is entered once. Raises ConfigError and IllegalStateError.
        """
        if self._session is not None:
            raise IllegalStateError(
                "this consumer was entered before: a consumer is entered once, make another one"
            )
        check_event_loop()
        self._hosting.check(self._topics)
        session = self._session = self._open()
        router = self._hosting.router
        if router is not None:
            if delays := self._hosting.retry_topic_delays():
                session.delay(delays)
            topics = () if router.pattern is not None else sorted(router.topics)
            session.core.subscribe(session.now(), topics, router.pattern)
        elif self._topics or self._pattern is not None:
            session.core.subscribe(session.now(), self._topics, self._pattern)
        session.start()
        if self._assigned is not None:
            self.assign(self._assigned)
        if router is not None:
            self._handlers = asyncio.create_task(self._hosting.run(session, router))
            session.wait_for(self._handlers)

    def _open(self) -> Session:
        from asyncrevoke.runtime.session.open_session import open_session  # noqa: PLC0415 - loads everything

        return open_session(self._config, self._listener, self._observers, self._journal)

    async def aclose(self, *, leave: bool | None = None) -> None:
        """Leave: wait for tracked work, commit what counts, leave the group, disconnect.

        ``leave`` tells the group at once, or does not: then it waits for ``session_timeout`` before
        it gives our partitions to others. None is True for dynamic members, and False for static
        ones (``group_instance_id``), which have their partitions back without a rebalance if they
        return in time (KIP-345). Until the group is left, the last call counts.

        Takes ``close_timeout`` at most. From another task than the loop's it is :meth:`stop`, and
        the loop's current batch counts if it asks for the next one in time; ``asyncio.wait_for``
        is another task in Python 3.11, ``asyncio.timeout`` is not. Never waits for acks. From
        within a handler call :meth:`stop`. Idempotent: all callers wait for the same end.

        Raises what a broker refused the final commit with, as :meth:`commit` does, and what a
        handler failed with. If cancelled,
        nothing more is waited for but the final commit and leaving, at most 5 s; if cancelled
        again, those go on alone.
        """
        if self._session is None:
            return
        if leave is not None:
            self._session.check_loop()
            self._session.core.leave_at_close(leave)
        try:
            await self._session.aclose()
        except Exception as closing:
            # What a handler failed with came first; a FatalError is told of by both.
            failure = self._handlers_failure()
            if failure is None or isinstance(failure, FatalError):
                raise
            self._session.log.exception("closing failed, after another error", exc_info=closing)
            raise failure from None
        if (failure := self._handlers_failure()) is not None:
            raise failure

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Like :meth:`aclose`; if an exception passes through, nothing is waited for."""
        if error is None:
            await self.aclose()
            return
        session = self._entered_once()
        try:
            await session.aclose(graceful=False)
        except Exception as closing:
            session.log.exception("closing failed, after another error", exc_info=closing)

    def stop(self) -> None:
        """End the loop or the handlers.

        A loop's next step counts the previous batch, then ends; partitions stay ours until the
        consumer is left. With handlers, records that have not started are given up, those that run
        have ``close_timeout`` from now, and then the group is left. Synchronous, and may be called
        from anywhere, another thread included.
        """
        self._entered_once().stop()

    # --- records ---------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        self._reading()
        return self

    async def __anext__(self) -> PollResult:
        """The next step: waits for records, a revoke or a loss.

        Cancelling it never loses records or ``lost``: the next call returns them.
        """
        return await self._reading().poll()

    async def poll(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - a result, not an error, ends it
        max_records: int | None = None,
    ) -> PollResult:
        """One step; an empty result after ``timeout`` seconds (None waits).

        The previous batch counts as processed when this is called. Returns at most
        ``max_records``, by default ``max_poll_records``. Raises ConsumerClosedError once the
        consumer is stopping, the errors of partitions once, and a FatalError each time. If
        cancelled, no record is gone: the next call returns them.
        """
        if max_records is not None and max_records < 1:
            raise ConfigError(f"max_records={max_records}: at least 1, or None for the default")
        result = await self._reading().step(timeout, max_records)
        if result is None:
            raise ConsumerClosedError("the consumer is stopping: there are no further records")
        return result

    def records(self) -> RecordIterator:
        """Single records; one is done when the next is asked for (``async for record in ...``).

        Records that were fetched and not handed out are not delivered: a seek, a pause, a stop, a
        close, an unsubscribe, a revoke and a loss apply to them. Asking for one starts the time of
        ``max_poll_interval`` anew. Cancelling a step loses none.
        A loop that is left early leaves no gap: the next one, over this or over whole batches,
        begins with the record after the last one that was taken, and counts that one.
        """
        return self._reading().records()

    def delay_revoke(self, partitions: Iterable[TopicPartition]) -> bool:
        """Keep announced partitions until the next step's result at least (KIP-983).

        True if all of them stay ours (or their revoke was withdrawn). False if one was lost or
        released since it was announced; the rest is delayed. Raises ValueError, and delays
        nothing, for a partition that no result has announced.
        """
        session = self._entered()
        wanted = to_partitions(partitions)
        return session.call(lambda: session.core.delay_revoke(wanted))

    # --- counting --------------------------------------------------------------------------------

    def ack(self, record: Record) -> bool:
        """This record is done; individually, in any order. Needs ``commit_mode="ack"``.

        True also if it was done already. False if its partition is lost or released: nothing
        happens then. Raises ValueError for a record of another consumer.
        """
        session = self._session
        if session is None or self._config.commit_mode != "ack":
            session = self._entered_once()
            raise ConfigError(
                f'ack() needs commit_mode="ack", this consumer has "{self._config.commit_mode}"'
            )
        session.check_thread()
        return session.complete(record)

    async def commit(
        self, what: Record | Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> None:
        """Commit, and return when the broker has acknowledged it.

        Without an argument, what counts; in ``"manual"`` mode everything returned, the current
        batch included. There it also takes a record (its offset + 1 is committed), or the next
        offset to read by partition, which may rewind.

        Before the position of a partition is known, its offset is sent all the same, and the
        partition then begins there.

        Raises what a broker refuses a commit with, as PartitionsError (TopicAuthorizationError if
        it is a matter of access): what counts is tried again by itself, an argument is not. Raises
        PartitionLostError, with nothing sent, if a partition is not ours any more, and also if it
        goes before its commit is acknowledged; ConsumerClosedError if the consumer closes first,
        and ConfigError for an argument in the other modes or without a group. It waits for as long
        as no coordinator answers; if cancelled, the commit goes on without being waited for.
        """
        session = self._entered()
        self._needs_group("commit")
        offsets = None if what is None else to_offsets(what, self._config.commit_mode)
        if isinstance(what, Record) and not session.core.owns(what):
            raise PartitionLostError([what.topic_partition])
        await session.ask(lambda: session.core.commit(session.now(), offsets))

    # --- facts -----------------------------------------------------------------------------------

    def group_metadata(self) -> GroupMetadata:
        """Our identity in the group; generation -1 while there is none."""
        self._needs_group("group_metadata")
        return self._entered().core.group_metadata()

    def health(self) -> Health:
        """How the consumer is, for a health check."""
        session = self._entered_once()
        return session.core.health(session.now())._replace(
            blocking_records=session.blocking(), running=session.running()
        )

    def probe(self, *, max_handler_age: float | None = None) -> Probe:
        """Whether it is alive and ready, for an orchestrator; before entering it is not ready.

        A handler that runs for longer than ``max_handler_age`` seconds is not alive, nor is one
        that has not ended 5 s after its ``max_handler_time``.
        """
        session = self._session
        health = None if session is None else self.health()
        return probe(self._config, session, health, max_handler_age)

    # --- handlers and tasks ----------------------------------------------------------------------

    def handler(self, *topics: str, **options: Unpack[HandlerOptions]) -> Callable[[F], F]:
        """Register an async function for topics; see ``Router.handler``.

        Entering a consumer that has handlers starts them. Such a consumer cannot be iterated.
        """
        return self._registering().handler(*topics, **options)

    def include_router(self, router: Router) -> None:
        """Take over the handlers of a router."""
        self._registering().include_router(router)

    def middleware(self, function: M) -> M:
        """Put an async function around each call of every handler; see ``Router.middleware``.

        ::

            @consumer.middleware
            async def timing(context: HandlerContext, call_next: CallNext) -> None:
                began = time.perf_counter()
                await call_next()
                took.labels(context.handler).observe(time.perf_counter() - began)
        """
        return self._registering().middleware(function)

    async def run(self) -> None:
        """Enter, handle records until SIGINT or SIGTERM or :meth:`stop`, drain, and leave.

        From the signal, the stop or the first failure on, all of it takes ``close_timeout`` at
        most: what has not started is given up at once, and handlers that still run 5 s before the
        end (or at its half) are cancelled. If the event loop itself is blocked then, the signal
        ends the process. A second signal ends it at once. Raises what a handler failed with, or
        else what closing failed with. If cancelled, handlers are cancelled too, and what has not
        ended does not count.
        """
        if self._hosting.router is None:
            raise ConfigError("run() needs handlers: register one with @consumer.handler(topic)")
        check_event_loop()
        with drain_on_signals(self._signalled, self._config.close_timeout):
            async with self:
                await self._entered_once().handlers_ended()

    @asynccontextmanager
    async def lifespan(
        self, app: object = None, *, on_failure: Literal["terminate", "report"] = "terminate"
    ) -> AsyncGenerator[None]:
        """For an ASGI application: ``FastAPI(lifespan=consumer.lifespan)``.

        If the handlers fail it is logged, and with ``"terminate"`` SIGTERM is sent to our own
        process, so that the server shuts down; the error is raised when the lifespan ends.
        """
        del app
        async with self:
            if self._handlers is None or on_failure == "report":
                yield
                return
            watching = asyncio.create_task(self._terminate_if_failed(self._entered_once()))
            try:
                yield
            finally:  # the server is shutting down: a signal now might end it half way
                watching.cancel()

    def task_group(
        self,
        *,
        concurrency: int | None = None,
        max_in_flight: int | None = None,
        order_by: OrderBy | Inherit | None = INHERIT,
        retry: Retry | None = None,
        dead_letter: str | None = None,
        on_error: OnError | None = None,
    ) -> TrackedTaskGroup:
        """A group for ``async with``, whose tasks' records count when they end.

        ``concurrency``, ``max_in_flight`` and ``order_by`` are by default those of the consumer.
        ``retry``, ``dead_letter`` and ``on_error`` say what a failure means, as for handlers.
        Needs ``commit_mode="processed"``.
        """
        session, config = self._reading(), self._config
        if config.commit_mode != "processed":
            raise ConfigError(
                'a task group counts records by itself: it needs commit_mode="processed", this '
                f'consumer has "{config.commit_mode}"'
            )
        from asyncrevoke.handlers.dead_letters.producer import (  # noqa: PLC0415 - if used
            DeadLetterProducer,
        )
        from asyncrevoke.handlers.execution.runner_context import RunnerContext  # noqa: PLC0415
        from asyncrevoke.handlers.policy.options import check_failure_options  # noqa: PLC0415
        from asyncrevoke.handlers.task_group import TrackedTaskGroup  # noqa: PLC0415

        check_failure_options(retry, dead_letter, on_error)
        most = config.max_in_flight if max_in_flight is None else max_in_flight
        running = config.concurrency if concurrency is None else concurrency
        if not 1 <= most <= config.max_in_flight:
            raise ConfigError(
                f"max_in_flight={most}: from 1 to {config.max_in_flight}, which is all that the "
                "consumer takes ahead (its own max_in_flight)"
            )
        if running < 1:
            raise ConfigError(f"concurrency={running}: at least 1")
        letters = session.letters or DeadLetterProducer(session.config, session.log)
        context = RunnerContext(
            concurrency=running,
            max_in_flight=most,
            log=session.log,
            order_by=config.order_by if order_by is INHERIT else order_by,
            null_keys=config.null_keys,
            dead_letters=None if dead_letter is None else letters,
            observers=session.observers,
            witness=session.witness,
            deadline=ShutdownDeadline(session.now, config.close_timeout),
        )
        group = TrackedTaskGroup(
            session, context, retry=retry, dead_letter=dead_letter, on_error=on_error or "stop"
        )
        session.watch(group)
        return group

    def _registering(self) -> Router:
        if self._session is not None:
            raise IllegalStateError("handlers are registered before the consumer is entered")
        if self._assigned is not None or self._pattern is not None:
            raise ConfigError(
                "handlers say which topics are read: give @consumer.handler the topics or the "
                "pattern, and the consumer none"
            )
        return self._hosting.router_for_registration()

    async def _terminate_if_failed(self, session: Session) -> None:
        await session.handlers_ended()
        if self._handlers_failure() is not None:
            signal.raise_signal(signal.SIGTERM)

    def _handlers_failure(self) -> BaseException | None:
        handlers = self._handlers
        if handlers is None:
            return None
        if not handlers.done():
            failure = self._hosting.failure
        elif handlers.cancelled():
            return None
        else:
            failure = handlers.exception()
        return failure.reason if isinstance(failure, HandlerExitError) else failure

    def _signalled(self, number: signal.Signals) -> None:
        session = self._session
        if session is not None:
            session.log.info("draining; a second signal ends at once", signal=number.name)
            session.stop()

    # --- states ----------------------------------------------------------------------------------

    def _entered_once(self) -> Session:
        if self._session is None:
            raise IllegalStateError(
                "this consumer is not entered yet: use `async with consumer:` first, or "
                "`await consumer.start()`"
            )
        return self._session

    def _entered(self) -> Session:
        session = self._entered_once()
        session.check_thread()
        if session.closing:
            raise ConsumerClosedError("this consumer is closed: make another one")
        return session

    def _reading(self) -> Session:
        if self._hosting.router is not None:
            raise ConfigError(
                "this consumer has handlers, which take its records: use another consumer (with "
                "a group_id of its own) to iterate, or await consumer.run()"
            )
        return self._entered_once()

    @property
    def _group_protocol(self) -> GroupProtocol:
        return self._config.group_protocol

    @property
    def _has_handlers(self) -> bool:
        return self._hosting.router is not None

    def _needs_group(self, call: str) -> None:
        if self._config.group_id is None:
            raise ConfigError(f"{call}() is about a consumer group: give the consumer a group_id")
