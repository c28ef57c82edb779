"""The consumer: iterate over it, or register handlers."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

from asyncrevoke.client import log_events
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.config.inherit import INHERIT
from asyncrevoke.client.config.share_groups import refuse_calls
from asyncrevoke.client.errors import (
    ConfigError,
    FatalError,
    HandlerExitError,
    IllegalStateError,
)
from asyncrevoke.client.runtime.hooks.observers import check_observer
from asyncrevoke.client.runtime.hooks.rebalance_listener import RebalanceListener, check_listener
from asyncrevoke.client.runtime.hooks.recorders import SessionJournal, check_journal
from asyncrevoke.client.runtime.loop.entering import check_event_loop, check_main_script
from asyncrevoke.client.runtime.loop.signals import DrainOnSignals
from asyncrevoke.client.runtime.session.partition_calls import PartitionCalls
from asyncrevoke.client.runtime.session.probe import StatusCalls
from asyncrevoke.client.runtime.session.record_calls import RecordCalls
from asyncrevoke.client.runtime.session.subscription_calls import SubscriptionCalls, read_from
from asyncrevoke.handlers.host import HandlerHost

if TYPE_CHECKING:
    import re
    from collections.abc import AsyncGenerator, Callable
    from typing import Self, Unpack

    from asyncrevoke.client.config import ConsumerOptions, GroupProtocol, OrderBy
    from asyncrevoke.client.config.inherit import Inherit
    from asyncrevoke.client.model import BrokerPattern
    from asyncrevoke.client.producing.exactly_once.batch_transaction import BatchTransaction
    from asyncrevoke.client.producing.publishing.producer import ConsumerProducer, Producer
    from asyncrevoke.client.runtime.hooks.observers import Observer
    from asyncrevoke.client.runtime.session.entered_session import EnteredSession
    from asyncrevoke.client.runtime.session.session import Session
    from asyncrevoke.client.runtime.share.share_session import ShareSession
    from asyncrevoke.handlers.asyncapi.objects import About, AsyncApi
    from asyncrevoke.handlers.decoding.decoders import HandlerDecoder
    from asyncrevoke.handlers.execution.worker_resources import OpenWorkerResource, Resources
    from asyncrevoke.handlers.lifespans.partition_lifespans import L
    from asyncrevoke.handlers.policy.middleware import M
    from asyncrevoke.handlers.policy.registration import HandlerOptions, OnError
    from asyncrevoke.handlers.policy.retry import Retry
    from asyncrevoke.handlers.registry import F, Router
    from asyncrevoke.handlers.task_group import TrackedTaskGroup

__all__ = ["Consumer", "RebalanceListener"]


class Consumer(SubscriptionCalls, RecordCalls, PartitionCalls, StatusCalls):
    """Reads topics, alone or in a group, and revokes partitions in two steps (KIP-983).

    ::

        async with Consumer("orders", group_id="billing") as consumer:
            async for batch in consumer:
                for record in batch.records:
                    await handle(record)

    Requesting the next batch completes the last one, and its offsets are committed. So code that
    prefetches, or that starts tasks, needs ``commit_mode="ack"`` or a :meth:`task_group`.

    ``pattern`` must match a whole topic name; the broker matches a :class:`BrokerPattern`
    (KIP-848). ``listener`` has the callbacks of rebalances.

    ``resources`` is an async context manager, or a function that returns one, open while handlers
    run; handlers get its value as ``HandlerContext.state``. ``worker_resources`` is called with
    that value and returns a context manager, whose value is ``HandlerContext.worker_state``; only
    one call uses it at a time. Up to ``concurrency`` of these are opened when needed; if one cannot
    be opened, the consumer stops and ``run`` raises the error. ``decoder`` decodes the values of
    handlers without a ``decoder``, see :meth:`handler`. ``journal`` records the calls of handlers,
    see :class:`~asyncrevoke.journal.Journal`. :class:`~asyncrevoke.config.ConsumerConfig` describes
    the options.

    Constructing a consumer does not connect and needs no event loop. Raises ConfigError.
    """

    def __init__(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | BrokerPattern | None = None,
        listener: RebalanceListener | None = None,
        resources: Resources | None = None,
        decoder: HandlerDecoder | None = None,
        worker_resources: OpenWorkerResource | None = None,
        journal: SessionJournal | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._config = ConsumerConfig.from_options(**options)
        self._load_parser()  # before a loop runs, like these imports
        from asyncrevoke.client.runtime.session.open_session import open_session

        self._open_session = open_session
        if self._config.group_type == "share":
            from asyncrevoke.client.runtime.share.open_share_session import open_share_session

            self._open_share_session = open_share_session
            refuse_calls(self, listener=listener, pattern=pattern)
        super().__init__(*read_from(topics, pattern, "Consumer", self._group_protocol))
        self._check_assignors()
        self._listener = check_listener(listener)
        self._journal = check_journal(journal)
        fits_batches = self._config.group_type == "share" and "max_in_flight" not in options
        self._handler_host = HandlerHost(
            self._config, resources, decoder, worker_resources, fits_batches=fits_batches
        )
        self._producer: ConsumerProducer | None = None
        self._handlers: asyncio.Task[None] | None = None
        self._observers: list[Observer] = []

    @property
    def config(self) -> ConsumerConfig:
        """All options of this consumer."""
        return self._config

    @property
    def handler_host(self) -> HandlerHost:
        """The handlers and their resources, to run them on records of another source."""
        return self._handler_host

    @property
    def closes_by(self) -> float | None:
        """The end of closing at the latest, by the event loop's clock; None before closing begins.

        It is ``close_timeout`` seconds after closing began.
        """
        return None if self._running is None else self._running.deadline.end

    def observe(self, observer: Observer) -> None:
        """Add an observer: metrics, tracing or a dashboard.

        Call this before the consumer is entered. An observer belongs to one consumer, unless its
        documentation says otherwise. Raises ConfigError for an object that is not an observer, and
        IllegalStateError.
        """
        if self._running is not None:
            raise IllegalStateError("observe() is called before the consumer is entered")
        self._observers.append(check_observer(observer))

    def _check_assignors(self) -> None:
        if len(self._config.assignors) > 1 or not isinstance(self._config.assignors[0], str):
            from asyncrevoke.client.core.assignors import choose_protocol, find_assignors

            choose_protocol(find_assignors(self._config.assignors))

    # --- entering and leaving --------------------------------------------------------------------

    async def start(self) -> None:
        """Enter the consumer: begin to connect, and start the handlers if there are any.

        Does not wait for a broker; while none responds, warnings are logged. A consumer can be
        entered once. Raises ConfigError and IllegalStateError.
        """
        if self._running is not None:
            raise IllegalStateError(
                "this consumer was entered before: a consumer is entered once, make another one"
            )
        check_event_loop()
        check_main_script()
        self._handler_host.check(self._topics)
        is_share = self._config.group_type == "share"
        session = self._running = self._join_share_group() if is_share else self._subscribe_all()
        router = self._handler_host.router
        if router is not None and session.checks_output_topics:
            session.core.output_topics.set_topics(self._handler_host.output_topics())
        session.start()
        if self._assigned is not None:
            self.assign(self._assigned)
        if router is not None:
            self._handlers = asyncio.create_task(self._handler_host.run(session, router))
            session.wait_for(self._handlers)

    def _subscribe_all(self) -> Session:
        """A session that subscribes to all topics when it is started."""
        session = self._session = self._open()
        if session.config.exactly_once:
            self._handler_host.open_transactions(session)
        if self._handler_host.has_lifespans:
            session.core.lifespans.enter_lifespans()
        router = self._handler_host.router
        if router is not None:
            if delays := self._handler_host.retry_topic_delays():
                session.delay(delays)
            topics = () if router.pattern is not None else sorted(router.topics)
            session.call(session.core.subscription_state.subscribe, topics, router.pattern)
        elif self._topics or self._pattern is not None:
            session.call(session.core.subscription_state.subscribe, self._topics, self._pattern)
        return session

    def _open(self) -> Session:
        return self._open_session(self._config, self._listener, self._observers, self._journal)

    def _join_share_group(self) -> ShareSession:
        """A session that joins the share group when it is started."""
        router = self._handler_host.router_for_registration()
        limits = self._handler_host.acquire_limits()
        return self._open_share_session(
            self._config, router.topics, self._observers, self._journal, limits=limits
        )

    async def aclose(self, *, leave: bool | None = None) -> None:
        """Close: wait for tracked work, commit completed records, leave the group, disconnect.

        With ``leave=True`` a LeaveGroup is sent; with False the group assigns the partitions to
        others after ``session_timeout``. None is True for dynamic members and False for static ones
        (``group_instance_id``), which keep their partitions if they return in time (KIP-345). Until
        the group is left, the last call counts.

        Takes ``close_timeout`` at most. Called by another task than the loop's, it waits until the
        loop requests its next batch, which completes the current one; ``asyncio.wait_for`` makes
        another task in Python 3.11, ``asyncio.timeout`` does not. Does not wait for acks. In a
        handler it raises IllegalStateError: call :meth:`stop`. All callers wait for the same end.

        Raises the error of a rejected final commit, as :meth:`commit` does, or of a callback of the
        listener; a call after that one returns. Also raises the error of a handler that has stopped
        the consumer. If cancelled, it waits at most 5 s, only for the final commit and leaving; if
        cancelled again, these continue in the background.
        """
        session = self._running
        if session is None:
            return
        if leave is not None:
            session.check_loop()
            self._entered_once().core.leave_at_close(leave)
        try:
            await session.aclose()
            await self._handler_host.close_producer(session)
        except Exception as closing:
            # Raise the first error: the handler's. A FatalError is the same error for both.
            failure = self._handlers_failure()
            if failure is None or isinstance(failure, FatalError):
                raise
            log_events.CLOSING_FAILED.write_to(session.log, exc_info=closing)
            raise failure from None
        if (failure := self._handlers_failure()) is not None:
            raise failure

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Like :meth:`aclose`; with an exception, it does not wait for tracked work."""
        if error is None:
            await self.aclose()
            return
        session = self._entered_in_any_group()
        try:
            await session.aclose(graceful=False)
            await self._handler_host.close_producer(session)
        except Exception as closing:  # noqa: BLE001 - the block's error is raised
            log_events.CLOSING_FAILED.write_to(session.log, exc_info=closing)

    def stop(self) -> None:
        """End the loop or the handlers. May be called in any thread; does not wait.

        A loop ends with its next step, which completes the previous batch; partitions stay assigned
        until the consumer is closed. With handlers, no call is started once the event loop has run
        again, running calls have ``close_timeout`` to end, and the consumer leaves the group.
        """
        self._entered_in_any_group().stop()

    # --- handlers and tasks ----------------------------------------------------------------------

    def handler(self, *topics: str, **options: Unpack[HandlerOptions]) -> Callable[[F], F]:
        """Register a function as the handler of topics; see ``Router.handler``.

        Entering a consumer that has handlers starts them. Such a consumer cannot be iterated.
        """
        return self._registering().handler(*topics, **options)

    def include_router(self, router: Router) -> None:
        """Register the handlers of a router."""
        self._registering().include_router(router)

    def middleware(self, function: M) -> M:
        """Wrap each call of every handler by an async function; see ``Router.middleware``."""
        return self._registering().middleware(function)

    def asyncapi(self, **about: Unpack[About]) -> AsyncApi:
        """Describe the handlers as an AsyncAPI 3.0 document, whose values are those of JSON.

        It connects to no broker, and needs no event loop. Raises ConfigError without handlers.
        """
        from asyncrevoke.handlers.asyncapi.document import describe

        return describe(self._handler_host.router, self._config, about)

    def partition_lifespan(self, function: L) -> L:
        """Register a function that opens and closes the state of each assigned partition.

        ::

            @consumer.partition_lifespan
            async def counts(partition: AssignedPartition) -> AsyncGenerator[Counts]:
                counts = await load(partition.topic_partition)
                partition.seek(*counts.progress)
                yield counts                    # HandlerContext.partition_state
                counts.progress = partition.progress
                await save(counts)

        The function is an async generator, or returns an async context manager. It is entered for
        each assignment of a partition before its first record is handled, and exits after the last
        record and before the final commit; records of other partitions are handled meanwhile. If
        the partition is lost, ``yield`` raises PartitionLostError.

        If the function raises, the consumer stops as after a handler with ``on_error="stop"``; at
        exit, the partition is lost without a final commit. Entering is cancelled after
        ``max_poll_interval`` or when the partition is revoked, exiting at the deadline of the
        revocation or of ``close_timeout``. Raises ConfigError for another kind of function.
        """
        self._registering()
        return self._handler_host.partition_lifespan(function)

    @property
    def producer(self) -> Producer:
        """A producer for code outside of handlers, over the consumer's connections.

        ``await consumer.producer.publish("orders", order, key="c7")`` returns when all in-sync
        replicas have the record. Raises IllegalStateError before the consumer is entered, and
        ConsumerClosedError afterwards.
        """
        from asyncrevoke.client.producing.publishing.producer import ConsumerProducer

        session = self._not_closing(self._entered_in_any_group())
        records = self._handler_host.open_producer(session)
        if self._producer is None or self._producer.publisher.producer is not records:
            inside = session.membership if session.config.exactly_once else None
            self._producer = ConsumerProducer(session, records, inside)
            session.shutdown.publisher = self._producer.publisher
        return self._producer

    def transaction(self) -> BatchTransaction:
        """A transaction for the last batch of a loop, with ``processing="exactly_once"``.

        ::

            async for batch in consumer:
                async with consumer.transaction() as tx:
                    for record in batch.records:
                        tx.publish("totals", total(record), record=record)

        At the end of the block the results and the offsets of the batch are committed together. If
        the block raises an exception, nothing is published or committed, and the next step returns
        the batch again; the same happens if the commit raises: PublishError for a result that is
        refused, PartitionLostError if a partition is lost whose results cannot be left out, a
        FatalError if the consumer has ended. Ask for the next batch after the block. If cancelled,
        the transaction is aborted, or its end is awaited if its commit was requested; if cancelled
        again meanwhile, the consumer fails. Raises ConfigError without
        ``processing="exactly_once"``.
        """
        session = self._reading()
        transactions = self._handler_host.transactions
        if transactions is None:
            raise ConfigError('transaction() needs processing="exactly_once"')
        from asyncrevoke.client.producing.exactly_once.batch_transaction import BatchTransaction

        return BatchTransaction(session, transactions)

    async def run(self) -> None:
        """Enter, process records until SIGINT, SIGTERM or :meth:`stop`, drain, and close.

        After the signal, the stop or the first failure, closing takes ``close_timeout`` at most: no
        call is started, and calls that still run 5 s before the end (or at half of the time, if
        that is later) are cancelled. If the event loop is blocked then, the signal ends the
        process; a second signal ends it at once. Raises the error of a handler, or otherwise of
        closing. If cancelled, handlers are cancelled too, and their records are processed again.
        """
        if self._handler_host.router is None:
            raise ConfigError("run() needs handlers: register one with @consumer.handler(topic)")
        check_event_loop()
        with DrainOnSignals(self._signalled, self._config.close_timeout):
            async with self:
                await self._entered_in_any_group().shutdown.handlers_ended()

    @asynccontextmanager
    async def lifespan(
        self, app: object = None, *, on_failure: Literal["terminate", "report"] = "terminate"
    ) -> AsyncGenerator[None]:
        """The lifespan of an ASGI application: ``FastAPI(lifespan=consumer.lifespan)``.

        If the handlers fail, the error is logged, and with ``"terminate"`` SIGTERM is sent to this
        process, so that the server shuts down. The error is raised when the lifespan ends.
        """
        del app
        async with self:
            if self._handlers is None or on_failure == "report":
                yield
                return
            watching = asyncio.create_task(self._terminate_if_failed(self._entered_in_any_group()))
            try:
                yield
            finally:  # a signal now could interrupt the server's shutdown
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
        """A group for ``async with``; a record is completed when its task ends.

        ``concurrency``, ``max_in_flight`` and ``order_by`` are the consumer's by default.
        ``retry``, ``dead_letter`` and ``on_error`` decide about failures, as for handlers.
        Needs ``commit_mode="processed"``.
        """
        session, config = self._reading(), self._config
        if config.commit_mode != "processed":
            raise ConfigError(
                'a task group completes records itself: it needs commit_mode="processed", this '
                f'consumer has "{config.commit_mode}"'
            )
        from asyncrevoke.handlers.policy.options import check_failure_options
        from asyncrevoke.handlers.task_group import TrackedTaskGroup

        check_failure_options(retry, dead_letter, on_error)
        context = self._handler_host.task_group_context(
            session,
            concurrency=config.concurrency if concurrency is None else concurrency,
            max_in_flight=config.max_in_flight if max_in_flight is None else max_in_flight,
            order_by=config.order_by if order_by is INHERIT else order_by,
            sends_dead_letters=dead_letter is not None,
        )
        group = TrackedTaskGroup(
            session, context, retry=retry, dead_letter=dead_letter, on_error=on_error or "stop"
        )
        session.add_owner(group)
        return group

    def _registering(self) -> Router:
        if self._running is not None:
            raise IllegalStateError("handlers are registered before the consumer is entered")
        if self._assigned is not None or self._pattern is not None:
            raise ConfigError(
                "handlers choose the topics of a consumer: give the topics or the pattern to "
                "@consumer.handler, and none to the consumer"
            )
        return self._handler_host.router_for_registration()

    async def _terminate_if_failed(self, session: EnteredSession) -> None:
        await session.shutdown.handlers_ended()
        if self._handlers_failure() is not None:
            signal.raise_signal(signal.SIGTERM)

    def _handlers_failure(self) -> BaseException | None:
        handlers = self._handlers
        if handlers is None:
            return None
        if not handlers.done():
            failure = self._handler_host.failure
        elif handlers.cancelled():
            return None
        else:
            failure = handlers.exception()
        return failure.reason if isinstance(failure, HandlerExitError) else failure

    def _signalled(self, number: signal.Signals) -> None:
        session = self._running
        if session is not None:
            log_events.DRAINING.write_to(session.log, signal=number.name)
            session.stop()

    def _reading(self) -> Session:
        if self._handler_host.router is not None:
            raise ConfigError(
                "this consumer has handlers, which take its records: use another consumer with "
                "another group_id to iterate, or await consumer.run()"
            )
        transactions = self._handler_host.transactions
        if transactions is not None and transactions.has_open_batch:
            raise IllegalStateError(
                "the block of consumer.transaction() covers one batch: ask for the next one, or "
                "begin another transaction, after it"
            )
        return self._entered_once()

    @property
    def _group_protocol(self) -> GroupProtocol:
        return self._config.group_protocol

    def _handled(self) -> tuple[str | None, frozenset[str]] | None:
        router = self._handler_host.router
        return None if router is None else (router.pattern, router.topics)

    def _needs_group(self, call: str) -> None:
        if self._config.group_id is None:
            raise ConfigError(f"{call}() needs a consumer group: give the consumer a group_id")
