"""Errors of requests about groups, and retries while a coordinator is moving or loading."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.errors import AsyncRevokeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Result = TypeVar("Result")

_FIRST: Final = 0.1
_LONGEST: Final = 1.0
# Seconds.
PATIENCE: Final = 10.0


class GroupsError(AsyncRevokeError):
    """A request about groups failed; the message is a sentence for the user."""


class CoordinatorUnavailableError(GroupsError):
    """The coordinator is moving or loading; a retry will succeed soon."""


class BrokerUnavailableError(GroupsError):
    """A broker does not respond, or its connection was lost."""


class NoGroupError(GroupsError):
    """The group does not exist (yet)."""


class ShareGroupError(GroupsError):
    """The group is a share group (KIP-932), and only a consumer group has what was asked for."""


class UnsupportedRequestError(GroupsError):
    """The broker offers no version of the request that this library supports."""


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
