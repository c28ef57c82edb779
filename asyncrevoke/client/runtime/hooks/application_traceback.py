"""Tracebacks of the application's code, without the library's frames that called it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, cast

from asyncrevoke.client.printable import LONGEST_MESSAGE, class_name, error_text, reportable

if TYPE_CHECKING:
    from types import TracebackType

# The methods of dataclasses are in "<string>".
_LIBRARY: Final = (__file__.rsplit(os.sep, 4)[0], "<frozen ", "<string>")
# The folder of its modules. sysconfig would import all that Python was built with.
_STANDARD: Final = asyncio.__file__.rsplit(os.sep, 2)[0]
_INSTALLED: Final = ("site-packages", "dist-packages")
# Causes of an error, and members of a group, that are logged if one of them is shortened.
_MOST_CAUSES: Final = 20


def logged_exception(
    error: BaseException,
) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """What logging formats for ``error``: the traceback of the application's code, and at most
    8,000 characters of the text of each error."""
    shown = reportable(error)
    if any(len(_text(cause)) > LONGEST_MESSAGE for cause in _errors_in(shown)):
        shown = _shortened(shown, _MOST_CAUSES)
    return type(shown), shown, application_traceback(error)


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


def _text(error: BaseException) -> str:
    return error_text(error, LONGEST_MESSAGE + 1)


def _errors_in(error: BaseException) -> list[BaseException]:
    """The error, its causes and the members of groups, as far as they are logged."""
    found: list[BaseException] = [error]
    known = {id(error)}
    for candidate in found:
        members: tuple[BaseException, ...] = ()
        if isinstance(candidate, BaseExceptionGroup):
            members = cast("BaseExceptionGroup[BaseException]", candidate).exceptions
        for other in (candidate.__cause__, candidate.__context__, *members):
            if other is not None and len(found) < _MOST_CAUSES and id(other) not in known:
                known.add(id(other))
                found.append(other)
    return found


def _shortened(error: BaseException, depth: int) -> BaseException:
    """A copy of the error for the log: with the name of its class, and not of its type."""
    text = _text(error)
    if len(text) > LONGEST_MESSAGE:
        text = f"{text[:LONGEST_MESSAGE]}… (cut)"
    kind = type(class_name(error), (Exception,), {"__module__": type(error).__module__})
    made: BaseException = kind(text)
    if depth:
        if error.__cause__ is not None:
            made.__cause__ = _shortened(error.__cause__, depth - 1)
        elif error.__context__ is not None and not error.__suppress_context__:
            made.__context__ = _shortened(error.__context__, depth - 1)
    return made.with_traceback(error.__traceback__)
