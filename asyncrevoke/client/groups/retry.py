"""Retries of requests that fail while a coordinator is moving or loading."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.groups.errors import CoordinatorUnavailableError, GroupsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Result = TypeVar("Result")

_FIRST: Final = 0.1
_LONGEST: Final = 1.0
# Seconds.
PATIENCE: Final = 10.0


async def retry_transient_errors(
    ask: Callable[[], Awaitable[Result]],
    patience: float = PATIENCE,
    transient: tuple[type[GroupsError], ...] = (CoordinatorUnavailableError,),
) -> Result:
    """Retry ``ask()`` for ``patience`` seconds while it raises one of ``transient``."""
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    backoff = Backoff(_FIRST, _LONGEST)
    while True:
        try:
            return await ask()
        except transient:
            if loop.time() >= until:
                raise
        await asyncio.sleep(backoff.failed())
