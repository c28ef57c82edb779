"""Checks the return annotation of a handler against its ``publish_to``."""

from __future__ import annotations

import functools
import inspect
import typing
from typing import TYPE_CHECKING, cast

from asyncrevoke.client.config.annotations import members, the_type
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.handlers.decoding.decoders import annotation_name
from asyncrevoke.handlers.policy.handler_function import (
    UNRESOLVED,
    innermost,
    resolved_annotation,
    yields,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable

    from asyncrevoke.handlers.policy.handler_function import HandlerFunction
    from asyncrevoke.handlers.policy.registration import Handler

_NOTHING = (None, type(None), typing.NoReturn, typing.Never)
# Return annotations that do not need ``publish_to``.
_UNPUBLISHED = (*_NOTHING, object, typing.Any)


def check_results(function: HandlerFunction, name: str, publish_to: str | None) -> None:
    """Raise ConfigError if a handler with ``publish_to`` is annotated to return nothing, or if the
    result of a handler without it would be lost.

    Functions without a return annotation pass, and so do annotations that cannot be resolved yet:
    check these again when the consumer is entered.
    """
    annotation = return_annotation(function)
    if publish_to is None:
        if annotation is not inspect.Signature.empty and the_type(annotation) not in _UNPUBLISHED:
            raise ConfigError(
                f"{name} returns {annotation_name(annotation)}, and publishes it nowhere: give "
                "the handler publish_to=..., annotate it `-> None`, or give publish_to=None if "
                "only replays keep its results"
            )
    elif the_type(annotation) in _NOTHING:
        raise ConfigError(
            f"{name} has publish_to, and is annotated `-> None`: annotate what it returns, or "
            "leave out publish_to"
        )


def lacks_return_annotation(handler: Handler) -> bool:
    """Whether the handler has no return annotation."""
    return return_annotation(handler.function) is inspect.Signature.empty


def collecting(function: HandlerFunction) -> HandlerFunction:
    """Turn an async generator into an async function that returns a list; return others as is."""
    if not yields(function):
        return function
    generate = cast("Callable[..., AsyncIterable[object]]", function)

    @functools.wraps(function)
    async def collect(*args: object, **named: object) -> object:
        return [result async for result in generate(*args, **named)]

    return collect


def return_annotation(function: object) -> object:
    """What a function is annotated to return; ``inspect.Signature.empty`` if that is not known."""
    inner: object = inspect.unwrap(cast("Callable[..., object]", innermost(function)))
    try:
        signature = inspect.signature(cast("Callable[..., object]", inner))
    except (TypeError, ValueError):
        return inspect.Signature.empty
    written: object = signature.return_annotation
    try:
        annotation = resolved_annotation(function, written) if isinstance(written, str) else written
        members(annotation)  # evaluates what has a name
    except UNRESOLVED:
        return inspect.Signature.empty
    return annotation
