"""What users write."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

HandlerFunction: TypeAlias = Callable[..., Awaitable[object]]


def innermost(function: object) -> object:
    """The function that a partial calls, or the function itself."""
    return function.func if isinstance(function, functools.partial) else function


def is_async(function: object) -> bool:
    """Whether a function is an async one, or an object that is called as one."""
    return any(map(inspect.iscoroutinefunction, _called(function)))


def yields(function: object) -> bool:
    """Whether a function is an async generator, or an object that is called as one."""
    return any(map(inspect.isasyncgenfunction, _called(function)))


def _called(function: object) -> tuple[object, object]:
    inner = innermost(function)
    return inner, getattr(inner, "__call__", None)  # noqa: B004 - the method itself is looked at
