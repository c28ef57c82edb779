"""What a journal costs: bytes of a row, syncs, memory of sealing; and how it is closed."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from unit.journal.recording.journalled_member import JournalledMember
from unit.journal.written_journal import START, A, record

from asyncrevoke.client.errors import JournalError
from asyncrevoke.journal import segments
from asyncrevoke.journal.format.arrow import pa
from asyncrevoke.journal.format.columns import ColumnArrays, RowBatch
from asyncrevoke.journal.format.frames import SegmentHeader, frames, header_frame
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.recording import log_file, writer
from asyncrevoke.journal.segments import JournalSession, Segment, seal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from asyncrevoke.journal.format.schema import Content

MIB = 2**20


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.log"))


@pytest.mark.parametrize("content", ["batches", "records", None])
async def test_a_strict_row_takes_at_most_40_bytes_at_100_rows_a_batch(
    tmp_path: Path, content: Content | None
) -> None:
    now = START / 1e6
    member = JournalledMember(tmp_path, content=content, wall_clock=lambda: now)
    await member.begin()
    await member.recorder.flush()
    (log,) = logs(tmp_path)
    before = log.stat().st_size
    for first in range(0, 1000, 100):
        now += 1
        records = [record(offset) for offset in range(first, first + 100)]
        await member.handle(records, lambda _offset: None)
    size = log.stat().st_size - before
    rows = read_journal(tmp_path).table.num_rows - 3
    assert rows == 2000
    assert size / rows <= 40
    await member.recorder.aclose()


async def test_a_strict_row_that_is_written_alone_takes_at_most_250_bytes(tmp_path: Path) -> None:
    now = START / 1e6
    member = JournalledMember(tmp_path, content="records", wall_clock=lambda: now)
    await member.begin()
    await member.recorder.flush()
    (log,) = logs(tmp_path)
    before = log.stat().st_size
    for offset in range(20):
        now += 1
        await member.handle([record(offset)], lambda _offset: None)
    assert (log.stat().st_size - before) / 40 <= 250
    await member.recorder.aclose()


async def test_calls_that_begin_in_one_turn_wait_for_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = JournalledMember(tmp_path, wall_clock=lambda: START / 1e6)
    await member.begin()
    await member.recorder.flush()
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    starts = [member.recorder.record_start([record(offset)]) for offset in range(100)]
    await asyncio.gather(*starts)
    assert len(synced) == 1
    monkeypatch.undo()
    await member.recorder.aclose()


async def test_the_names_of_new_folders_are_synced_before_the_first_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(log_file, "sync_folder", synced.append)
    path = tmp_path / "of" / "billing"
    for names in ({tmp_path, path.parent, path}, {path}):
        synced.clear()
        member = JournalledMember(path, wall_clock=lambda: START / 1e6)
        await member.begin()
        await member.recorder.flush()
        written = [log.parent for log in logs(path) if log.parent in synced]
        assert len(written) == 1
        assert set(synced) == {*names, *written}
        await member.recorder.aclose()


async def test_a_call_that_is_cancelled_leaves_the_sync_to_the_others(tmp_path: Path) -> None:
    member = JournalledMember(tmp_path, wall_clock=lambda: START / 1e6)
    await member.begin()
    one, other = record(0), record(1)
    first = asyncio.create_task(member.recorder.record_start([one]))
    second = asyncio.create_task(member.recorder.record_start([other]))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    member.recorder.handler_cancelled([one], asyncio.CancelledError())
    await second
    await member.recorder.flush()
    rows = read_journal(tmp_path).table.to_pylist()
    told = [(r["kind"], r["offset"], r["outcome"]) for r in rows if r["offset"] in (0, 1)]
    assert told[-3:] == [("START", 0, None), ("START", 1, None), ("ATTEMPT", 0, "cancelled")]
    # An audit matches an attempt with its start by that time.
    starts = {r["offset"]: r["at_us"] for r in rows if r["kind"] == "START"}
    ended = {r["offset"]: r["started_us"] for r in rows if r["kind"] == "ATTEMPT"}
    assert ended[0] == starts[0]
    await member.recorder.aclose()


def written_log(folder: Path, rows: int) -> Segment:
    """A log of so many attempts."""
    folder.mkdir()
    session = SegmentHeader(A, "billing", 1)
    each = 8192
    columns = ColumnArrays(
        {"offset": bytes(8 * each), "partition": bytes(4 * each), "started_us": bytes(8 * each)},
        {
            "kind": (["ATTEMPT"], [each]),
            "topic": (["orders"], [each]),
            "outcome": (["ok"], [each]),
            "attempt": ([1], [each]),
            "at_us": ([START], [each]),
        },
    )
    path = folder / "000001.log"
    with path.open("wb") as file:
        file.write(header_frame(session, 0).data)
        for first in range(0, rows, each):
            for frame in frames(RowBatch(first, each, columns)):
                file.write(frame.data)
    return Segment(path)


def test_sealing_takes_the_memory_of_a_row_group(tmp_path: Path) -> None:
    segment = written_log(tmp_path / A, 1_500_000)
    assert segment.path.stat().st_size > 28 * MIB
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        sealed = seal(segment)
        _, most = tracemalloc.get_traced_memory()
        # Of both heaps, whenever each was largest.
        assert pool.max_memory() + most < 48 * MIB
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
    assert sealed.sealed
    assert read_journal(tmp_path).table.num_rows >= 1_500_000


def test_sealing_that_is_cancelled_keeps_the_log(tmp_path: Path) -> None:
    segment = written_log(tmp_path / A, 300_000)
    data = segment.path.read_bytes()
    asked: list[bool] = []

    def at_the_third_row_group() -> bool:
        asked.append(True)
        return len(asked) == 3

    assert seal(segment, at_the_third_row_group) == segment
    assert [path.name for path in segment.path.parent.iterdir()] == ["000001.log"]
    assert segment.path.read_bytes() == data


class Held:
    """Sealing that goes on until it is given up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()
        monkeypatch.setattr(writer, "seal", self.seal)

    def seal(self, segment: Segment, stop: Callable[[], bool]) -> Segment:
        self.begun.set()
        while not stop():
            self.ended.wait(0.001)
        self.ended.set()
        return segment


