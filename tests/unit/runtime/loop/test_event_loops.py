"""Trio is rejected with what to do instead, wherever a consumer is entered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from asyncrevoke import Consumer, IllegalStateError
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def billing() -> Consumer:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders")
    async def bill(order: bytes) -> None: ...

    return consumer


async def enter() -> None:
    async with billing():
        raise AssertionError("it was entered")


async def run() -> None:
    await billing().run()


async def lifespan() -> None:
    async with billing().lifespan():
        raise AssertionError("it was entered")


async def under_test() -> None:
    async with TestConsumer(billing()):
        raise AssertionError("it was entered")


@pytest.mark.parametrize("use", [enter, run, lifespan, under_test], ids=lambda use: use.__name__)
def test_under_trio_a_consumer_says_which_backend_to_use(
    use: Callable[[], Awaitable[None]],
) -> None:
    with pytest.raises(IllegalStateError, match=r'anyio\.run\(main, backend="asyncio"\)'):
        anyio.run(use, backend="trio")
