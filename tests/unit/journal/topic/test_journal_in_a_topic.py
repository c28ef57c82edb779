"""Pieces of a journal, as they are put into a topic."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from unit.journal.written_journal import START, TOPIC, A, record

from asyncrevoke import ConfigError, JournalError
from asyncrevoke.journal import KafkaSink
from asyncrevoke.journal.format.frames import SegmentHeader
from asyncrevoke.journal.format.schema import RowKind
from asyncrevoke.journal.recording.encoding import encode
from asyncrevoke.journal.recording.entries import Attempts, Entry, Fact
from asyncrevoke.journal.recording.log_file import LogFile
from asyncrevoke.journal.recording.shipping import Shipping
from asyncrevoke.journal.segments import JournalSession, read_blob, sessions
from asyncrevoke.journal.topic.kafka_sink import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from asyncrevoke.journal.format.frames import Frame

ROOM = 500_000 + 20_000


@pytest.mark.parametrize("hashed", [True, False])
def test_pieces_of_any_batch_are_small_enough_and_lose_no_row(hashed: bool) -> None:
    many = Attempts([record(offset) for offset in range(60_000)], START, START)
    entries: list[Entry] = [Fact(RowKind.ASSIGN, START, TOPIC, 0, 0, "m", 1), many, many]
    frames = encode(entries, 0, hashed=hashed)
    found = list(pieces(SegmentHeader(A, "billing", 0), frames))
    assert len(found) > 2
    assert max(map(len, found)) < ROOM
    contents = [read_blob(piece) for piece in found]
    assert {(content.torn, content.damaged) for content in contents} == {(None, None)}
    rows = [row for content in contents for batch in content.batches for row in batch.to_pylist()]
    assert [row["seq"] for row in rows] == list(range(120_001))
    assert rows[0]["kind"] == "ASSIGN"
    assert {row["kind"] for row in rows[1:]} == {"ATTEMPT"}
    assert [row["offset"] for row in rows[1:]] == [*range(60_000), *range(60_000)]
    assert {(row["session_id"], row["group"], row["topic"]) for row in rows} == {
        (A, "billing", TOPIC)
    }


@pytest.mark.parametrize("option", ["acks", "enable_idempotence", "transactional_id"])
def test_what_would_lose_rows_is_rejected(option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} cannot be set"):
        KafkaSink("billing-journal", **{option: 0})


def test_a_sink_without_a_topic_is_rejected() -> None:
    with pytest.raises(ConfigError, match="needs the name of a topic"):
        KafkaSink("")


class Heard:
    """A sink in memory."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.closed = False

    async def send(self, session: str, pieces: list[bytes]) -> None:
        assert session == A
        self.pieces += pieces

    async def aclose(self) -> None:
        self.closed = True


def log_of(folder: Path) -> LogFile:
    session = JournalSession(folder / A)
    session.folder.mkdir()
    return LogFile(session, "billing", segment_bytes=2**20, segment_seconds=60)


def some_frames() -> Iterator[Frame]:
    return encode([Attempts([record(0)], START, START)], 0)


async def test_a_thread_sends_by_the_event_loop(tmp_path: Path) -> None:
    sink = Heard()
    log = log_of(tmp_path)
    shipping = Shipping(sink, JournalSession(tmp_path / A))
    await asyncio.to_thread(shipping.send, log, list(some_frames()))
    await asyncio.to_thread(shipping.close)
    assert [read_blob(piece).damaged for piece in sink.pieces] == [None]
    assert sink.closed
    log.close()
    assert [session.folder.name for session in sessions(tmp_path)] == [A]


def test_sending_a_journal_after_its_event_loop_has_ended_raises(tmp_path: Path) -> None:
    async def made() -> Shipping:
        return Shipping(Heard(), JournalSession(tmp_path / A))

    shipping = asyncio.run(made())
    log = log_of(tmp_path)
    with pytest.raises(JournalError, match="its event loop has ended"):
        shipping.send(log, list(some_frames()))
    log.close()