async def test_closing_gives_sealing_up_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    monkeypatch.setattr(writer, "_SEALING_AT_END", 0.01)
    member = JournalledMember(tmp_path)
    await member.begin()
    await member.handle([record(0)], lambda _offset: None)
    await member.recorder.aclose()
    assert held.ended.is_set()
    (state,) = read_journal(tmp_path).sessions
    assert (state.gap, state.ended, state.live, state.sealed) == (None, True, False, 0)


async def test_closing_that_is_cancelled_gives_sealing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    monkeypatch.setattr(writer, "_SEALING_AT_END", 1000)
    member = JournalledMember(tmp_path)
    await member.begin()
    closing = asyncio.create_task(member.recorder.aclose())
    await asyncio.to_thread(held.begun.wait)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await asyncio.to_thread(held.ended.wait)
    (state,) = read_journal(tmp_path).sessions
    assert (state.gap, state.ended) == (None, True)


async def test_a_segment_that_cannot_be_sealed_is_logged_and_read_as_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_path: Path, _mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segments, "SealedFile", full)
    member = JournalledMember(tmp_path)
    await member.begin()
    await member.handle([record(0)], lambda _offset: None)
    await member.recorder.aclose()
    assert not member.failures
    assert "journal segment not sealed; audits read its log instead" in caplog.text
    assert "No space left on device" in caplog.text
    (state,) = read_journal(tmp_path).sessions
    assert (state.gap, state.ended, state.sealed) == (None, True, 0)


async def test_the_next_session_seals_what_a_killed_one_has_left(tmp_path: Path) -> None:
    killed = JournalledMember(tmp_path, wall_clock=lambda: START / 1e6)
    await killed.begin()
    await killed.handle([record(0)], lambda _offset: None)
    (log,) = logs(tmp_path)
    assert JournalSession(log.parent).live
    killed.recorder._writer._release()  # type: ignore[union-attr]
    other = JournalledMember(tmp_path)
    await other.begin()
    await other.recorder.aclose()
    assert log.with_suffix(".parquet").exists()
    assert logs(tmp_path) == []


async def test_a_disk_that_fails_ends_what_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = JournalledMember(tmp_path)
    await member.begin()

    def full(_descriptor: int) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    starts = [member.recorder.record_start([record(offset)]) for offset in range(3)]
    errors = await asyncio.gather(*starts, return_exceptions=True)
    assert {type(error) for error in errors} == {JournalError}
    assert [type(error) for error in member.failures] == [JournalError]
    monkeypatch.undo()
    with pytest.raises(JournalError, match="No space left"):
        await member.recorder.aclose()
