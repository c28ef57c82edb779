"""Dependencies of handlers. The optional package fast-depends calls them."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.config.annotations import metadata
from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from fast_depends.core import CallModel

    from asyncrevoke.handlers.policy.handler_function import HandlerFunction


def is_dependency(parameter: inspect.Parameter, annotation: object, name: str) -> bool:
    """Whether a parameter is marked with ``Depends``, and so receives the result of a function.

    Raises ConfigError for a parameter that has only FastAPI's ``Depends``, which is for requests,
    and for one of FastStream's ``Context``. A type ``Annotated`` with both ``Depends`` works for
    requests and for handlers.
    """
    marks = (parameter.default, *metadata(annotation))
    # No parameter is marked unless the module is loaded.
    loaded = sys.modules.get("fast_depends.dependencies")
    if loaded is not None and any(isinstance(mark, loaded.Dependant) for mark in marks):
        return True
    for mark in marks:
        module = type(mark).__module__.partition(".")[0]
        if module == "fastapi" and type(mark).__name__ == "Depends":
            raise ConfigError(
                f"parameter {parameter.name} of {name} has the Depends of FastAPI, which is for "
                "requests: use `from asyncrevoke import Depends`"
            )
        if module == "faststream":
            raise ConfigError(
                f"parameter {parameter.name} of {name} has the {type(mark).__name__} of FastStream:"
                " take it out, and annotate a parameter HandlerContext, which has the log and the "
                "state, or Record, which has the key and the headers"
            )
    return False


class DependencyParameter(NamedTuple):
    """A parameter of a dependency: its annotation, and whether it may be left out."""

    annotation: object
    optional: bool


class HandlerWithDependencies:
    """A handler whose dependencies are called before each call, and passed to it.

    ``dependency_parameters`` are the parameters of dependencies that the handler does not have.
    """

    def __init__(self, function: HandlerFunction, first: str, name: str) -> None:
        from fast_depends import inject

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
        self.dependency_parameters: dict[str, DependencyParameter] = {}
        for item in models[0].flat_params:
            if item.kind is inspect.Parameter.VAR_POSITIONAL:
                raise ConfigError(f"a dependency of {name} takes *{item.field_name}: leave it out")
            if item.field_name not in own:
                optional = item.default_value is not Ellipsis
                self.dependency_parameters[item.field_name] = DependencyParameter(
                    item.field_type, optional
                )

    def __call__(self, value: object, /, **named: object) -> Awaitable[object]:
        """Call the dependencies and the handler, then close the dependencies that yield."""
        return self._call(**{self._first: value}, **named)
