"""Dependencies of handlers, by fast-depends: an extra, loaded when a handler has some."""

from __future__ import annotations

import inspect
import sys
import typing
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from fast_depends.core import CallModel

    from asyncrevoke.handlers.policy.handler_function import HandlerFunction


def is_dependency(parameter: inspect.Parameter, annotation: object, name: str) -> bool:
    """Whether a parameter is given what a function returns that it names with ``Depends``.

    ConfigError for FastAPI's own ``Depends``, which is about requests.
    """
    marks: Iterable[object] = (parameter.default,)
    if typing.get_origin(annotation) is typing.Annotated:
        marks = (*marks, *typing.get_args(annotation)[1:])
    for mark in marks:
        module = type(mark).__module__.partition(".")[0]
        if module == "fastapi" and type(mark).__name__ == "Depends":
            raise ConfigError(
                f"parameter {parameter.name} of {name} has the Depends of FastAPI, which is for "
                "requests: use `from asyncrevoke import Depends`"
            )
    # Nobody has made one unless the module is loaded.
    loaded = sys.modules.get("fast_depends.dependencies")
    return loaded is not None and any(isinstance(mark, loaded.Dependant) for mark in marks)


class Wanted(NamedTuple):
    """What a parameter of a dependency is annotated with, and whether it may be left out."""

    annotation: object
    optional: bool


class Injected:
    """A handler whose dependencies are called, and given to it, with each call.

    ``wanted`` are the parameters of dependencies whose names the handler's own have not.
    """

    def __init__(self, function: HandlerFunction, first: str, name: str) -> None:
        from fast_depends import inject  # noqa: PLC0415 - an extra

        self._first = first
        models: list[CallModel] = []

        def keep(model: CallModel) -> CallModel:
            models.append(model)
            return model

        try:
            self._call = inject(function, cast=False, wrap_model=keep)
        except (AssertionError, NameError, TypeError) as error:
            raise ConfigError(f"the dependencies of {name} cannot be called: {error}") from error
        own = inspect.signature(function).parameters
        if own[first].kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigError(f"{name} has dependencies: parameter {first} must be given by name")
        self.wanted: dict[str, Wanted] = {}
        for item in models[0].flat_params:
            if item.kind is inspect.Parameter.VAR_POSITIONAL:
                raise ConfigError(f"a dependency of {name} takes *{item.field_name}: leave it out")
            if item.field_name not in own:
                optional = item.default_value is not Ellipsis
                self.wanted[item.field_name] = Wanted(item.field_type, optional)

    def __call__(self, value: object, /, **named: object) -> Awaitable[object]:
        """Call the dependencies, the handler, and then the ends of dependencies that yield."""
        return self._call(**{self._first: value}, **named)
