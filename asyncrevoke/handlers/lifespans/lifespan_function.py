"""Checks the function that ``@consumer.partition_lifespan`` decorates."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias, TypeVar, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.handlers.lifespans.assigned_partition import AssignedPartition
from asyncrevoke.handlers.policy.signature import handler_name

LifespanFunction: TypeAlias = Callable[
    [AssignedPartition[Any]], AsyncGenerator[Any] | AbstractAsyncContextManager[Any]
]
L = TypeVar("L", bound=LifespanFunction)
OpenLifespan: TypeAlias = Callable[[AssignedPartition[Any]], AbstractAsyncContextManager[object]]

_SHAPE = "async def counts(partition: AssignedPartition) -> AsyncGenerator[Counts]: ... yield ..."


def open_lifespan(function: object) -> OpenLifespan:
    """Return a function that makes a partition's context manager. Raises ConfigError."""
    if not callable(function):
        raise ConfigError(
            f"a partition lifespan is a function, not {shown_option(function)}: {_SHAPE}"
        )
    name = handler_name(function)
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise ConfigError(
            f"{name} is called with one AssignedPartition, and takes other parameters ({error}): "
            f"{_SHAPE}"
        ) from error
    if inspect.isasyncgenfunction(function):
        return cast("OpenLifespan", asynccontextmanager(function))
    if inspect.iscoroutinefunction(function):
        raise ConfigError(
            f"{name} has no `yield`: code before it runs before the first record of a partition, "
            f"code after it runs before the final commit: {_SHAPE}"
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
