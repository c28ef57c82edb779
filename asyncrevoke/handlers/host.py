"""The handlers of one consumer: registers them, opens their resources, and runs them."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import ConfigError, ConsumerClosedError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.client.runtime.loop.shutdown_deadline import ShutdownDeadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncrevoke.client.config import ConsumerConfig, OrderBy
    from asyncrevoke.client.core.fetch.delayed_topic import TopicDelay
    from asyncrevoke.client.core.share.acquire_limits import AcquireLimits
    from asyncrevoke.client.log_events import Log
    from asyncrevoke.client.producing.exactly_once.record_transactions import RecordTransactions
    from asyncrevoke.client.producing.record_producer import RecordProducer
    from asyncrevoke.client.runtime.session.entered_session import EnteredSession
    from asyncrevoke.client.runtime.session.session import Session
    from asyncrevoke.client.runtime.share.share_session import ConsumerSession
    from asyncrevoke.handlers.dead_letters.producer import DeadLetterProducer
    from asyncrevoke.handlers.decoding.decoders import HandlerDecoder
    from asyncrevoke.handlers.execution.runner_context import RunnerContext
    from asyncrevoke.handlers.execution.worker_resources import (
        OpenResources,
        OpenWorkerResource,
        Resources,
        WorkerResources,
    )
    from asyncrevoke.handlers.lifespans.partition_lifespans import (
        L,
        OpenLifespan,
        PartitionLifespans,
    )
    from asyncrevoke.handlers.registry import Router
    from asyncrevoke.handlers.runner import HandlerRunner


class HandlerHost:
    """Has the handlers (``router``), their resources and their producer.

    ``router`` is None, and modules for handlers are not imported, until the first one is
    registered.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        resources: Resources | None,
        decoder: HandlerDecoder | None,
        worker_resources: OpenWorkerResource | None,
        *,
        fits_batches: bool = False,
    ) -> None:
        """``fits_batches``: the consumer's ``max_in_flight`` is a default, which batches raise."""
        self._config = config
        self._fits_batches = fits_batches
        self._resources = _check_resources(resources)
        self._decoder = _check_decoder(decoder)
        self._worker_resources = _check_worker_resources(worker_resources)
        self._open_lifespan: OpenLifespan | None = None
        self.router: Router | None = None
        self._runner: HandlerRunner | None = None
        self._producer: RecordProducer | None = None
        self.transactions: RecordTransactions | None = None
        # The session whose producer is closed. A test may enter the consumer again, with another.
        self._closed_session: EnteredSession | None = None

    @property
    def failure(self) -> BaseException | None:
        """The failure that has stopped the handlers, even if some still run; None if none has."""
        return None if self._runner is None else self._runner.failure

    @property
    def max_in_flight(self) -> int:
        """The consumer's ``max_in_flight``. As a default of a share group, it has room for two
        batches of each handler: one that is handled, and one that fills."""
        most = self._config.max_in_flight
        if self.router is None or not self._fits_batches:
            return most
        batches = [one.batch.max_records for one in self.router.handlers if one.batch is not None]
        return max(most, 2 * sum(batches))

    def router_for_registration(self) -> Router:
        """Return the router, made at the first call.

        Raises ConfigError if the consumer's options exclude handlers.
        """
        if self.router is None:
            from asyncrevoke.handlers.registry import Router

            if self._config.group_id is None:
                raise ConfigError("handlers need a group: give the consumer a group_id")
            if self._config.commit_mode != "processed":
                raise ConfigError(
                    "a record is done when its handler has returned: handlers need "
                    f'commit_mode="processed", this consumer has "{self._config.commit_mode}"'
                )
            self.router = Router(decoder=self._decoder)
            # Imported here, so that the event loop, which runs the handlers, need not.
            modules = [
                "runner",
                "dead_letters.producer",
                "execution.column_handlers",
                "execution.runner_context",
                "policy.group_types",
            ]
            if self._config.group_type == "share":
                modules.append("execution.share_group_settings")
            for module in modules:
                import_module(f"asyncrevoke.handlers.{module}")
        return self.router

    def partition_lifespan(self, function: L) -> L:
        """Register the lifespan of partitions; see ``Consumer.partition_lifespan``."""
        from asyncrevoke.handlers.lifespans.partition_lifespans import open_lifespan

        if self._open_lifespan is not None:
            raise ConfigError(
                "this consumer has a partition_lifespan already: it may open several things with "
                "`async with` in its body"
            )
        self._open_lifespan = open_lifespan(function)
        return function

    @property
    def has_lifespans(self) -> bool:
        """Whether partitions have lifespans."""
        return self._open_lifespan is not None

    def check(self, topics: Iterable[str]) -> None:
        """Check handlers and limits before the consumer is entered with these topics."""
        if self.router is not None:
            from asyncrevoke.handlers.policy.group_types import check_group_type
            from asyncrevoke.handlers.policy.options import check_consumer_limits
            from asyncrevoke.handlers.policy.results import check_results

            if not self.router.handlers:
                raise ConfigError(
                    "this consumer has a router or middleware, and no handler: register one with "
                    "@consumer.handler(topic)"
                )
            for topic in topics:
                self.router.find(topic)
            for handler in self.router.handlers:
                if not handler.only_replays_keep_results:
                    check_results(handler.function, handler.name, handler.publish_to)
                check_group_type(handler, self._config.group_type)
                check_consumer_limits(handler, self._config.concurrency, self.max_in_flight)
        elif self._open_lifespan is not None:
            raise ConfigError(
                "partition_lifespan is for handlers, and this consumer has none: in a loop of your "
                "own, use a listener whose on_partitions_assigned is `async def`"
            )
        elif self._resources is not None or self._worker_resources is not None:
            name = "resources" if self._resources is not None else "worker_resources"
            raise ConfigError(
                f"{name}= is for handlers, and this consumer has none: in a loop of your own, "
                "open what it needs with `async with` around it"
            )
        elif self._decoder is not None:
            raise ConfigError(
                "decoder= is for handlers, and this consumer has none: in a loop of your own, "
                "call it with each record"
            )

    def acquire_limits(self) -> AcquireLimits:
        """What a member of a share group acquires. Records of batches wait until their batch is
        full. No more slots than the handlers' own ``concurrency`` allows, if each has one, and no
        more unstarted records than begin soon, if each has a ``rate_limit``: others would only
        wait, with their locks renewed. Raises ConfigError without handlers."""
        from asyncrevoke.client.core.share.acquire_limits import AcquireLimits, TopicLimits
        from asyncrevoke.handlers.scheduling.handler_ordering import call_limits

        router, most = self.router, self.max_in_flight
        if router is None or not router.handlers:
            raise ConfigError(
                "a consumer of a share group needs handlers: register one with "
                "@consumer.handler(topic)"
            )
        if any(handler.batch is not None for handler in router.handlers):
            return AcquireLimits(most, most)
        limits = [call_limits(router, handler) for handler in router.handlers]
        calls = sum(limit.concurrency or self._config.concurrency for limit in limits)
        soon = [limit.begin_soon for limit in limits]
        unstarted = None if None in soon else sum(filter(None, soon))
        topics = {
            topic: TopicLimits(limit.concurrency, limit.begin_soon)
            for handler, limit in zip(router.handlers, limits, strict=True)
            if limit.delay_calls and len(limits) > 1
            for topic in handler.topics
        }
        return AcquireLimits(min(self._config.concurrency, calls), most, unstarted, topics)

    def retry_topic_delays(self) -> dict[str, TopicDelay]:
        """By retry topic, when its records are due."""
        handlers = () if self.router is None else self.router.handlers
        topics = [handler.retry_topic for handler in handlers if handler.retry_topic]
        if not topics:
            return {}
        from asyncrevoke.client.core.fetch.delayed_topic import TopicDelay
        from asyncrevoke.handlers.dead_letters.retry_message import due_time_ms

        return {topic.topic: TopicDelay(topic.delay, due_time_ms) for topic in topics}

    def dead_letter_topics(self) -> frozenset[str]:
        """The topics that failed records of handlers are sent to for good."""
        handlers = () if self.router is None else self.router.handlers
        return frozenset(
            handler.dead_letter for handler in handlers if handler.dead_letter is not None
        )

    def output_topics(self) -> frozenset[str]:
        """The topics that failed records and results are sent to."""
        handlers = () if self.router is None else self.router.handlers
        topics = {
            topic for handler in handlers for topic in (handler.dead_letter, handler.publish_to)
        }
        topics |= {handler.retry_topic.topic for handler in handlers if handler.retry_topic}
        return frozenset(topic for topic in topics if topic is not None)

    def open_transactions(self, session: Session) -> None:
        """From now on, what is finished in this session is committed in transactions."""
        from asyncrevoke.client.producing.exactly_once.record_transactions import (
            RecordTransactions,
        )

        self.transactions = RecordTransactions(session)
        session.transactions.write_by(self.transactions)
        self.transactions.start()

    async def run(self, session: ConsumerSession, router: Router) -> None:
        """Run the handlers until the session stops, or a failed handler stops it.

        Raises the failure that stopped the handlers, even if cancelled after it. Cancelling cancels
        the handlers too.
        """
        from asyncrevoke.handlers.execution.column_handlers import use_columns
        from asyncrevoke.handlers.registry import inline
        from asyncrevoke.handlers.runner import HandlerRunner

        log = session.application_log
        lifespans = self._lifespans(cast("Session", session)) if self.has_lifespans else None
        try:
            async with (
                self.open_resources() as state,
                self.open_worker_resources(state, log, session.deadline) as worker_resources,
                self._group_settings(session),
            ):
                context = self._runner_context(session, state, worker_resources, lifespans)
                if session.recorder is None and self.transactions is None:
                    # Both tell records apart by their objects.
                    await use_columns(cast("Session", session), router)
                if not session.uses_threads:
                    router = router.map_handlers(inline)
                runner = self._runner = HandlerRunner(session, router, context)
                if self.transactions is not None:
                    self.transactions.serve(runner.report_ended)
                session.add_owner(runner)
                if lifespans is not None:
                    lifespans.start(state, runner.stop_after_failure)
                try:
                    await runner.run()
                finally:
                    if lifespans is not None:
                        # They exit before resources are closed.
                        await lifespans.aclose(lost=session.has_failed)
                if runner.failure is not None:
                    raise runner.failure
        except asyncio.CancelledError:
            if self.failure is None:
                raise
            # The shutdown deadline has cancelled the wait for other handlers.
            log_events.HANDLER_STOPPED_CONSUMER.write_to(log, exc_info=self.failure)
            raise self.failure from None
        except Exception as error:
            first = error if self.failure is None else self.failure
            if first is not error:  # raised by resources when they were closed after the failure
                log_events.CLOSING_FAILED.write_to(log, exc_info=error)
            event = log_events.HANDLER_STOPPED_CONSUMER if self._runner else log_events.NOT_STARTED
            if not session.has_logged(first):
                event.write_to(log, exc_info=first)
            if first is error:
                raise
            raise first from None
        finally:
            session.shutdown.begin()
            if lifespans is not None:
                # The core waits for lifespans, even if resources could not be opened.
                await lifespans.aclose()
            await self.close_producer(session)

    def _runner_context(
        self,
        session: ConsumerSession,
        state: object,
        worker_resources: WorkerResources | None,
        lifespans: PartitionLifespans | None,
    ) -> RunnerContext:
        from asyncrevoke.handlers.execution.runner_context import RunnerContext

        config = self._config
        return RunnerContext(
            concurrency=config.concurrency,
            log=session.application_log,
            order_by=config.order_by,
            null_keys=config.null_keys,
            max_in_flight=self.max_in_flight,
            state=state,
            worker_resources=worker_resources,
            lifespans=lifespans,
            dead_letters=self._dead_letters(session),
            open_producer=self._open_results(session),
            transactions=self.transactions,
            wall_clock=session.wall_clock,
            call_recorder=session.call_recorder,
            observers=session.observers,
            recorder=session.recorder,
            deadline=session.deadline,
            locks=session.locks,
        )

    def task_group_context(
        self,
        session: Session,
        *,
        concurrency: int,
        max_in_flight: int,
        order_by: OrderBy | None,
        sends_dead_letters: bool,
    ) -> RunnerContext:
        """The options of a task group. Raises ConfigError."""
        from asyncrevoke.handlers.execution.runner_context import RunnerContext

        most = self._config.max_in_flight
        if not 1 <= max_in_flight <= most:
            raise ConfigError(
                f"max_in_flight={max_in_flight}: use 1 to {most}, the consumer's max_in_flight"
            )
        if concurrency < 1:
            raise ConfigError(f"concurrency={concurrency}: at least 1")
        return RunnerContext(
            concurrency=concurrency,
            max_in_flight=max_in_flight,
            log=session.application_log,
            order_by=order_by,
            null_keys=self._config.null_keys,
            dead_letters=self._dead_letters(session) if sends_dead_letters else None,
            transactions=self.transactions,
            observers=session.observers,
            recorder=session.recorder,
            deadline=ShutdownDeadline(session.now, self._config.close_timeout),
        )

    def _dead_letters(self, session: EnteredSession) -> DeadLetterProducer:
        """What writes dead letters and records of retry topics, unless transactions do."""
        from asyncrevoke.handlers.dead_letters.producer import DeadLetterProducer

        return DeadLetterProducer(partial(self.open_producer, session))

    def _open_results(self, session: EnteredSession) -> Callable[[], RecordProducer]:
        """A function that returns the producer of results."""
        transactions = self.transactions
        if transactions is not None:
            return lambda: transactions.producer
        return partial(self.open_producer, session)

    def open_producer(self, session: EnteredSession) -> RecordProducer:
        """Return the producer of results and dead letters, made at the first call.

        Raises ConsumerClosedError after :meth:`close_producer`.
        """
        if self._producer is None:
            if session is self._closed_session:
                raise ConsumerClosedError("the consumer is closed: nothing more is published")
            from asyncrevoke.client.producing.record_producer import RecordProducer

            observers = session.observers
            counts = observers is not None and observers.wants_any(
                "on_results_published", "on_publish_failed"
            )
            self._producer = RecordProducer(
                session.config,
                session.requests,
                session.bootstrap,
                session.wall_clock,
                observers if counts else None,
                None if observers is None else observers.tracer,
                compress_in_thread=session.uses_threads,
            )
            self._producer.log_to(session.application_log, self.output_topics())
        return self._producer

    async def close_producer(self, session: EnteredSession) -> None:
        """Close the producer. Results that are not acknowledged fail. Raises PublishError if no
        call has received the error of a published record."""
        self._closed_session = session
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.aclose()
        if session.shutdown.publisher is not None:
            session.shutdown.publisher.raise_failures()

    def _lifespans(self, session: Session) -> PartitionLifespans | None:
        if self._open_lifespan is None:
            return None
        from asyncrevoke.handlers.lifespans.partition_lifespans import PartitionLifespans

        lifespans = PartitionLifespans(
            self._open_lifespan,
            session,
            self._config,
            session.application_log,
            session.deadline,
            session.membership,
        )
        session.lifespans.run_by(lifespans)
        return lifespans

    def _group_settings(self, session: ConsumerSession) -> AbstractAsyncContextManager[None]:
        """Inside, options of a share group are asked for."""
        if session.locks is None:
            return nullcontext()
        from asyncrevoke.handlers.execution.share_group_settings import group_settings

        return group_settings(session.locks)

    def open_resources(self) -> AbstractAsyncContextManager[object]:
        """Inside, ``resources`` are open. Raises ConfigError."""
        resources = self._resources
        if resources is None:
            return nullcontext()
        manager = resources()
        if not isinstance(cast("object", manager), AbstractAsyncContextManager):
            raise ConfigError(
                f"resources={_name_of(resources)} returned {shown_option(manager)}, which is no "
                "async context manager: use @asynccontextmanager"
            )
        return manager

    def open_worker_resources(
        self, state: object, log: Log, deadline: ShutdownDeadline | None = None
    ) -> AbstractAsyncContextManager[WorkerResources | None]:
        """Inside, calls may open ``worker_resources`` with what ``resources`` has opened."""
        if self._worker_resources is None:
            return nullcontext()
        from asyncrevoke.handlers.execution.worker_resources import WorkerResources

        return WorkerResources(self._worker_resources, state, log, deadline)


