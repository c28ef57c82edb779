"""Segments: when they are sealed, and what a torn log leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unit.journal.journal_rows import attempts_of, plain_table
from unit.journal.written_journal import A, clean_run

from asyncrevoke import Consumer, Record
from asyncrevoke.journal import Journal
from asyncrevoke.journal.reading import JournalContent, read_journal
from asyncrevoke.journal.segments import JournalSession, seal_session, sessions
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_segment_is_sealed_when_it_reaches_segment_bytes(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path, segment_bytes=1))

    @consumer.handler("orders")
    async def bill(record: Record) -> None: ...

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(3):
            await t.publish("orders", b"%d" % number)
            await t.advance(2)
    (state,) = read_journal(tmp_path).sessions
    assert state.segments == state.sealed > 3
    assert state.gap is None
    assert [offset for _, offset, _, _ in attempts_of(tmp_path)] == [0, 1, 2]


def read_torn(tmp_path: Path, cut: int) -> JournalContent:
    """A log whose end is missing."""
    member, _ = clean_run()
    member.write(tmp_path)
    log = tmp_path / A / "000001.log"
    log.write_bytes(log.read_bytes()[:-cut])
    return read_journal(tmp_path)


def test_rows_before_a_torn_end_are_read(tmp_path: Path) -> None:
    whole = read_torn(tmp_path / "whole", 1).table.num_rows
    content = read_torn(tmp_path / "torn", 3)
    (state,) = content.sessions
    assert content.table.num_rows == whole > 0
    assert state.torn is not None
    assert "torn" in state.torn
    assert not state.missing
    assert state.gap is not None


def test_a_torn_log_is_sealed_without_its_torn_end(tmp_path: Path) -> None:
    read_torn(tmp_path, 3)
    before = plain_table(tmp_path)
    (session,) = sessions(tmp_path)
    sealed = seal_session(session)
    assert sealed is not None
    assert [segment.path.name for segment in sealed] == ["000001.parquet"]
    assert plain_table(tmp_path).equals(before.combine_chunks())


def test_a_session_whose_lock_is_held_is_not_sealed(tmp_path: Path) -> None:
    member, _ = clean_run()
    member.write(tmp_path)
    session = JournalSession(tmp_path / A)
    with session.lock().acquire():
        assert session.live
        assert seal_session(session) is None
    assert not session.live
