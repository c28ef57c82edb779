"""Makes text from outside safe for errors, log lines, terminals and pages.

Brokers, members, producers and journals choose names and messages: line breaks could forge log
lines, escape sequences control a terminal, and bidi marks reorder text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeGuard, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Limits in characters; longer texts are cut.
LONGEST_TEXT: Final = 1000
LONGEST_MESSAGE: Final = 8000
_LONGEST_OPTION: Final = 200
MOST_NAMES: Final = 6
_WORD = re.compile(r"\S+")
_NAME_OF: Final[Callable[[type], str]] = type.__dict__["__name__"].__get__
_MRO_OF: Final[Callable[[type], tuple[type, ...]]] = type.__dict__["__mro__"].__get__

E = TypeVar("E", bound=BaseException)


class _Nothing:
    """A class without instances."""


class HiddenClassError(RuntimeError):
    """Stands for ``original``, whose class or name cannot be looked at."""

    def __init__(self, original: BaseException, refused: BaseException) -> None:
        super().__init__(
            f"an error of the class {class_name(original)}, which raises {class_name(refused)} "
            "when its class or name is looked at"
        )
        self.original = original
        self.__traceback__ = original.__traceback__


def printable(text: str, limit: int = LONGEST_TEXT) -> str:
    """``text`` in one line, with characters that are not printable escaped as in Python literals.

    These are all control, format, surrogate and unassigned characters of Unicode, and all
    separators except the space. Text longer than ``limit`` is cut, and its length appended. User
    and password of a URL are left out.
    """
    if "://" in text and "@" in text:
        text = _WORD.sub(_without_user, text)
    if len(text) > limit:
        text = f"{text[:limit]}… ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def error_text(error: BaseException, limit: int = LONGEST_MESSAGE) -> str:
    """``str(error)``, cut after ``limit`` characters and not escaped: see :func:`printable`.

    Never raises, whatever the error's class does.
    """
    try:
        return str(error)[:limit]
    except BaseException as unprintable:  # noqa: BLE001 - the report is about ``error``
        return f"(str() of this error raised {class_name(unprintable)})"


def class_name(error: BaseException) -> str:
    """The name of the error's class. Does not ask a metaclass, which may raise."""
    return _NAME_OF(type(error))


def named_error(error: BaseException, limit: int = LONGEST_MESSAGE) -> str:
    """The name of the error's class, and :func:`error_text` after a colon."""
    text = error_text(error, limit)
    return f"{class_name(error)}: {text}" if text else class_name(error)


def is_caught_by(error: BaseException, kinds: type[E] | tuple[type[E], ...]) -> TypeGuard[E]:
    """Whether ``except kinds`` would catch the error, or the one that it stands for.

    By its real class. ``isinstance`` asks ``__class__`` of the error and ``__instancecheck__`` of
    the kinds, which may say something else, or raise.
    """
    original = error.original if type(error) is HiddenClassError else error
    wanted = kinds if isinstance(kinds, tuple) else (kinds,)
    bases = _MRO_OF(type(original))
    return any(base is kind for kind in wanted for base in bases)


def reportable(error: BaseException) -> BaseException:
    """``error``, or a HiddenClassError in its place if looking at its class or name raises."""
    kind = type(error)
    try:
        isinstance(error, _Nothing)  # asks for __class__
        _ = kind.__name__, kind.__qualname__, kind.__module__, kind.__mro__
    except BaseException as refused:  # noqa: BLE001 - raised by the class of ``error``
        return HiddenClassError(error, refused)
    return error


def shown_option(value: object) -> str:
    """``repr(value)`` in one line for a message about an option, cut at 200 characters.

    The text before the last ``@`` is left out, because it may be a user and a password.
    """
    try:
        text = repr(value)
    except BaseException as error:  # noqa: BLE001 - the message is about the option
        text = f"a {_NAME_OF(type(value))}, whose repr() raises {class_name(error)}"
    if "@" in text:
        text = f"'…@{text.rpartition('@')[2]}"
    return printable(text, _LONGEST_OPTION)


def host_and_port(host: str, port: int) -> str:
    """An address in a message: ``kafka-1:9092``, ``[::1]:9092``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def counted(count: int, noun: str) -> str:
    """``1 partition``, ``2 partitions``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def some_names(names: Sequence[str]) -> str:
    """The first ``MOST_NAMES`` of these names, and how many more there are."""
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"


def printable_lines(text: str) -> str:
    """Like :func:`printable`, but keeps line breaks and tabs."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else _escaped(char) for char in text
    )


def printable_json(encoded: str) -> str:
    """JSON in one line that a terminal can show: the same value in printable characters."""
    if encoded.isprintable():
        return encoded
    return "".join(char if char.isprintable() else _json_escaped(char) for char in encoded)


def _without_user(word: re.Match[str]) -> str:
    text = word[0]
    start, end = text.find("://") + 3, text.rfind("@")
    return f"{text[:start]}…{text[end:]}" if 3 <= start <= end else text


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _json_escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
