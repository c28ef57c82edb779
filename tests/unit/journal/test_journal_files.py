"""Who may read the files of a journal, and what a journal does not follow."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from unit.journal.recording.journalled_member import JournalledMember
from unit.journal.written_journal import A, B, JournalMember, record

from asyncrevoke import ConfigError
from asyncrevoke.journal import Journal
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.segments import JournalSession, seal_session, sessions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """One that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> set[tuple[str, str]]:
    """The permissions of all that is in it, by what it is."""
    return {
        ("folder" if path.is_dir() else path.suffix, oct(path.stat().st_mode & 0o777))
        for path in [folder, *folder.rglob("*")]
        if path.name != "lock"
    }


async def write(journal: Journal) -> None:
    member = JournalledMember(journal)
    await member.begin()
    await member.handle([record(offset) for offset in range(5)], lambda _: None)
    await member.recorder.aclose()


@pytest.mark.parametrize(
    ("mode", "files", "folders"),
    [(0o600, "0o600", "0o700"), (0o640, "0o640", "0o750"), (0o644, "0o644", "0o755")],
)
async def test_files_have_their_permissions_from_the_beginning(
    tmp_path: Path, mode: int, files: str, folders: str
) -> None:
    folder = tmp_path / "journal"
    await write(Journal(folder) if mode == 0o600 else Journal(folder, mode=mode))
    (session,) = sessions(folder)
    suffix = session.segments()[0].path.suffix
    assert modes(folder) == {("folder", folders), (suffix, files)}
    seal_session(session)
    assert modes(folder) == {("folder", folders), (".parquet", files)}


async def test_the_umask_takes_permissions_away(tmp_path: Path) -> None:
    os.umask(0o077)
    folder = tmp_path / "journal"
    await write(Journal(folder, mode=0o644))
    assert {mode for _, mode in modes(folder)} == {"0o600", "0o700"}


async def test_a_folder_that_exists_keeps_its_permissions(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    folder.mkdir(0o711)
    await write(Journal(folder))
    assert folder.stat().st_mode & 0o777 == 0o711


@pytest.mark.parametrize("mode", [0o400, 0o700, 0o1600, 0, 0o060])
def test_unusable_permissions_are_rejected(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match="owner must be able to read and write"):
        Journal(tmp_path, mode=mode)


def member_in(folder: Path) -> JournalSession:
    JournalMember("a", 0, 50).write(folder)
    return JournalSession(folder / A)


@pytest.mark.parametrize("what", ["session", "segment", "lock"])
def test_a_link_in_a_journal_is_rejected_and_not_followed(tmp_path: Path, what: str) -> None:
    journal, elsewhere = tmp_path / "journal", tmp_path / "elsewhere"
    session = member_in(journal)
    if what == "session":
        member_in(elsewhere)
        link, target = journal / B, elsewhere / A
    else:
        elsewhere.write_bytes(b"something")
        name = "000002.log" if what == "segment" else "lock"
        link, target = session.folder / name, elsewhere
    link.symlink_to(target)
    with pytest.raises(ConfigError, match="is a symbolic link") as rejected:
        read_journal(journal)
    assert str(link) in str(rejected.value)
    if what != "session":
        assert elsewhere.read_bytes() == b"something"


def test_sealing_writes_through_no_link(tmp_path: Path) -> None:
    session = member_in(tmp_path)
    target = tmp_path / "precious"
    target.write_bytes(b"something")
    (session.folder / "000001.tmp").symlink_to(target)
    assert seal_session(session)
    (sealed,) = session.segments()
    assert target.read_bytes() == b"something"
    assert not sealed.path.is_symlink()


@pytest.mark.parametrize("name", ["000002.log", "000002.parquet"])
def test_a_segment_that_is_a_pipe_is_rejected_without_waiting(tmp_path: Path, name: str) -> None:
    session = member_in(tmp_path)
    os.mkfifo(session.folder / name)
    with pytest.raises(ConfigError, match="not a regular file"):
        read_journal(tmp_path)
