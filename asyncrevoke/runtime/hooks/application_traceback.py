"""Tracebacks of the application's code, without the library's frames that called it."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType

# The methods of dataclasses are in "<string>".
_LIBRARY: Final = (str(Path(__file__).parents[2]), "<frozen ", "<string>")
_STANDARD: Final = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
_INSTALLED: Final = ("site-packages", "dist-packages")


def application_traceback(error: BaseException) -> TracebackType | None:
    """The traceback of ``error`` from the first frame that is not one of this library or of the
    standard library. The whole traceback, if it has no such frame. ``error`` is not changed."""
    trace = error.__traceback__
    while trace is not None and _calls_the_application(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return error.__traceback__ if trace is None else trace


def _calls_the_application(file: str) -> bool:
    if file.startswith(_LIBRARY):
        return True
    return file.startswith(_STANDARD) and not any(part in file for part in _INSTALLED)
