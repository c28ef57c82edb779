"""Rows of a journal are on disk before a commit covers them, and rows of commits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import pytest
from unit.journal.journal_rows import rows_of
from unit.journal.recording.journalled_member import ACCEPTED, JournalledMember, commit_of

from asyncrevoke import Consumer, FatalError, Record
from asyncrevoke.client.core.io.effects import Channel, Node, Send
from asyncrevoke.journal import Journal
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.client.core.io.effects import Failed, Replied
    from asyncrevoke.client.runtime.net.requests import Requests


async def test_no_offset_is_committed_whose_rows_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))

    @consumer.handler("orders")
    async def bill(record: Record) -> None:
        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)

    t = TestConsumer(consumer, partitions=1)
    with pytest.raises(FatalError, match="No space left"):
        async with t:
            await t.publish("orders", b"1")
            await t.advance(5)
    assert t.committed("orders", 0) in (None, 0)


async def test_a_record_batch_is_on_disk_before_its_records_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path), commit_interval=1)
    on_disk: list[set[str]] = []
    sync = os.fsync

    def seen(descriptor: int) -> None:
        sync(descriptor)
        assert t.committed("orders", 0) is None
        on_disk.append({row["kind"] for row in read_journal(tmp_path).table.to_pylist()})

    @consumer.handler("orders")
    async def bill(record: Record) -> None: ...

    t = TestConsumer(consumer, partitions=1)
    async with t:
        await t.publish("orders", b"1")
        monkeypatch.setattr(os, "fsync", seen)
        await t.advance(1.5)
        monkeypatch.undo()
        assert t.committed("orders", 0) == 1
    assert {"FETCHED", "ATTEMPT"} <= on_disk[-1]


async def test_the_row_of_a_commit_says_when_it_was_sent(tmp_path: Path) -> None:
    now = 1_800_000_000.0

    class Stopped:
        """The process is stopped before it reads the response."""

        async def request(self, send: Send) -> Replied | Failed:
            nonlocal now
            now += 10
            return ACCEPTED

    member = JournalledMember(tmp_path, wall_clock=lambda: now)
    await member.begin()
    sent = Send(1, commit_of(5), Node(1, "a", 1), Channel.COMMIT, timeout=5)
    gate = member.recorder.requests(cast("Requests", Stopped()))
    assert await gate.request(sent) is ACCEPTED
    await member.recorder.aclose()
    (row,) = rows_of(tmp_path, "COMMIT")
    assert (row["offset"], row["outcome"]) == (5, "ok")
    assert (row["started_us"], row["at_us"]) == (1_800_000_000_000_000, 1_800_000_010_000_000)
