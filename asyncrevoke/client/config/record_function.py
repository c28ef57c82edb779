"""Checks of options that are functions of a record."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from asyncrevoke.client.config.annotations import members
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Callable


def check_record_function(
    option: str, function: object, field: str, instead: str | None = None
) -> None:
    """Raise ConfigError, with the fix, unless ``function`` can be called with a record. Most such
    functions use this ``field``; ``instead`` is the fix for an async function, None allows one."""
    if not callable(function):
        raise ConfigError(
            f"{option}={shown_option(function)} cannot be called: use a function of the record, as "
            f"in {option}=lambda record: parse(record.{field})"
        )
    name = function_name(function)
    method: object = getattr(function, "__call__", None)  # noqa: B004 - the method itself
    for callee in (function, method):
        if inspect.isasyncgenfunction(callee) and instead is None:
            raise ConfigError(f"{option}={name} yields: return the {field}")
        if instead is None:
            continue
        if inspect.iscoroutinefunction(callee) or inspect.isasyncgenfunction(callee):
            raise ConfigError(f"{option}={name} is async, and {option} is sync: {instead}")
    try:
        signature = _signature(function)
    except (TypeError, ValueError):  # some that are written in C have none
        return
    fix = f"wrap it, as in {option}=lambda record: {name}(record.{field}, ...)"
    try:
        bound = signature.bind(None)
    except TypeError as error:
        raise ConfigError(
            f"{option} is called with the Record alone, and {name}{signature} takes something "
            f"else: {fix}"
        ) from error
    hint: object = signature.parameters[next(iter(bound.arguments))].annotation
    if _takes_bytes(hint):
        raise ConfigError(
            f"{option} is called with the whole Record, and {name}{signature} takes bytes: {fix}"
        )


def _takes_bytes(hint: object) -> bool:
    try:
        return bytes in members(hint)
    except (NameError, TypeError):  # a name for type checkers only
        return False


def function_name(function: object) -> str:
    """The name of a function in errors."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _signature(function: Callable[..., object]) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, AttributeError, SyntaxError):  # names for type checkers only
        return inspect.signature(function)
