"""The example counts_per_key.py in virtual time: each record is counted once, whatever happens."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

from asyncrevoke.testing import TestConsumer
from examples.groups.counts_per_key import Counts, make_consumer

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

KEYS = 7


def counted(path: Path) -> Counter[bytes]:
    with closing(sqlite3.connect(path)) as database:
        return Counter(dict(database.execute("SELECT key, count FROM counts")))


async def publish(t: TestConsumer, published: Counter[bytes], count: int) -> None:
    for number in range(count):
        key = f"key {number % KEYS}"
        await t.publish("clicks", b"", key=key)
        published[key.encode()] += 1


async def test_each_record_is_counted_once_through_losses_crashes_and_revocations(
    tmp_path: Path,
) -> None:
    path, published = tmp_path / "counts.sqlite", Counter[bytes]()

    def member() -> TestConsumer:
        return TestConsumer(make_consumer("nowhere:9", "clicks", "counts", str(path)))

    async with member() as t:
        await publish(t, published, 30)
        await t.advance(1)
        for partition in range(2):
            await publish(t, published, 20)
            await t.lose(("clicks", partition))
            await t.advance(1)
            await t.give(("clicks", partition))
            await t.advance(1)
        await t.revoke(("clicks", 2))
        await t.give(("clicks", 2))
        await publish(t, published, 20)
        await t.crash()
        await publish(t, published, 20)
        again = make_consumer("nowhere:9", "clicks", "counts", str(path))
        await t.restart(again)
        await publish(t, published, 20)
        await t.advance(10)
        assert counted(path) == published


async def test_what_was_counted_and_not_committed_is_not_counted_again(tmp_path: Path) -> None:
    path, published = tmp_path / "counts.sqlite", Counter[bytes]()
    consumer = make_consumer("nowhere:9", "clicks", "counts", str(path))
    async with TestConsumer(consumer) as t:
        await publish(t, published, 30)
        await t.advance(0.2)
        assert counted(path) == published
        assert all(t.committed("clicks", each) in (None, 0) for each in range(4))
        await t.crash()
        await t.restart(make_consumer("nowhere:9", "clicks", "counts", str(path)))
        await t.advance(30)
        assert counted(path) == published


async def test_a_former_owner_cannot_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transaction comes after the new owner's lifespan was entered."""
    path, published = tmp_path / "counts.sqlite", Counter[bytes]()
    consumer = make_consumer("nowhere:9", "clicks", "counts", str(path))
    add, rejected = Counts.add, list[RuntimeError]()

    def add_late(self: Counts, records: object) -> None:
        if not rejected:
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("UPDATE positions SET owner = 'another'")
        try:
            add(self, records)  # type: ignore[arg-type]
        except RuntimeError as error:
            rejected.append(error)
            raise

    monkeypatch.setattr(Counts, "add", add_late)
    async with TestConsumer(consumer, partitions=1) as t:
        await publish(t, published, 3)
        await t.advance(1)
        assert "another member" in str(rejected[0])
        assert counted(path) == Counter()
