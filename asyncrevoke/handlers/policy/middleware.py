"""What goes around each call of a handler."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from asyncrevoke.errors import ConfigError
from asyncrevoke.handlers.policy.context import HandlerContext
from asyncrevoke.handlers.policy.signature import handler_name

# Calls the next middleware, or the handler; what they raise is raised from awaiting it.
CallNext: TypeAlias = Callable[[], Awaitable[object]]
Middleware: TypeAlias = Callable[[HandlerContext[Any, Any], CallNext], Awaitable[object]]
M = TypeVar("M", bound=Middleware)

# A chain of middleware: takes the context and the handler's call.
Around: TypeAlias = Callable[[HandlerContext, CallNext], Awaitable[object]]


def chain(middleware: Sequence[Middleware]) -> Around | None:
    """One function for all of them, the first one outermost; None if there are none."""
    around: Around | None = None
    for function in reversed(middleware):
        around = function if around is None else _outside(function, around)
    return around


def _outside(function: Middleware, inner: Around) -> Around:
    return lambda context, call: function(context, partial(inner, context, call))


def check_middleware(function: object) -> None:
    """ConfigError, in a sentence that names the fix, for what cannot be middleware."""
    shape = "async def timing(context: HandlerContext, call_next: CallNext) -> None"
    if not callable(function):
        raise ConfigError(f"middleware is an async function, not {function!r}: {shape}")
    name = handler_name(function)
    method = getattr(function, "__call__", None)  # noqa: B004 - the method itself is looked at
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)):
        raise ConfigError(f"{name} is no async function, so it cannot be middleware: write {shape}")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise ConfigError(
            f"{name} takes other parameters than middleware is given ({error}): write {shape}"
        ) from error
