"""Whenever a process is killed, its journal says what was handled, and the audit is right."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
from typer.testing import CliRunner
from unit.journal.recording.journalled_member import JournalledMember
from unit.journal.written_journal import (
    RECORDS,
    START,
    TOPIC,
    A,
    B,
    JournalledTopic,
    JournalMember,
    record,
)

from asyncrevoke.audit.audited_group import AuditSettings
from asyncrevoke.audit.local_engine import audit
from asyncrevoke.cli.journal import journal as commands
from asyncrevoke.journal import segments
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.segments import JournalSession, seal_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.audit.results.audit_result import AuditResult
    from asyncrevoke.client.core.core import Core

HERE = Path(__file__).parent
# How many processes are killed.
KILLS = int(os.environ.get("ASYNCREVOKE_KILLS", "5"))


def check(folder: Path) -> int:
    """The exit code of ``asyncrevoke journal check``."""
    return CliRunner().invoke(commands, ["check", str(folder)]).exit_code


def rows(folder: Path, kind: str) -> set[int]:
    """The offsets of rows of this kind."""
    found = read_journal(folder).table.to_pylist()
    return {row["offset"] for row in found if row["kind"] == kind}


def audited_after(folder: Path, committed: int) -> AuditResult:
    """Another member goes on from what the group had committed, and the topic is compared."""
    if committed < RECORDS:
        JournalMember("b", committed, RECORDS, content=None).write(folder)
    return asyncio.run(
        audit(read_journal(folder), JournalledTopic(), TOPIC, settings=AuditSettings())
    )


class State(NamedTuple):
    """Files as a kill leaves them, and what the broker and the handlers know then."""

    folder: Path
    committed: int
    called: frozenset[int]


class Kills:
    """Copies a journal before each thing that is done to its files."""

    def __init__(self, folder: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.states: list[State] = []
        self.committed = 0
        self.called: set[int] = set()
        self._copies = copies
        self._random = random.Random(1)
        write: Any = os.write

        def cut_in_two(descriptor: int, data: memoryview) -> int:
            self.kill()
            size = self._random.randrange(1, len(data) + 1)
            written: int = write(descriptor, data[:size])
            return written

        monkeypatch.setattr(os, "write", cut_in_two)
        for where, name in ((os, "open"), (os, "fsync"), (Path, "replace"), (Path, "unlink")):
            monkeypatch.setattr(where, name, self._before(getattr(where, name)))

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def killed_first(*args: Any, **named: Any) -> Any:
            self.kill()
            return call(*args, **named)

        return killed_first

    def kill(self) -> None:
        """One more state."""
        copy = self._copies / f"{len(self.states):04}"
        copy.mkdir(parents=True)
        for path in self.folder.rglob("*"):
            if path.is_file() and path.name != "lock":
                at = copy / path.relative_to(self.folder)
                at.parent.mkdir(exist_ok=True)
                at.write_bytes(path.read_bytes())
        self.states.append(State(copy, self.committed, frozenset(self.called)))


async def run(kills: Kills | None, folder: Path, records: int, **more: Any) -> None:
    """Handle so many records, three at a time, in virtual time."""
    now = START / 1e6 - 1000
    member = JournalledMember(folder, wall_clock=lambda: now, **more)
    await member.begin()

    def called(offset: int) -> None:
        if kills is not None:
            kills.called.add(offset)

    for first in range(0, records, 3):
        now += 1
        await member.handle([record(offset) for offset in range(first, first + 3)], called)
        if kills is not None:
            kills.committed = first + 3
            kills.kill()
        member.committed(first + 3)
        now += 1
    await member.recorder.aclose()


@pytest.mark.parametrize("segment_bytes", [2**20, 700])
def test_after_a_kill_at_any_step_the_audit_finds_what_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    folder = tmp_path / "journal"
    with monkeypatch.context() as patch:
        kills = Kills(folder, tmp_path / "killed", patch)
        asyncio.run(run(kills, folder, 9, segment_bytes=segment_bytes))
        kills.kill()
    assert len(kills.states) > 30
    for number, state in enumerate(kills.states):
        if not any(state.folder.glob("*/0*")):
            assert not state.called
            continue
        says_what_was_done(state.folder, state)
        # An audit takes its time.
        if number % 15 == 0:
            shutil.copytree(state.folder, sealed := tmp_path / f"sealed-{number}")
            for session in segments.sessions(sealed):
                assert seal_session(session) is not None
            assert not list(sealed.glob("*/*.tmp"))
            says_what_was_done(sealed, state)
            assert check(sealed) == 0
            result = audited_after(sealed, state.committed)
            assert result.status == "PASS", (number, result.anomalies)


def left_there(_path: Path, *, missing_ok: bool = False) -> None:
    """A log that was sealed."""


def says_what_was_done(folder: Path, state: State) -> None:
    """No row is missing of what was called or committed before the kill."""
    content = read_journal(folder)
    (session,) = content.sessions
    assert (session.gap, session.missing, session.damaged) == (None, (), ())
    found = content.table.select(["kind", "offset"]).to_pylist()
    assert {row["offset"] for row in found if row["kind"] == "START"} >= state.called
    done = {row["offset"] for row in found if row["kind"] == "ATTEMPT"}
    assert done >= set(range(state.committed))


def test_a_log_that_is_cut_at_any_byte_is_whole_up_to_there(tmp_path: Path) -> None:
    asyncio.run(run(None, tmp_path / "journal", 6))
    (sealed,) = (tmp_path / "journal").glob("*/*.parquet")
    whole = read_journal(tmp_path / "journal").table.num_rows
    # The log that it was made of, written once more.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", left_there)
        asyncio.run(run(None, tmp_path / "again", 6))
    (log,) = (tmp_path / "again").glob("*/*.log")
    data = log.read_bytes()
    counts: list[int] = []
    for size in range(len(data) + 1):
        content = segments.read_blob(data[:size])
        assert content.damaged is None
        found = [row for batch in content.batches for row in batch.column("seq").to_pylist()]
        assert found == list(range(len(found)))
        counts.append(len(found))
    killed = tmp_path / "killed" / sealed.parent.name
    killed.mkdir(parents=True)
    for size in random.Random(3).sample(range(len(data)), 40):
        (killed / "000001.log").write_bytes(data[:size])
        (state,) = read_journal(killed).sessions
        assert (state.gap, state.missing, state.damaged) == (None, (), ())
        assert state.rows == counts[size]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, whole)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("size", [0, 1, 20, 28, 60])
def test_a_session_that_was_killed_before_its_first_row_has_no_part(
    tmp_path: Path, strict: bool, size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", left_there)
        asyncio.run(run(None, tmp_path / "whole", 0, strict=strict))
    (log,) = (tmp_path / "whole").glob("*/*.log")
    killed = tmp_path / "killed"
    (killed / A).mkdir(parents=True)
    (killed / A / "000001.log").write_bytes(log.read_bytes()[:size])
    for _ in range(2):
        assert check(killed) == 0
        (state,) = read_journal(killed).sessions
        assert (state.gap, state.rows, state.begun) == (None, 0, False)
        assert seal_session(JournalSession(killed / A)) == []
    result = audited_after(killed, 0)
    assert (result.status, [state.name for state in result.sessions]) == ("PASS", [B])


def test_zeros_that_a_power_cut_leaves_at_the_end_are_a_torn_end(tmp_path: Path) -> None:
    JournalMember("a", 0, 50, strict=True).write(tmp_path)
    log = tmp_path / A / "000001.log"
    before = read_journal(tmp_path).table
    log.write_bytes(log.read_bytes() + bytes(5000))
    content = read_journal(tmp_path)
    assert content.table.equals(before)
    assert content.sessions[0].gap is None


async def test_nothing_is_handled_before_the_beginning_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = JournalledMember(tmp_path, strict=False)
    try:
        member.recorder.session_opened(cast("Core", _NoMembership()), member.fail)
        assert member.recorder.behind
        await member.recorder.flush()
        assert not member.recorder.behind
        assert rows(tmp_path, "BEGIN") == {None}
    finally:
        await member.recorder.aclose()


class _NoMembership:
    def group_metadata(self) -> Any:
        raise AssertionError("nothing happens in the group")

    def position(self, partition: Any) -> int | None:
        raise AssertionError(partition)


@pytest.mark.timeout(110)
def test_after_a_process_kill_the_audit_finds_what_happened(tmp_path: Path) -> None:
    chance = random.Random(11)
    environment = {**os.environ, "PYTHONPATH": f"{HERE.parents[2]}{os.pathsep}{HERE.parents[3]}"}
    for number in range(KILLS):
        folder = tmp_path / str(number)
        with subprocess.Popen(
            [sys.executable, "-m", "unit.journal.recording.journalled_member", str(folder), "700"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            assert process.stdout is not None
            told: list[str] = []
            # In the middle of a line's work, or as soon as there is a file.
            lines = chance.randrange(1, 110) if number else 0
            told += [process.stdout.readline() for _ in range(lines)]
            while not number and not any(folder.glob("*/0*")):
                assert process.poll() is None
            process.kill()
            told += process.stdout.readlines()
        known = [line.split() for line in told if line.endswith("\n")]
        called = {int(offset) for what, offset in known if what == "called"}
        committed = max([int(offset) for what, offset in known if what == "committed"], default=0)
        assert check(folder) == 0, number
        assert rows(folder, "START") >= called
        assert rows(folder, "ATTEMPT") >= set(range(committed))
        result = audited_after(folder, committed)
        assert result.status == "PASS", (number, result.anomalies)
