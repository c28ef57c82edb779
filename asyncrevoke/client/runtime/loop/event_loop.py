"""Checks that an event loop of asyncio runs."""

from __future__ import annotations

import asyncio
import sys

from asyncrevoke.client.errors import IllegalStateError


def check_event_loop() -> None:
    """Raise IllegalStateError unless an event loop of asyncio (or uvloop) is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise IllegalStateError(
            "a consumer needs an event loop of asyncio (uvloop is one): trio, also as the backend "
            'of anyio, cannot run it; use anyio.run(main, backend="asyncio") or asyncio.run(main())'
        ) from error


def other_event_loop() -> IllegalStateError:
    """The error of a call in another event loop than the one that a consumer was entered in."""
    scopes = ""
    if "pytest_asyncio" in sys.modules:
        scopes = "; with pytest-asyncio, the fixture and its tests need the same loop_scope"
    return IllegalStateError(
        "a consumer belongs to the event loop that it was entered in: enter another one in this "
        f"event loop{scopes}"
    )
