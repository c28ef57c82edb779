"""Two handlers, the first of which has limits."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from unit.handlers.scripted_runner import ScriptedClock
from unit.handlers.scripted_source import (
    ORDERS,
    HeldWork,
    LogLines,
    ScriptedSource,
    record,
)

from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.handlers.execution.runner_context import RunnerContext
from asyncrevoke.handlers.registry import Router
from asyncrevoke.handlers.runner import HandlerRunner

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


CLICKS = TopicPartition("clicks", 0)


def records(count: int, partition: TopicPartition = ORDERS, start: int = 0) -> list[Record]:
    """Each with a key of its own."""
    return [record(start + i, b"%d" % (start + i), partition=partition) for i in range(count)]


class Two:
    """A runner with a limited handler of orders and a free one of clicks."""

    def __init__(self, concurrency: int, limits: dict[str, Any]) -> None:
        self.source, self.log, self.clock = ScriptedSource(), LogLines(), ScriptedClock()
        self.orders, self.clicks = HeldWork(), HeldWork()
        router = Router()

        @router.handler("orders", **limits)
        async def bill(of: Record) -> None:
            await self.orders(of)

        @router.handler("clicks")
        async def count(of: Record) -> None:
            await self.clicks(of)

        del bill, count
        context = RunnerContext(
            concurrency=concurrency,
            log=self.log,
            clock=cast("asyncio.AbstractEventLoop", self.clock),
        )
        self.runner = HandlerRunner(self.source, router, context)


@asynccontextmanager
async def two(concurrency: int, limits: dict[str, Any]) -> AsyncGenerator[Two]:
    both = Two(concurrency, limits)
    task = asyncio.get_running_loop().create_task(both.runner.run())
    try:
        yield both
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert both.clock.timers == []
