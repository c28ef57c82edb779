"""Checks where a consumer is entered: in an event loop of asyncio, and not in a worker process that
imports the script of its parent.

``run_in="process"`` and multiprocessing import that script under the name ``__mp_main__``.
"""

from __future__ import annotations

import asyncio
import inspect
import sys

from asyncrevoke.client.errors import IllegalStateError

_IMPORTED_AS = "__mp_main__"


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


class UnguardedScriptError(IllegalStateError):
    """A script enters a consumer when a worker process imports it."""


def check_main_script() -> None:
    """Raise UnguardedScriptError in a worker process that is importing the script of its parent.

    Once the script is imported, a worker may enter a consumer of its own.
    """
    script, main = sys.modules.get(_IMPORTED_AS), sys.modules.get("__main__")
    if main is None and script is None:
        # A worker of anyio before 4.14 has neither until it has imported a script.
        file = _file_on_the_stack()
        if file is None:
            return
    elif script is None or main is script:
        return
    else:
        file = getattr(script, "__file__", None)
    from pathlib import PurePath

    name = PurePath(file or "the script").name
    raise UnguardedScriptError(
        f"{name} enters a consumer when a worker process imports it, so each worker would join the "
        'group: enter it below `if __name__ == "__main__":`'
    )


def _file_on_the_stack() -> str | None:
    """The file of the script whose import calls this; None if no import of a script does."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") != _IMPORTED_AS:
        frame = frame.f_back
    return None if frame is None else frame.f_code.co_filename
