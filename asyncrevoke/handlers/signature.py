"""Checks a handler's signature, and compiles it to a call that takes a record."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

from asyncrevoke.errors import ConfigError
from asyncrevoke.handlers.decoding import Decoder, decoder_for, name_of
from asyncrevoke.model import Record

HandlerFunction: TypeAlias = Callable[..., Awaitable[object]]


def handler_name(function: object) -> str:
    """How logs and errors name a handler: its module and qualified name."""
    inner = function.func if isinstance(function, functools.partial) else function
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return f"{getattr(inner, '__module__', '?')}.{name}".replace(".<locals>", "")


def _refuse_sync(function: object, name: str) -> None:
    if not callable(function):
        raise ConfigError(f"a handler is an async function, not {function!r}")
    inner = function.func if isinstance(function, functools.partial) else function
    method = getattr(inner, "__call__", None)  # noqa: B004 - the method itself is looked at
    if inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(method):
        return
    if inspect.isasyncgenfunction(inner) or inspect.isasyncgenfunction(method):
        raise ConfigError(f"{name} yields: a handler is an async function without yield")
    if isinstance(inner, type):
        raise ConfigError(f"{name} is a class: register an async function, or an instance of it")
    raise ConfigError(
        f"{name} is a sync function and would block every other handler: write `async def`, and "
        "call what blocks with `await anyio.to_thread.run_sync(function, value)` (40 threads at "
        "once, unless you give it a limiter of your own)"
    )


def compile_call(function: HandlerFunction, name: str) -> Callable[[Record], Awaitable[object]]:
    """Check a function and return what decodes a record's value and calls the function with it.

    ConfigError, in a sentence that names ``name`` and the fix, for what cannot be a handler.
    """
    _refuse_sync(function, name)
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        raise ConfigError(f"{name} takes no parameter: the first one receives the value")
    first, *others = parameters
    if first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        raise ConfigError(
            f"the first parameter of {name} receives the value: make it a plain parameter, "
            f"not *{first.name}"
        )
    decode = decoder_for(_annotation(function, first, name), f"parameter {first.name} of {name}")
    positional = 0
    keywords: list[str] = []
    gap = False  # a parameter left at its default: what follows goes by name
    for parameter in others:
        if not _receives_record(function, parameter, name):
            gap = True
        elif parameter.kind is parameter.KEYWORD_ONLY or gap:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise ConfigError(f"parameter {parameter.name} of {name} cannot be given by name")
            keywords.append(parameter.name)
        else:
            positional += 1
    return _bind(function, decode, positional, tuple(keywords))


def _bind(
    function: HandlerFunction, decode: Decoder, positional: int, keywords: tuple[str, ...]
) -> Callable[[Record], Awaitable[object]]:
    if keywords or positional > 1:

        def call_with_records(record: Record) -> Awaitable[object]:
            named = dict.fromkeys(keywords, record)
            return function(decode(record), *(record,) * positional, **named)

        return call_with_records
    if positional:
        return lambda record: function(decode(record), record)
    return lambda record: function(decode(record))


def _receives_record(function: HandlerFunction, parameter: inspect.Parameter, name: str) -> bool:
    """Whether a further parameter is given the record; False if it is left at its default."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return False
    has_default = parameter.default is not parameter.empty
    if parameter.annotation is parameter.empty and has_default:
        return False
    annotation = _annotation(function, parameter, name)
    if annotation is Record:
        return True
    if has_default:
        return False
    raise ConfigError(
        f"parameter {parameter.name} of {name} is annotated {name_of(annotation)}: beside the "
        "value, a handler receives only the record (annotate it Record), so give it a default"
    )


def _annotation(function: object, parameter: inspect.Parameter, name: str) -> object:
    written: object = parameter.annotation
    if written is parameter.empty:
        raise ConfigError(
            f"parameter {parameter.name} of {name} has no annotation, which says what it receives: "
            f"write `{parameter.name}: bytes`, a dataclass, ..., or `{parameter.name}: Record`"
        )
    inner: object = function.func if isinstance(function, functools.partial) else function
    inner = inspect.unwrap(cast("Callable[..., object]", inner))
    if not hasattr(inner, "__globals__"):
        inner = cast("object", inspect.getattr_static(inner, "__call__"))
    names = cast("dict[str, object]", getattr(inner, "__globals__", {}))
    holder = type("_Holder", (), {"__annotations__": {parameter.name: written}})
    try:
        hints = typing.get_type_hints(holder, globalns=names, localns=names, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ConfigError(
            f"parameter {parameter.name} of {name} is annotated {written!r}, which cannot be "
            f"resolved at run time ({error}): import the name outside `if TYPE_CHECKING:`, and "
            "define the class at module level"
        ) from error
    return cast("object", hints[parameter.name])
