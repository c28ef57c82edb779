"""Session ids: folder names, keys of records in a topic, and a column of each row."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NewType, TypeGuard

from asyncrevoke.errors import ConfigError
from asyncrevoke.printable import shown_option

if TYPE_CHECKING:
    from pathlib import Path

SessionId = NewType("SessionId", str)
"""An id that :func:`new_session_id` has made, or could have made."""

_GENERATED: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
_EXAMPLE: Final = "20260102T030405Z-0123abcd"


def new_session_id(seconds: float) -> SessionId:
    """A new id of a session that begins ``seconds`` after the epoch."""
    stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%SZ")
    return SessionId(f"{stamp}-{secrets.token_hex(4)}")


def is_session_id(text: object) -> TypeGuard[SessionId]:
    """Whether it has the form of the ids that this library generates."""
    return isinstance(text, str) and _GENERATED.fullmatch(text) is not None


def parse_session_id(text: object, source: Path | str) -> SessionId:
    """The id, of what was read from ``source``.

    ConfigError, which names ``source``, if this library does not generate such ids: what wrote it
    is no consumer of this library, and nothing of it can be trusted.
    """
    if is_session_id(text):
        return text
    raise not_a_session_id(text, source)


def not_a_session_id(text: object, source: Path | str) -> ConfigError:
    """What :func:`parse_session_id` raises."""
    return ConfigError(
        f"{source}: {shown_option(str(text)[:100])} is not a session id, which look like "
        f"{_EXAMPLE}: the "
        "journal was not written by this library; remove that file or folder from the journal"
    )
