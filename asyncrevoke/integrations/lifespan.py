"""The lifespan of an ASGI application with several consumers."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Literal

from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

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
