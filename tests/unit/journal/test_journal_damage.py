"""What has changed in the files of a journal, or is missing of them, is found."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner
from unit.journal.written_journal import A, B, JournalMember, facts, numbered

from asyncrevoke.cli.journal import journal as commands
from asyncrevoke.journal.format import columns as columns_of_batches
from asyncrevoke.journal.format.arrow import pq
from asyncrevoke.journal.format.columns import ColumnArrays, RowBatch, decoded, encoded, split
from asyncrevoke.journal.format.frames import SegmentHeader, frames, header_frame
from asyncrevoke.journal.format.rows import RowMemory
from asyncrevoke.journal.format.schema import VERSION, RowKind
from asyncrevoke.journal.format.sealed import read_sealed
from asyncrevoke.journal.reading import SessionState, read_journal
from asyncrevoke.journal.recording.encoding import encode, rows_of
from asyncrevoke.journal.recording.entries import Fact
from asyncrevoke.journal.recording.log_file import LogFile
from asyncrevoke.journal.segments import JournalSession, read_blob, seal, seal_session

if TYPE_CHECKING:
    from pathlib import Path


def in_segments(folder: Path, name: str = A, *, sealed: bool = False) -> JournalSession:
    """A strict session whose rows are in several logs."""
    session = JournalSession(folder / name)
    session.folder.mkdir(parents=True)
    log = LogFile(session, "billing", segment_bytes=1600, segment_seconds=60)
    member = JournalMember(name[-1], 0, 40, strict=True)
    rows = sum(rows_of(entry) for entry in member.rows())
    member.end[-1] = member.end[-1]._replace(facts=json.dumps({"rows": rows}))
    _, *others = member.rows()
    known = facts(strict=True) | {"version": VERSION}
    entries = [Fact(RowKind.BEGIN, member.begin[0].at, facts=json.dumps(known)), *others]
    queue = numbered(entries)
    while queue:
        some = numbered([])
        for _ in range(min(4, len(queue))):
            some.append(queue.popleft())
        log.take(some)
    log.close()
    if sealed:
        assert seal_session(session) is not None
    assert len(session.segments()) >= 3
    return session


def state_of(folder: Path) -> SessionState:
    (state,) = read_journal(folder).sessions
    return state


def checked(folder: Path) -> int:
    """The exit code of ``asyncrevoke journal check``."""
    return CliRunner().invoke(commands, ["check", str(folder)]).exit_code


def flipped(data: bytes, at: int, chance: random.Random) -> bytes:
    """One bit of this byte is another."""
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


@pytest.mark.parametrize("sealed", [False, True])
def test_a_chain_of_segments_is_whole(tmp_path: Path, sealed: bool) -> None:
    in_segments(tmp_path, sealed=sealed)
    state = state_of(tmp_path)
    assert (state.gap, state.damaged, state.missing, state.ended) == (None, (), (), True)
    assert checked(tmp_path) == 0


def test_a_chain_is_whole_while_a_part_of_it_is_sealed(tmp_path: Path) -> None:
    for segment in in_segments(tmp_path).segments()[:2]:
        assert seal(segment).sealed
    assert state_of(tmp_path).gap is None


def test_any_bit_of_a_log_that_has_changed_is_found(tmp_path: Path) -> None:
    chance = random.Random(5)
    first = in_segments(tmp_path).segments()[0].path.read_bytes()
    whole = read_blob(first)
    assert (whole.torn, whole.damaged) == (None, None)
    for at in range(len(first)):
        content = read_blob(flipped(first, at, chance))
        assert content.damaged is not None, at


def test_any_bit_of_a_sealed_segment_that_has_changed_is_found(tmp_path: Path) -> None:
    chance = random.Random(6)
    path = in_segments(tmp_path, sealed=True).segments()[0].path
    data = path.read_bytes()
    assert read_sealed(path, RowMemory()).damaged is None
    # All of what is not a page, and some of those.
    for at in [*range(0, len(data), 7), *range(len(data) - 400, len(data))]:
        path.write_bytes(flipped(data, at, chance))
        found = read_sealed(path, RowMemory())
        assert (found.batches, found.damaged is None) == ([], False), at
    path.write_bytes(data[:-100])
    assert read_sealed(path, RowMemory()).damaged is not None


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_bit_that_has_changed_fails_the_check_by_file(
    tmp_path: Path, sealed: bool, number: int
) -> None:
    path = in_segments(tmp_path, sealed=sealed).segments()[number].path
    data = path.read_bytes()
    path.write_bytes(flipped(data, len(data) // 2, random.Random(7)))
    state = state_of(tmp_path)
    assert state.gap is not None
    assert state.gap.startswith(f"segment {path.name}: ")
    assert "changed" in state.gap
    assert checked(tmp_path) == 1


def test_a_log_that_is_damaged_is_not_sealed(tmp_path: Path) -> None:
    session = in_segments(tmp_path)
    path = session.segments()[1].path
    data = path.read_bytes()
    path.write_bytes(flipped(data, len(data) // 2, random.Random(8)))
    before = state_of(tmp_path)
    assert [segment.sealed for segment in session.segments()] == [False] * before.segments
    assert seal_session(session) is not None
    after = state_of(tmp_path)
    assert (after.sealed, after.segments) == (before.segments - 1, before.segments)
    assert (after.missing, after.gap) == (before.missing, before.gap)


def test_batches_after_one_that_has_changed_are_read(tmp_path: Path) -> None:
    path = in_segments(tmp_path).segments()[0].path
    frames_of_log = path.read_bytes().split(b"arj\x02")[1:]
    place = len(b"arj\x02".join([b"", *frames_of_log[:2]])) + 40
    path.write_bytes(flipped(path.read_bytes(), place, random.Random(9)))
    state = state_of(tmp_path)
    ((first, last),) = state.missing
    assert 0 <= first <= last < 10


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "segment 000001 is missing"),
        (1, "segment 000002 is missing"),
    ],
)
def test_a_segment_that_was_removed_is_missed(
    tmp_path: Path, sealed: bool, number: int, said: str
) -> None:
    in_segments(tmp_path, sealed=sealed).segments()[number].path.unlink()
    state = state_of(tmp_path)
    assert said in state.damaged
    assert checked(tmp_path) == 1


@pytest.mark.parametrize("sealed", [False, True])
def test_segments_that_were_renamed_to_fill_a_hole_are_found(tmp_path: Path, sealed: bool) -> None:
    session = in_segments(tmp_path, sealed=sealed)
    paths = [segment.path for segment in session.segments()]
    for free, path in pairwise(paths[1:]):
        path.replace(free)
    state = state_of(tmp_path)
    assert f"segment {paths[1].name} was written as segment 000003" in state.damaged
    assert state.damaged[0].startswith(
        f"segment {paths[1].name} does not follow the segment before it"
    )
    assert checked(tmp_path) == 1


@pytest.mark.parametrize("sealed", [False, True])
def test_segments_in_another_order_are_found(tmp_path: Path, sealed: bool) -> None:
    one, other = (s.path for s in in_segments(tmp_path, sealed=sealed).segments()[:2])
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    state = state_of(tmp_path)
    # No row is missing: only the chain tells.
    assert state.missing == ()
    assert any("does not follow the segment before it" in each for each in state.damaged)
    assert checked(tmp_path) == 1


@pytest.mark.parametrize("sealed", [False, True])
def test_a_segment_of_another_session_is_found(tmp_path: Path, sealed: bool) -> None:
    path = in_segments(tmp_path / "one", sealed=sealed).segments()[1].path
    other = in_segments(tmp_path / "two", B, sealed=sealed).segments()[1].path
    path.write_bytes(other.read_bytes())
    state = state_of(tmp_path / "one")
    assert (
        f"segment {path.name} is of session {B}, and earlier segments are of {A}" in state.damaged
    )
    assert checked(tmp_path / "one") == 1


def test_a_segment_written_again_with_other_rows_does_not_fit_its_chain(tmp_path: Path) -> None:
    session = in_segments(tmp_path)
    again = in_segments(tmp_path / "again")
    path, other = session.segments()[1].path, again.segments()[1].path
    content = read_blob(path.read_bytes())
    rows = [row for batch in content.batches for row in batch.to_pylist()]
    assert content.about is not None
    assert content.about.previous is not None
    header = SegmentHeader(A, "billing", 2, bytes.fromhex(content.about.previous))
    count = len(rows)
    made = ColumnArrays({}, {"kind": (["START"], [count]), "at_us": ([rows[0]["at_us"]], [count])})
    first = rows[0]["seq"]
    other.write_bytes(
        header_frame(header, first).data
        + b"".join(frame.data for frame in frames(RowBatch(first, count, made)))
    )
    state = state_of(tmp_path / "again")
    assert state.missing == ()
    assert state.damaged[0].startswith("segment 000003.log does not follow the segment before it")


def test_a_hole_in_the_numbers_of_rows_is_found(tmp_path: Path) -> None:
    path = in_segments(tmp_path).segments()[-1].path
    parts = path.read_bytes().split(b"arj\x02")
    assert len(parts) > 3
    # A whole batch is not there, and the rest is untouched.
    path.write_bytes(b"arj\x02".join([*parts[:2], *parts[3:]]))
    state = state_of(tmp_path)
    assert len(state.missing) == 1
    assert "follows instead of row" in state.damaged[0]
    assert checked(tmp_path) == 1


def test_rows_that_are_there_twice_are_found(tmp_path: Path) -> None:
    path = in_segments(tmp_path).segments()[-1].path
    parts = path.read_bytes().split(b"arj\x02")
    path.write_bytes(b"arj\x02".join([*parts[:3], *parts[2:]]))
    state = state_of(tmp_path)
    assert any("rows occur more than once" in each for each in state.damaged)
    assert checked(tmp_path) == 1


@pytest.mark.parametrize("number", [0, 1])
def test_a_sealed_segment_that_was_written_again_has_no_digest(tmp_path: Path, number: int) -> None:
    path = in_segments(tmp_path, sealed=True).segments()[number].path
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    state = state_of(tmp_path)
    assert f"segment {path.name} has no digest" in state.damaged
    assert checked(tmp_path) == 1


@pytest.mark.parametrize(
    "columns",
    [
        ColumnArrays({"offset": bytes(15)}, {}),
        ColumnArrays({"nothing": bytes(16)}, {}),
        ColumnArrays({"topic": bytes(16)}, {}),
        ColumnArrays({}, {"kind": (["START"], [1])}),
        ColumnArrays({}, {"kind": (["START"], [1, 1])}),
        ColumnArrays({}, {"kind": (["START", "END"], [3, -1])}),
        ColumnArrays({}, {"kind": ([1], [2])}),
        ColumnArrays({}, {"offset": (["1"], [2])}),
        ColumnArrays({}, {"partition": ([2**31], [2])}),
        ColumnArrays({}, {"offset": ([2**63], [2])}),
        ColumnArrays({}, {"nothing": ([1], [2])}),
        ColumnArrays({"offset": bytes(16)}, {"offset": ([1], [2])}),
        ColumnArrays({"offset": bytes(16)}, {}, {"offset": b""}),
        ColumnArrays({}, {}, {"offset": b"\x03"}),
    ],
    ids=repr,
)
def test_a_batch_whose_columns_are_not_those_of_its_rows_is_rejected(columns: ColumnArrays) -> None:
    payload = encoded(columns)
    with pytest.raises(ValueError, match=r"column|rows"):
        decoded(payload, 2)
    frame = frames(RowBatch(0, 2, columns))
    header = header_frame(SegmentHeader(A, None, 1), 0).data
    content = read_blob(header + b"".join(each.data for each in frame))
    assert content.damaged is not None
    assert "cannot be read" in content.damaged


def test_a_batch_is_the_same_in_two_halves() -> None:
    chance = random.Random(10)
    columns = ColumnArrays(
        {
            "offset": columns_of_batches.plain("offset", range(13)),
            "partition": columns_of_batches.plain("partition", range(13)),
        },
        {"topic": (["a", "b", None], [4, 5, 4]), "at_us": ([7], [13])},
    )
    columns_of_batches.put_plain(
        columns, "key_hash", [None if chance.random() < 0.4 else n for n in range(13)]
    )

    def read(*batches: RowBatch) -> list[dict[str, Any]]:
        header = header_frame(SegmentHeader(A, None, 1), 100).data
        data = b"".join(frame.data for batch in batches for frame in frames(batch))
        content = read_blob(header + data)
        assert content.damaged is None
        return [row for batch in content.batches for row in batch.to_pylist()]

    batch = RowBatch(100, 13, columns)
    one, other = split(batch)
    assert read(one, other) == read(batch)
    assert read(*split(one), *split(other)) == read(batch)


def test_a_log_of_a_later_version_is_not_taken_for_one_of_this() -> None:
    header = header_frame(SegmentHeader(A, None, 1, version=VERSION + 1), 0).data
    rows = [frame.data for frame in encode(JournalMember("a", 0, 1).rows(), 0)]
    content = read_blob(b"".join([header, *rows]))
    assert (
        content.damaged == f"it has version {VERSION + 1}, and only version {VERSION} can be read"
    )
