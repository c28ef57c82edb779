"""Runs a sync function outside the event loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import sys
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

import anyio
import anyio.to_process
import anyio.to_thread

from asyncrevoke.client.errors import HandlerProcessError
from asyncrevoke.client.runtime.loop.entering import UnguardedScriptError
from asyncrevoke.handlers.blocking.pickled_call import (
    listed,
    pickle_call,
    result_of,
    run_in_interpreter,
    run_in_process,
)
from asyncrevoke.handlers.blocking.run_in import default_calls
from asyncrevoke.handlers.policy.handler_function import innermost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from asyncrevoke.handlers.policy.registration import RunIn

R = TypeVar("R")


class BlockingFunction:
    """An async function that calls a sync one in a thread, a process or an interpreter.

    Cancelling a call in a process kills the process, and the call ends at once. A call in a thread
    or an interpreter cannot be stopped: the cancellation takes effect when it has returned, and its
    record stays in flight until then.
    """

    def __init__(
        self, function: Callable[..., object], name: str, run_in: RunIn, calls: int | None
    ) -> None:
        _describe(self, function)
        self._given = function
        yields = inspect.isgeneratorfunction(innermost(function))
        self._function = functools.partial(listed, function) if yields else function
        self._name = name
        self._run_in = run_in
        self._calls = default_calls(run_in) if calls is None else calls
        # By the event loop that makes the calls.
        self._limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, anyio.CapacityLimiter]
        self._limiters = WeakKeyDictionary()

    async def __call__(self, *args: object, **named: object) -> object:
        """Call the function outside the event loop, and return its result."""
        if self._run_in == "process":
            return await self._in_process(args, named)
        if self._run_in == "interpreter":
            return await self._in_interpreter(args, named)
        call = functools.partial(self._function, *args, **named)
        return await _until_returned(anyio.to_thread.run_sync(call, limiter=self._limiter()))

    def inline(self) -> Callable[..., Awaitable[object]]:
        """An async function that calls the sync function in the event loop, and so blocks it."""
        function = self._function

        async def call(*args: object, **named: object) -> object:
            return function(*args, **named)

        _describe(call, self._given)
        return call

    async def _in_process(self, args: Sequence[object], named: dict[str, object]) -> object:
        call = pickle_call("process", self._name, self._function, args, named)
        try:
            result = await anyio.to_process.run_sync(
                run_in_process, self._name, call, cancellable=True, limiter=self._limiter()
            )
        except anyio.BrokenWorkerProcess as error:
            cause = error.__cause__
            if isinstance(cause, UnguardedScriptError):
                raise cause from None
            if error.args and cause is not None:  # anyio says no more about an end during a call
                raise HandlerProcessError(
                    f"the process for {self._name} could not start, or not import the script of "
                    f"this process: {type(cause).__name__}: {cause}"
                ) from error
            raise HandlerProcessError(
                f"the process that ran {self._name} ended during the call: it was killed, for "
                "example for its memory, or has crashed"
            ) from error
        return result_of(result)

    async def _in_interpreter(self, args: Sequence[object], named: dict[str, object]) -> object:
        from anyio import to_interpreter

        call = pickle_call("interpreter", self._name, self._function, args, named)
        result = await _until_returned(
            to_interpreter.run_sync(
                run_in_interpreter, list(sys.path), self._name, call, limiter=self._limiter()
            )
        )
        return result_of(result)

    def _limiter(self) -> anyio.CapacityLimiter:
        loop = asyncio.get_running_loop()
        limiter = self._limiters.get(loop)
        if limiter is None:
            limiter = anyio.CapacityLimiter(math.inf if self._calls is None else self._calls)
            self._limiters[loop] = limiter
        return limiter


async def _until_returned(call: Coroutine[object, object, R]) -> R:
    """Return the result of a call that cannot be stopped; a cancellation waits for its end."""
    task = asyncio.get_running_loop().create_task(_or_exit(call))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        result = task.result()
        if isinstance(result, _Exit):
            raise result.reason
        return result
    if not task.cancelled():
        task.exception()  # asyncio would warn of an exception that is not retrieved
    raise cancelled


class _Exit(NamedTuple):
    """The exception of a function that exits. A task that raises it would end the event loop."""

    reason: SystemExit | KeyboardInterrupt


async def _or_exit(call: Coroutine[object, object, R]) -> R | _Exit:
    try:
        return await call
    except (SystemExit, KeyboardInterrupt) as reason:
        return _Exit(reason)


def _describe(wrapper: object, function: Callable[..., object]) -> None:
    """Give a wrapper the name, the annotations and the signature of a function."""
    functools.update_wrapper(
        cast("Callable[..., object]", wrapper), cast("Callable[..., object]", innermost(function))
    )
    setattr(wrapper, "__signature__", inspect.signature(function))  # noqa: B010 - of any callable
