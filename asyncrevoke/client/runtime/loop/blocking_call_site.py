"""Finds the line of code that a thread is running."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

_PACKAGE: Final = __file__.rsplit(os.sep, 4)[0] + os.sep
# sysconfig would import all that Python was built with.
_STDLIB: Final = asyncio.__file__.rsplit(os.sep, 2)[0] + os.sep
_INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def blocked_at(thread_id: int) -> str | None:
    """``file:line function`` that this thread is running; None if it has ended.

    The innermost frame of the application. Frames of the standard library and of installed packages
    are used only if there is no other.
    """
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    best, best_rank = frame, 0
    while frame is not None:
        rank = _rank(frame.f_code.co_filename)
        if rank > best_rank:
            best, best_rank = frame, rank
        frame = frame.f_back
    if best is None:
        return None
    return f"{best.f_code.co_filename}:{best.f_lineno} {best.f_code.co_qualname}"


def _rank(filename: str) -> int:
    if filename.startswith(("<", _PACKAGE)):
        return 0
    if any(part in filename for part in _INSTALLED):
        return 1
    return 0 if filename.startswith(_STDLIB) else 2