def _check_resources(given: object) -> OpenResources | None:
    if given is None:
        return None
    if isinstance(given, AbstractAsyncContextManager):
        manager = cast("AbstractAsyncContextManager[object]", given)
        return lambda: manager
    if not callable(given) or inspect.isasyncgenfunction(given):
        raise ConfigError(
            f"resources={shown_option(given)} is neither an async context manager nor a function "
            "that returns one: use @asynccontextmanager"
        )
    try:
        inspect.signature(given).bind()
    except TypeError as error:
        raise ConfigError(
            f"resources={_name_of(given)} is called without arguments ({error}): call it, "
            f"resources={_name_of(given)}(...)"
        ) from error
    except ValueError:
        pass  # a built-in without a signature
    return cast("OpenResources", given)


def _name_of(given: object) -> str:
    return str(getattr(given, "__name__", "it"))


def _check_decoder(decoder: HandlerDecoder | None) -> HandlerDecoder | None:
    if decoder is not None:
        from asyncrevoke.handlers.decoding.decoders import check_decoder

        check_decoder(decoder)
    return decoder


def _check_worker_resources(given: OpenWorkerResource | None) -> OpenWorkerResource | None:
    if given is not None:
        from asyncrevoke.handlers.execution.worker_resources import check_worker_resources

        check_worker_resources(given)
    return given
