"""Inspects the functions that users register."""

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

HandlerFunction: TypeAlias = Callable[..., Awaitable[object]]
# The errors of resolved_annotation().
UNRESOLVED = (NameError, AttributeError, SyntaxError, TypeError)


def innermost(function: object) -> object:
    """The function that a partial calls, or the function itself."""
    return function.func if isinstance(function, functools.partial) else function


def is_async(function: object) -> bool:
    """Whether a function, or the ``__call__`` method of an object, is async."""
    return any(map(inspect.iscoroutinefunction, _called(function)))


def yields(function: object) -> bool:
    """Whether a function, or the ``__call__`` method of an object, is an async generator."""
    return any(map(inspect.isasyncgenfunction, _called(function)))


def resolved_annotation(function: object, written: object) -> object:
    """An annotation of a function, evaluated if it is a string.

    Raises an error of ``UNRESOLVED`` if a name in it is unknown at run time.
    """
    inner: object = inspect.unwrap(cast("Callable[..., object]", innermost(function)))
    if not hasattr(inner, "__globals__"):
        inner = cast("object", inspect.getattr_static(inner, "__call__"))
    names = cast("dict[str, object]", getattr(inner, "__globals__", {}))
    holder = type("_Holder", (), {"__annotations__": {"of": written}})
    hints = typing.get_type_hints(holder, globalns=names, localns=names, include_extras=True)
    return cast("object", hints["of"])


def _called(function: object) -> tuple[object, object]:
    inner = innermost(function)
    return inner, getattr(inner, "__call__", None)  # noqa: B004 - the method itself is inspected
