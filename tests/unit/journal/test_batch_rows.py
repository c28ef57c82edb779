"""The record batches of handled records, as a journal has them."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from unit.journal.journal_rows import rows

from asyncrevoke import Consumer, Record
from asyncrevoke.journal import Journal
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.journal.format.schema import Content


async def test_the_batches_of_what_was_handled_are_written_down(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))

    @consumer.handler("orders")
    async def bill(record: Record) -> None: ...

    async with TestConsumer(consumer, partitions=2) as t:
        for number in range(40):
            await t.publish("orders", b"%d" % number, partition=number % 2)
        await t.advance(1)
    batches, calls = rows(tmp_path, "FETCHED"), rows(tmp_path, "ATTEMPT")
    covered = [
        (row["topic"], row["partition"], offset)
        for row in batches
        for offset in range(row["offset"], row["last_offset"] + 1)
    ]
    assert Counter(covered) == Counter((r["topic"], r["partition"], r["offset"]) for r in calls)
    assert all(row["records"] == 1 and row["checksum"] is not None for row in batches)
    came = {(row["partition"], row["offset"]): row["started_us"] for row in batches}
    assert all(came[row["partition"], row["offset"]] <= row["started_us"] for row in calls)


async def test_a_batch_is_on_disk_before_a_record_of_it_is_committed(
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


@pytest.mark.parametrize("content", [None, "records"])
async def test_batches_are_not_written_down_unless_they_are_wanted(
    tmp_path: Path, content: Content | None
) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path, content=content))

    @consumer.handler("orders")
    async def bill(record: Record) -> None: ...

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(1)
    assert rows(tmp_path, "FETCHED") == []
    assert len(rows(tmp_path, "ATTEMPT")) == 1
