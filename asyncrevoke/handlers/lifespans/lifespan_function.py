"""The user's function that opens and closes what handlers keep for a partition."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias, TypeVar, cast

from asyncrevoke.errors import ConfigError
from asyncrevoke.handlers.lifespans.assigned_partition import AssignedPartition
from asyncrevoke.handlers.policy.signature import handler_name
from asyncrevoke.printable import shown_option

LifespanFunction: TypeAlias = Callable[
    [AssignedPartition[Any]], AsyncGenerator[Any] | AbstractAsyncContextManager[Any]
]
L = TypeVar("L", bound=LifespanFunction)
OpenLifespan: TypeAlias = Callable[[AssignedPartition[Any]], AbstractAsyncContextManager[object]]

_SHAPE = "async def counts(partition: AssignedPartition) -> AsyncGenerator[Counts]: ... yield ..."


def open_lifespan(function: object) -> OpenLifespan:
    """A function that returns the context manager of a partition. ConfigError for another one."""
    if not callable(function):
        raise ConfigError(
            f"a partition lifespan is a function, not {shown_option(function)}: {_SHAPE}"
        )
    name = handler_name(function)
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise ConfigError(
            f"{name} takes other parameters than a partition lifespan is given ({error}): {_SHAPE}"
        ) from error
    if inspect.isasyncgenfunction(function):
        return cast("OpenLifespan", asynccontextmanager(function))
    if inspect.iscoroutinefunction(function):
        raise ConfigError(
            f"{name} has no `yield`: what is before it runs before the first record of a "
            f"partition, what is after it runs before the final commit: {_SHAPE}"
        )
    if inspect.isgeneratorfunction(function):
        raise ConfigError(f"{name} is no async function: {_SHAPE}")
    return _checked(function, name)


def _checked(function: Callable[..., object], name: str) -> OpenLifespan:
    def checked(partition: AssignedPartition[Any]) -> AbstractAsyncContextManager[object]:
        manager = function(partition)
        if not isinstance(manager, AbstractAsyncContextManager):
            raise ConfigError(
                f"{name} returned {shown_option(manager)}, no async context manager: {_SHAPE}"
            )
        return cast("AbstractAsyncContextManager[object]", manager)

    return checked
