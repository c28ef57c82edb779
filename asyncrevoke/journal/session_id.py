"""Session ids: the names of folders, the keys of records in a topic, and a column of each row."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NewType, TypeGuard

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from pathlib import Path

SessionId = NewType("SessionId", str)
"""An id in the form that :func:`new_session_id` generates."""

_GENERATED: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
_EXAMPLE: Final = "20260102T030405Z-0123abcd"


def new_session_id(seconds: float) -> SessionId:
    """A new id for a session that begins ``seconds`` after the epoch."""
    timestamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%SZ")
    return SessionId(f"{timestamp}-{secrets.token_hex(4)}")


def is_session_id(text: object) -> TypeGuard[SessionId]:
    """Whether this is in the form of the ids that this library generates."""
    return isinstance(text, str) and _GENERATED.fullmatch(text) is not None


def parse_session_id(text: object, source: Path | str) -> SessionId:
    """The id that was read from ``source``.

    Raises ConfigError, which names ``source``, for an id that this library does not generate:
    another program wrote the journal, so it cannot be trusted.
    """
    if is_session_id(text):
        return text
    raise not_a_session_id(text, source)


def not_a_session_id(text: object, source: Path | str) -> ConfigError:
    """The error of :func:`parse_session_id`."""
    return ConfigError(
        f"{source}: {shown_option(str(text)[:100])} is not a session id such as {_EXAMPLE}: "
        "another program wrote that file or folder; remove it from the journal"
    )
