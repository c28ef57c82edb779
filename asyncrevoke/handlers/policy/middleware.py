"""Middleware: functions around each call of a handler."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.handlers.policy.context import HandlerContext
from asyncrevoke.handlers.policy.signature import handler_name

# Calls the next middleware, or the handler. Awaiting it raises what they raise.
CallNext: TypeAlias = Callable[[], Awaitable[object]]
Middleware: TypeAlias = Callable[[HandlerContext[Any, Any], CallNext], Awaitable[object]]
M = TypeVar("M", bound=Middleware)

# All middleware of a handler as one function.
MiddlewareChain: TypeAlias = Callable[[HandlerContext, CallNext], Awaitable[object]]


def compose_middleware(middleware: Sequence[Middleware]) -> MiddlewareChain | None:
    """Return one function that calls all middleware, the first outermost; None if there is none."""
    around: MiddlewareChain | None = None
    for function in reversed(middleware):
        around = function if around is None else _outside(function, around)
    return around


def _outside(function: Middleware, inner: MiddlewareChain) -> MiddlewareChain:
    return lambda context, call: function(context, partial(inner, context, call))


def check_middleware(function: object) -> None:
    """Raise ConfigError, with the fix, for a value that cannot be middleware."""
    shape = "async def timing(context: HandlerContext, call_next: CallNext) -> None"
    if not callable(function):
        raise ConfigError(f"middleware is an async function, not {shown_option(function)}: {shape}")
    name = handler_name(function)
    method = getattr(function, "__call__", None)  # noqa: B004 - the method itself is needed
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)):
        raise ConfigError(
            f"{name} is not an async function, so it cannot be middleware: write {shape}"
        )
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise ConfigError(
            f"{name} is called with a context and call_next, and takes other parameters ({error}): "
            f"write {shape}"
        ) from error
