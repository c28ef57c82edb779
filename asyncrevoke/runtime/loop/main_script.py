"""Refuses to read Kafka in a worker process that imports the script of its parent.

``run_in="process"`` and multiprocessing import that script under the name ``__mp_main__``.
"""

from __future__ import annotations

import sys

from asyncrevoke.errors import IllegalStateError

_IMPORTED_AS = "__mp_main__"


class UnguardedScriptError(IllegalStateError):
    """A script enters a consumer when a worker process imports it."""


def check_main_script() -> None:
    """Raise UnguardedScriptError in a worker process that is importing the script of its parent.

    Once the script is imported, a worker may enter a consumer of its own.
    """
    script = sys.modules.get(_IMPORTED_AS)
    if script is None or sys.modules.get("__main__") is script:
        return
    from pathlib import PurePath

    name = PurePath(getattr(script, "__file__", None) or "the script").name
    raise UnguardedScriptError(
        f"{name} enters a consumer when a worker process imports it, so each worker would join the "
        'group: enter it below `if __name__ == "__main__":`'
    )
