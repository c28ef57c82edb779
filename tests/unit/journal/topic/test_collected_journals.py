"""Topics that others than ``KafkaSink`` have written to: what ``journal collect`` makes of them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Self

import pytest
from unit.journal.written_journal import START, A, B, record

from asyncrevoke import ConsumerConfig, JournalError, TopicPartition
from asyncrevoke.journal.format.columns import ColumnArrays, RowBatch
from asyncrevoke.journal.format.frames import Frame, SegmentHeader, frames, header_frame
from asyncrevoke.journal.format.schema import RowKind
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.recording.encoding import encode
from asyncrevoke.journal.recording.entries import Attempts, Entry, Fact
from asyncrevoke.journal.segments import JournalSession, sessions
from asyncrevoke.journal.session_list import ListedSession, SessionList
from asyncrevoke.journal.topic import collecting
from asyncrevoke.journal.topic.collecting import Collected, CollectedFolder, RowRanges, collect
from asyncrevoke.journal.topic.kafka_sink import pieces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path


def piece(name: str, first: int = 0, rows: int = 10) -> bytes:
    """Rows of a session, as ``KafkaSink`` sends them."""
    entries: list[Entry] = [Attempts([record(n) for n in range(rows)], START, START)]
    if first == 0:
        entries = [Fact(RowKind.BEGIN, START, facts=json.dumps({"group": "billing"})), *entries]
    (found,) = pieces(SegmentHeader(name, "billing", 0), encode(entries, first))
    return found


def by_runs(first: int, rows: int, text: str = "x") -> list[Frame]:
    """Rows that take no more bytes, however many they are."""
    columns = ColumnArrays({}, {"kind": (["ATTEMPT"], [rows]), "error": ([text], [rows])})
    return list(frames(RowBatch(first, rows, columns)))


def log_of(name: str, some: Iterable[Frame], first: int = 0) -> bytes:
    header = header_frame(SegmentHeader(name, "billing", 0), first)
    return b"".join([header.data, *(frame.data for frame in some)])


class _Consumer:
    """One partition, whose values :func:`collected` gives."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None: ...

    async def beginning_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)


def collected(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *values: bytes | None, **options: Any
) -> Collected:
    """What is made of a topic with these values."""

    async def partitions(topic: str, _config: ConsumerConfig) -> list[TopicPartition]:
        return [TopicPartition(topic, 0)]

    async def of_topic(_consumer: object, _positions: object) -> AsyncIterator[bytes | None]:
        for value in values:
            yield value

    def consumer_of(_config: ConsumerConfig) -> _Consumer:
        return _Consumer()

    monkeypatch.setattr(collecting, "consumer_of", consumer_of)
    monkeypatch.setattr(collecting, "_partitions", partitions)
    monkeypatch.setattr(collecting, "_to_the_end", of_topic)
    return asyncio.run(collect("billing-journal", folder, ConsumerConfig(), **options))


@pytest.mark.parametrize("name", ["../outside", "/outside", "..", ".", "", "a", "a\0", f"{A}/"])
def test_a_session_of_a_topic_names_no_folder_unless_its_id_is_one_of_this_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / "collected"
    hostile = str(tmp_path / "outside") if name.startswith("/") else name
    found = collected(monkeypatch, folder, piece(hostile), piece(A))
    assert found == (1, 11, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["collected"]
    assert [session.folder.name for session in sessions(folder)] == [A]


def test_only_rows_that_were_not_there_before_are_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [piece(A), piece(A, 11), piece(A, 31)]
    again = [piece(A), piece(A, 15, 2), piece(A, 20, 12), piece(A, 5, 100)]
    found = collected(monkeypatch, tmp_path / "collected", *whole, *again, piece(A, 21))
    assert found == (1, 41, 4)
    (state,) = read_journal(tmp_path / "collected").sessions
    assert (state.rows, state.missing, state.damaged) == (41, (), ())


def test_the_sessions_of_a_topic_are_listed_with_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "collected"
    collected(monkeypatch, folder, piece(A), piece(B, 11), piece(A, 11), piece("a"), piece(A))
    listed = SessionList.read(folder / "sessions.json")
    assert listed.sessions == {A: ListedSession("billing", 21), B: ListedSession("billing", 10)}
    assert [state.rows for state in read_journal(folder).sessions] == [21, 10]


@pytest.mark.parametrize(
    "hostile",
    [
        log_of(A, (f for n in range(40) for f in by_runs(n * 16_384, 16_384))),
        log_of(A, by_runs(0, 16_384, "x" * 100_000)),
        log_of(A, by_runs(2**63 - 5, 10), 2**63 - 5),
        log_of(A, by_runs(2**64 - 20, 10), 2**64 - 20),
        log_of(A, [*by_runs(0, 1), *by_runs(5, 1)]),
        piece(A) + bytes(2**20),
        piece(A)[:-1],
        b"\xff\xff\xff\xff",
        b"",
        None,
    ],
    ids=range(10),
)
def test_what_no_sink_sends_is_counted_and_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: bytes | None
) -> None:
    found = collected(monkeypatch, tmp_path / "collected", hostile, piece(B))
    assert found == (1, 11, 1)
    assert [state.name for state in read_journal(tmp_path / "collected").sessions] == [B]


def test_a_topic_with_more_sessions_than_may_be_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "collected"
    with pytest.raises(JournalError, match="more than 1 sessions"):
        collected(monkeypatch, folder, piece(A), piece(B), max_sessions=1)
    assert not list(JournalSession(folder / A).segments())


def test_few_files_are_open_however_many_sessions_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "_MOST_OPEN", 1)
    found = collected(
        monkeypatch, tmp_path / "c", piece(A), piece(B), piece(A, 11), piece(A, 21), piece(B, 11)
    )
    assert found == (2, 52, 0)
    states = read_journal(tmp_path / "c").sessions
    told = [(state.name, state.rows, state.segments, state.damaged) for state in states]
    assert told == [(A, 31, 2, ()), (B, 21, 2, ())]


def test_what_was_collected_is_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "collected"
    collected(monkeypatch, folder, piece(A))
    assert [p.stat().st_mode & 0o777 for p in (folder, folder / A)] == [0o700, 0o700]
    (segment,) = (folder / A).iterdir()
    assert segment.stat().st_mode & 0o777 == 0o600


def test_ranges_of_rows_become_one_when_nothing_is_between_them() -> None:
    ranges = RowRanges()
    taken = [ranges.add(*each) for each in ((0, 5), (10, 15), (5, 10), (15, 16), (3, 4), (15, 20))]
    assert taken == [True, True, True, True, False, False]
    assert ranges.add(16, 17)
    assert not ranges.add(0, 17)


def test_a_collected_folder_begins_with_nothing(tmp_path: Path) -> None:
    written = CollectedFolder(tmp_path / "c")
    written.begin()
    written.seal()
    assert (written.sessions, written.rows) == (0, 0)
    assert not list((tmp_path / "c").iterdir())
