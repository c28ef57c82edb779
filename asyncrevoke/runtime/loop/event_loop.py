"""The event loop that a consumer is entered in: asyncio's, or one that stands in for it."""

from __future__ import annotations

import asyncio

from asyncrevoke.errors import IllegalStateError


def check_event_loop() -> None:
    """Raise IllegalStateError, naming the fix, unless an event loop of asyncio runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise IllegalStateError(
            "a consumer needs an event loop of asyncio (uvloop is one): trio, also as the backend "
            'of anyio, cannot run it; use anyio.run(main, backend="asyncio") or asyncio.run(main())'
        ) from error
