"""A list of all sessions of a journal: a file with a session id in each line, or the
``sessions.json`` that ``asyncrevoke journal collect`` writes.

The file is untrusted. An invalid one is an error, because an audit relies on it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.journal.files import PRIVATE, create_file
from asyncrevoke.journal.session_id import is_session_id

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SESSION_LIST: Final = "sessions.json"
"""The name of the file that ``asyncrevoke journal collect`` writes."""
# For about 100,000 sessions.
_LONGEST: Final = 2**23


class ListedSession(NamedTuple):
    """A session of a list: its group and its number of rows; None if the list does not say."""

    group: str | None = None
    rows: int | None = None


class SessionList(NamedTuple):
    """Sessions by id. ``at_us`` is the time, in microseconds since the epoch, at which the list was
    made together with the committed offsets; None if a user wrote it."""

    sessions: Mapping[str, ListedSession]
    at_us: int | None = None

    @classmethod
    def of(cls, ids: Iterable[str]) -> SessionList:
        """A list of these ids. Raises ConfigError for an invalid id, and if there are none."""
        found = dict.fromkeys(ids, ListedSession())
        return _checked(cls(found), "the list of sessions")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> SessionList:
        """Read a file. Raises ConfigError if it cannot be read, or has anything else."""
        where = f"the list of sessions {path}"
        try:
            # Also a pipe, such as a shell's <(command).
            with open(path, "rb") as file:
                content = file.read(_LONGEST + 1)
        except OSError as error:
            raise ConfigError(f"{where} cannot be read: {error.strerror}") from error
        if len(content) > _LONGEST:
            raise ConfigError(f"{where} has more than {_LONGEST:,} bytes")
        return _checked(_parsed(content, where), where)


def write_session_list(folder: Path, at_us: int, sessions: Mapping[str, ListedSession]) -> None:
    """Write ``sessions.json`` into a journal's folder. Raises OSError."""
    listed = {name: session._asdict() for name, session in sorted(sessions.items())}
    encoded = json.dumps({"at_us": at_us, "sessions": listed}).encode()
    with os.fdopen(create_file(folder / SESSION_LIST, PRIVATE), "wb") as file:
        file.write(encoded)


class _Session(msgspec.Struct):
    group: str | None
    rows: int


class _File(msgspec.Struct):
    at_us: int
    sessions: dict[str, _Session]


def _parsed(content: bytes, where: str) -> SessionList:
    if not content.lstrip().startswith(b"{"):
        lines = content.decode("utf-8", "replace").splitlines()
        return SessionList({line.strip(): ListedSession() for line in lines if line.strip()})
    try:
        found = msgspec.json.decode(content, type=_File)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{where} is not valid: use the {SESSION_LIST} of `asyncrevoke journal collect`, or a "
            f"session id in each line ({error})"
        ) from error
    listed = {name: ListedSession(of.group, of.rows) for name, of in found.sessions.items()}
    return SessionList(listed, found.at_us)


def _checked(found: SessionList, where: str) -> SessionList:
    invalid = next((name for name in found.sessions if not is_session_id(name)), None)
    if invalid is not None:
        raise ConfigError(
            f"{where}: {shown_option(invalid[:100])} is not a session id; `asyncrevoke journal "
            "check` shows those of a journal"
        )
    if not found.sessions:
        raise ConfigError(f"{where} names no session")
    return found
