"""Which files list the sessions of a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.journal.session_list import ListedSession, SessionList, write_session_list

if TYPE_CHECKING:
    from pathlib import Path

A, B = "20270115T080000Z-0000000a", "20270115T080000Z-0000000b"
AT = 1_800_000_000_000_000


def read(folder: Path, text: str) -> SessionList:
    path = folder / "sessions"
    path.write_text(text, "utf-8")
    return SessionList.read(path)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    sessions = {B: ListedSession("billing", 17), A: ListedSession(None, 3)}
    write_session_list(tmp_path, AT, sessions)
    assert SessionList.read(tmp_path / "sessions.json") == (sessions, AT)


def test_a_session_id_in_each_line_is_a_list(tmp_path: Path) -> None:
    listed = read(tmp_path, f"{A}\n\n  {B}\n")
    assert listed == SessionList.of([A, B])
    assert listed.sessions == {A: ListedSession(), B: ListedSession()}
    assert listed.at_us is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "names no session"),
        ("\n \n", "names no session"),
        ('{"at_us": 1, "sessions": {}}', "names no session"),
        (f"{A}\nsession-b\n", "'session-b' is not a session id; `asyncrevoke journal check`"),
        ("../outside", "is not a session id"),
        ('{"at_us": 1, "sessions": {"a": {"group": "g", "rows": 1}}}', "'a' is not a session id"),
        ("{", "is not valid: use the sessions.json of"),
        ('{"sessions": {}}', "is not valid"),
        ('{"at_us": 1, "sessions": {"a": {"group": "g"}}}', "is not valid"),
        ('{"at_us": 1, "sessions": {"a": {"group": "g", "rows": "1"}}}', "is not valid"),
        ('{"at_us": 1, "sessions": ' + "[" * 100_000, "is not valid"),
        ("[]", "'\\[\\]' is not a session id"),
        ("x" * 200, "'x{100}' is not a session id"),
        (" " * (2**23 + 1), "has more than 8,388,608 bytes"),
    ],
    ids=range(14),
)
def test_what_is_no_list_is_an_error(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sessions .*/nothing cannot be read: No such file"):
        SessionList.read(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="names no session"):
        SessionList.of([])
