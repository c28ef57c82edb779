"""Checks that an event loop of asyncio runs."""

from __future__ import annotations

import asyncio

from asyncrevoke.errors import IllegalStateError


def check_event_loop() -> None:
    """Raise IllegalStateError unless an event loop of asyncio (or uvloop) is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise IllegalStateError(
            "a consumer needs an event loop of asyncio (uvloop is one): trio, also as the backend "
            'of anyio, cannot run it; use anyio.run(main, backend="asyncio") or asyncio.run(main())'
        ) from error
