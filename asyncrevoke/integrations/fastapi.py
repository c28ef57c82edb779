"""The lifespan and the routes of a FastAPI application with consumers."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.integrations.starlette import dashboard_routes, health_routes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from asyncrevoke.client.producing.publishing.producer import Producer
    from asyncrevoke.consumer import Consumer


def consumer_lifespan(
    *consumers: Consumer, on_failure: Literal["terminate", "report"] = "terminate"
) -> Callable[[object], AbstractAsyncContextManager[None]]:
    """The lifespan of an application: ``FastAPI(lifespan=consumer_lifespan(billing, archive))``.

    Enters the consumers in order, each as ``Consumer.lifespan`` does. At the end all consumers stop
    at once, so closing takes at most the longest ``close_timeout``; the last consumer is closed
    first. Raises ConfigError without a consumer.
    """
    if not consumers:
        raise ConfigError("there is no consumer to enter: consumer_lifespan(consumer)")

    @asynccontextmanager
    async def lifespan(app: object) -> AsyncGenerator[None]:
        async with AsyncExitStack() as entered:
            for consumer in consumers:
                await entered.enter_async_context(consumer.lifespan(app, on_failure=on_failure))
            try:
                yield
            finally:
                for consumer in consumers:
                    consumer.stop()

    return lifespan


__all__ = ["consumer_lifespan", "dashboard_router", "health_router"]


def health_router(
    *consumers: Consumer,
    max_handler_age: float | None = None,
    producers: Sequence[Producer] = (),
) -> APIRouter:
    """``GET /livez`` and ``GET /readyz``: 200, or 503 with the reasons; not in the OpenAPI schema.

    All consumers and ``producers`` have to be live, or ready; see ``Consumer.probe`` and
    ``Producer.probe``. A handler without a
    ``max_handler_time`` may run for ``max_handler_age`` seconds, by default for ever. The responses
    name groups, states and partitions, and quote no error. Raises ConfigError.
    """
    return APIRouter(
        routes=list(health_routes(*consumers, max_handler_age=max_handler_age, producers=producers))
    )


def dashboard_router(
    *consumers: Consumer, prefix: str = "/dashboard", dead_letter_values: bool = False
) -> APIRouter:
    """``GET /dashboard/``: a live page of the consumers' partitions.

    ``docs/how-to/operating/dashboard.md`` describes it.

    Call this before the consumers are entered, because it observes them. The page only reads. It
    shows topics, handlers' names, client ids and the handlers' dead letter topics to every client
    that can reach it, and with ``dead_letter_values`` dead letters with key, headers, value and
    error message: the application has to authenticate clients. Raises ConfigError and
    IllegalStateError.
    """
    return APIRouter(
        routes=list(
            dashboard_routes(*consumers, prefix=prefix, dead_letter_values=dead_letter_values)
        )
    )
