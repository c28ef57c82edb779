"""The handlers of a replay, opened with the resources that their calls need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from asyncrevoke.client.config.inherit import INHERIT, Inherit
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.replays.errors import ReplayError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.producing.record_producer import RecordProducer
    from asyncrevoke.consumer import Consumer
    from asyncrevoke.handlers.execution.runner_context import RunnerContext
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.registry import Router

Errors: TypeAlias = Literal["record", "policy", "fail"]
ReplayOrder: TypeAlias = Literal["key", "partition"] | Inherit | None


class Target(NamedTuple):
    """The handlers of a replay, and the options to open them.

    ``bootstrap_servers`` and ``concurrency`` are the consumer's if None, ``order_by`` if INHERIT.
    """

    name: str
    errors: Errors = "record"
    bootstrap_servers: str | None = None
    concurrency: int | None = None
    order_by: ReplayOrder = INHERIT

    @property
    def failed_as(self) -> Literal["error", "skipped"]:
        """The outcome of a record that failed and was written to no other topic."""
        return "error" if self.errors == "record" else "skipped"


@dataclass(frozen=True, slots=True)
class OpenedHandlers:
    """Handlers, and how their calls are run. Each range has its own log and call recorder.

    ``registered`` has the handlers as the consumer has them, with their dead letter topics.
    """

    config: ConsumerConfig
    registered: Router
    router: Router
    context: RunnerContext


async def open_handlers(
    consumer: Consumer,
    config: ConsumerConfig,
    target: Target,
    stack: AsyncExitStack,
    producer: Callable[[], RecordProducer] | None,
    *,
    drops_results: bool = False,
) -> OpenedHandlers:
    """Open the handlers of ``consumer``, which ``target`` names, until ``stack`` is closed.

    ``producer`` writes dead letters and records of retry topics; ``errors="policy"`` requires it.
    With ``drops_results`` no ``encoder`` of a handler is called. Raises ReplayError and
    ConfigError.
    """
    from asyncrevoke.handlers.dead_letters.producer import DeadLetterProducer
    from asyncrevoke.handlers.execution.runner_context import RunnerContext
    from asyncrevoke.handlers.registry import without_encoder

    registered = checked_router(consumer, target.name)
    router = with_errors(registered, target.errors)
    if drops_results:
        router = router.map_handlers(without_encoder)
    log = EventLog().of_application()
    host = consumer.handler_host
    state = await stack.enter_async_context(host.open_resources())
    worker_resources = await stack.enter_async_context(host.open_worker_resources(state, log))
    concurrency = target.concurrency or config.concurrency
    context = RunnerContext(
        concurrency=concurrency,
        log=log,
        order_by=config.order_by if target.order_by is INHERIT else target.order_by,
        null_keys=config.null_keys,
        max_in_flight=max(config.max_in_flight, 16 * concurrency),
        state=state,
        worker_resources=worker_resources,
        dead_letters=None if producer is None else DeadLetterProducer(producer),
        holds_unwritten=False,
    )
    return OpenedHandlers(config, registered, router, context)


def checked_router(consumer: Consumer, name: str) -> Router:
    """The consumer's router. Raises ReplayError without handlers, or with a lifespan."""
    router = consumer.handler_host.router
    if router is None or not router.handlers:
        raise ReplayError(
            f"{name} has no handlers, so there is nothing to replay: register one with "
            "@consumer.handler(topic)"
        )
    if consumer.handler_host.has_lifespans:
        raise ReplayError(
            f"{name} has a partition_lifespan, which a replay does not enter: replay another "
            "consumer with these handlers, for example one that includes their Router"
        )
    return router


def with_errors(router: Router, errors: Errors) -> Router:
    """A router with ``errors`` applied to its handlers. Raises ConfigError for an unknown value.

    ``"record"``: the replay continues after an error, and writes to no topic. ``"fail"``: the first
    error fails the replay. ``"policy"``: errors are handled as in a live consumer.
    """
    if errors == "policy":
        return router
    if errors not in ("record", "fail"):
        raise ConfigError(f'errors={shown_option(errors)}: use "record", "policy" or "fail"')

    def change(handler: Handler) -> Handler:
        on_error: Literal["skip", "stop"] = "skip" if errors == "record" else "stop"
        return handler._replace(dead_letter=None, retry_topic=None, on_error=on_error)

    return router.map_handlers(change)
