"""Checks what a handler returns against where it publishes."""

from __future__ import annotations

import functools
import inspect
import typing
from typing import TYPE_CHECKING, cast

from asyncrevoke.errors import ConfigError
from asyncrevoke.handlers.decoding.decoders import annotation_name
from asyncrevoke.handlers.policy.handler_function import innermost, yields

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable

    from asyncrevoke.handlers.policy.handler_function import HandlerFunction
    from asyncrevoke.handlers.policy.registration import Handler

_NOTHING = (None, type(None), typing.NoReturn, typing.Never)
# Annotations of functions that are made for any purpose.
_UNSAID = (*_NOTHING, object, typing.Any)


def check_results(function: HandlerFunction, name: str, publish_to: str | None) -> None:
    """ConfigError for a handler with ``publish_to`` that is annotated to return nothing, and for
    one without it that is annotated to return something, which would be lost.

    Functions without a return annotation pass, and so do annotations that cannot be resolved yet:
    those are to be checked again when the consumer is entered.
    """
    annotation = _return_annotation(function)
    if publish_to is None:
        if annotation is not inspect.Signature.empty and annotation not in _UNSAID:
            raise ConfigError(
                f"{name} returns {annotation_name(annotation)}, and publishes it nowhere: give "
                "the handler publish_to=..., or annotate it `-> None`"
            )
    elif annotation in _NOTHING:
        raise ConfigError(
            f"{name} has publish_to, and is annotated `-> None`: annotate what it returns, or "
            "leave out publish_to"
        )


def returns_unsaid(handler: Handler) -> bool:
    """Whether the handler has no return annotation."""
    return _return_annotation(handler.function) is inspect.Signature.empty


def collecting(function: HandlerFunction) -> HandlerFunction:
    """An async generator as an async function that returns a list; others unchanged."""
    if not yields(function):
        return function
    generate = cast("Callable[..., AsyncIterable[object]]", function)

    @functools.wraps(function)
    async def collect(*args: object, **named: object) -> object:
        return [each async for each in generate(*args, **named)]

    return collect


def _return_annotation(function: object) -> object:
    inner: object = inspect.unwrap(cast("Callable[..., object]", innermost(function)))
    try:
        signature = inspect.signature(cast("Callable[..., object]", inner))
    except (TypeError, ValueError):
        return inspect.Signature.empty
    written: object = signature.return_annotation
    if not isinstance(written, str):
        return written
    if not hasattr(inner, "__globals__"):
        inner = cast("object", inspect.getattr_static(inner, "__call__"))
    names = cast("dict[str, object]", getattr(inner, "__globals__", {}))
    holder = type("_Holder", (), {"__annotations__": {"of": written}})
    try:
        hints = typing.get_type_hints(holder, globalns=names, localns=names)
    except (NameError, AttributeError, SyntaxError, TypeError):
        return inspect.Signature.empty
    return cast("object", hints["of"])
