"""A handler runner at work on a scripted source, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
from typing import TYPE_CHECKING, Any, cast

from unit.handlers.scripted_source import LogLines, ScriptedSource

from asyncrevoke.client.config.inherit import INHERIT
from asyncrevoke.client.model import Record  # noqa: TC001 - read at run time
from asyncrevoke.handlers.execution.runner_context import RunnerContext
from asyncrevoke.handlers.registry import Router
from asyncrevoke.handlers.runner import HandlerRunner

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from asyncrevoke.client.config import NullKeys, OrderBy
    from asyncrevoke.client.config.inherit import Inherit
    from asyncrevoke.client.producing.record_producer import RecordProducer
    from asyncrevoke.client.runtime.hooks.observers import Observers
    from asyncrevoke.client.runtime.hooks.recorders import SessionRecorder
    from asyncrevoke.handlers.dead_letters.producer import DeadLetterProducer
    from asyncrevoke.handlers.policy.handler_function import HandlerFunction


class ScriptedClock:
    """Time stands still until the test lets some pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = itertools.count()
        self._due: dict[int, tuple[float, Callable[[], object]]] = {}

    @property
    def timers(self) -> list[float]:
        """When the calls are due that are not cancelled."""
        return sorted(at for at, _ in self._due.values())

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object], /) -> ScriptedTimer:
        number = next(self._numbers)
        self._due[number] = self.now + delay, callback
        return ScriptedTimer(self._due, number)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._due:
            number, (at, callback) = min(self._due.items(), key=lambda item: (item[1][0], item[0]))
            if at > end:
                break
            del self._due[number]
            self.now = max(self.now, at)
            callback()
        self.now = end


class ScriptedTimer:
    def __init__(self, due: dict[int, tuple[float, Callable[[], object]]], number: int) -> None:
        self._due = due
        self._number = number

    def cancel(self) -> None:
        self._due.pop(self._number, None)


class RunningHandlers:
    """A runner at work on a scripted source; ``options`` are those of the handler.

    A handler that takes nothing but a Record may be any callable.
    """

    def __init__(
        self,
        handler: Callable[..., Any],
        *,
        concurrency: int = 64,
        order_by: OrderBy | None = "key",
        null_keys: NullKeys = "ordered",
        state: object = None,
        dead_letters: DeadLetterProducer | None = None,
        handler_concurrency: int | None = None,
        handler_order_by: OrderBy | Inherit | None = INHERIT,
        observers: Observers | None = None,
        recorder: SessionRecorder | None = None,
        open_producer: Callable[[], RecordProducer] | None = None,
        **options: Any,
    ) -> None:
        async def handle(record: Record) -> None:
            await handler(record)

        as_it_is = (
            inspect.iscoroutinefunction(handler)
            or inspect.isasyncgenfunction(handler)
            or "run_in" in options
        )
        registered: HandlerFunction = handler if as_it_is else handle
        self.source = ScriptedSource()
        self.log = LogLines()
        self.clock = ScriptedClock()
        router = Router()
        router.handler(
            "orders", concurrency=handler_concurrency, order_by=handler_order_by, **options
        )(registered)
        context = RunnerContext(
            concurrency=concurrency,
            log=self.log,
            order_by=order_by,
            null_keys=null_keys,
            state=state,
            clock=cast("asyncio.AbstractEventLoop", self.clock),
            random=lambda: 0.5,
            dead_letters=dead_letters,
            observers=observers,
            recorder=recorder,
            open_producer=open_producer,
        )
        self.runner = HandlerRunner(self.source, router, context)
        self.task = asyncio.get_running_loop().create_task(self.runner.run())

    async def stop(self) -> None:
        """The consumer closes: the runner ends when all has drained."""
        self.source.stop()
        async with asyncio.timeout(5):
            await self.task

    async def failure(self) -> BaseException:
        """The runner ends by itself with this error."""
        done, _ = await asyncio.wait([self.task], timeout=5)
        assert done, "the runner has not ended"
        error = self.task.exception()
        assert error is not None
        return error


def is_pool(task: asyncio.Task[object]) -> bool:
    """Whether anyio ends its worker processes by this task, which ends with the event loop."""
    return "process_pool" in repr(task.get_coro())


@contextlib.asynccontextmanager
async def running(handler: Callable[..., Any], **options: Any) -> AsyncGenerator[RunningHandlers]:
    run = RunningHandlers(handler, **options)
    try:
        yield run
    finally:
        run.task.cancel()
        await asyncio.wait([run.task])
    mine = asyncio.current_task()
    assert [task for task in asyncio.all_tasks() if task is not mine and not is_pool(task)] == []
    assert run.clock.timers == [], "a timer is left behind"
    backlog = run.runner._pipeline.backlog
    assert backlog.attempts == {}, "a record that has ended is remembered"
    assert len(backlog._retries) == 0
