"""``Consumer.records()``: every rule that holds for batches, while records of a step are left."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from asyncrevoke import Consumer, Record, TopicPartition
from asyncrevoke.client.runtime.hooks.observers import Observer
from asyncrevoke.journal import Journal
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path
    from typing import Unpack

    from asyncrevoke.client.config import CommitMode, ConsumerOptions
    from asyncrevoke.client.model import PollResult


def tp(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


@asynccontextmanager
async def reading(
    records: int, *, partitions: int = 1, **options: Unpack[ConsumerOptions]
) -> AsyncGenerator[tuple[Consumer, TestConsumer]]:
    """A member whose partitions hold ``records`` records each, all of them fetched."""
    options["group_id"] = "billing"
    consumer = Consumer("orders", **options)
    async with TestConsumer(consumer, partitions=partitions) as t:
        for number in range(partitions):
            for offset in range(records):
                await t.publish("orders", f"{number}-{offset}", partition=number)
        await t.advance(1)
        yield consumer, t


async def take(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    records = consumer.records()
    taken = [await anext(records) for _ in range(count)]
    return [(record.partition, record.offset) for record in taken]


async def offsets(consumer: Consumer, count: int) -> list[int]:
    return [offset for _, offset in await take(consumer, count)]


async def nothing_comes(consumer: Consumer, t: TestConsumer) -> bool:
    """Whether the next record is waited for; then it is not asked for any more."""
    waiting = asyncio.ensure_future(anext(consumer.records()))
    await t.advance(1)
    came = waiting.done()
    waiting.cancel()
    await asyncio.wait((waiting,))
    return not came


# --- what changes what is delivered ----------------------------------------------------------


async def test_after_a_seek_the_next_record_is_the_one_that_was_sought() -> None:
    async with reading(10) as (consumer, t):
        assert await offsets(consumer, 10) == list(range(10))
        consumer.seek(tp(0), 0)
        assert await offsets(consumer, 5) == [0, 1, 2, 3, 4]
        consumer.seek(tp(0), 3)
        assert await offsets(consumer, 7) == [3, 4, 5, 6, 7, 8, 9]
        assert await nothing_comes(consumer, t)


async def test_a_seek_of_one_partition_leaves_the_records_of_others_in_their_order() -> None:
    async with reading(4, partitions=2) as (consumer, t):
        first = await take(consumer, 1)
        consumer.seek(tp(0), 2)
        rest = await take(consumer, 5 if first == [(1, 0)] else 6)
        assert [at for number, at in rest if number == 0] == [2, 3]
        assert [at for number, at in first + rest if number == 1] == [0, 1, 2, 3]
        assert await nothing_comes(consumer, t)


async def test_seeking_to_the_end_drops_what_was_not_delivered() -> None:
    async with reading(5) as (consumer, t):
        assert await offsets(consumer, 2) == [0, 1]
        await consumer.seek_to_end(tp(0))
        assert await nothing_comes(consumer, t)
        await t.publish("orders", "new", partition=0)
        assert await offsets(consumer, 1) == [5]


async def test_nothing_of_a_paused_partition_is_delivered_until_it_is_resumed() -> None:
    async with reading(4, partitions=2) as (consumer, t):
        assert await take(consumer, 1) == [(0, 0)]
        consumer.pause(tp(0))
        assert await take(consumer, 4) == [(1, 0), (1, 1), (1, 2), (1, 3)]
        assert await nothing_comes(consumer, t)
        consumer.resume(tp(0))
        assert await take(consumer, 3) == [(0, 1), (0, 2), (0, 3)]


async def test_a_wait_for_the_next_record_ends_when_a_partition_is_resumed() -> None:
    async with reading(2) as (consumer, t):
        assert await offsets(consumer, 1) == [0]
        consumer.pause(tp(0))
        waiting = asyncio.ensure_future(anext(consumer.records()))
        await t.advance(1)
        consumer.resume(tp(0))
        assert (await waiting).offset == 1


async def test_stopping_ends_the_iterator_before_records_that_were_not_delivered() -> None:
    async with reading(50) as (consumer, t):
        seen: list[int] = []
        async for record in consumer.records():
            seen.append(record.offset)
            if len(seen) == 3:
                consumer.stop()
        assert seen == [0, 1, 2]
        await consumer.aclose()
        assert t.committed("orders", 0) == 3


async def test_nothing_is_delivered_after_closing() -> None:
    async with reading(80) as (consumer, t):
        assert await offsets(consumer, 4) == [0, 1, 2, 3]
        await consumer.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(consumer.records())
        # The last one may be worked on still: its next one was never asked for.
        assert t.committed("orders", 0) == 3


async def test_nothing_is_delivered_after_unsubscribing() -> None:
    async with reading(10) as (consumer, t):
        assert await offsets(consumer, 1) == [0]
        unsubscribing = asyncio.ensure_future(consumer.unsubscribe())
        await t.advance(1)
        await unsubscribing
        assert await nothing_comes(consumer, t)


async def test_nothing_is_delivered_of_a_lost_partition() -> None:
    async with reading(4, partitions=2) as (consumer, t):
        assert await take(consumer, 1) == [(0, 0)]
        await t.lose(("orders", 0))
        assert [number for number, _ in await take(consumer, 4)] == [1] * 4


# --- a revoke --------------------------------------------------------------------------------


async def test_a_revoked_partition_goes_when_the_next_record_is_asked_for() -> None:
    async with reading(10, partitions=2) as (consumer, t):
        assert await take(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        await t.revoke(("orders", 0))
        # A step could return all records of the other one, and the revoke would wait for them.
        others = await take(consumer, 2)
        await t.advance(1)
        assert tp(0) not in consumer.assignment()
        assert t.committed("orders", 0) == 3
        others += await take(consumer, 8)
        assert others == [(1, offset) for offset in range(10)]


async def test_a_withdrawn_revocation_resumes_after_the_last_record() -> None:
    async with reading(6, commit_mode="ack") as (consumer, t):
        records = consumer.records()
        first = [await anext(records), await anext(records)]
        await t.revoke(("orders", 0))
        waiting = asyncio.ensure_future(anext(records))
        await t.advance(1)
        assert not waiting.done()
        await t.withdraw(("orders", 0))
        assert (await waiting).offset == 2
        for record in first:
            assert consumer.ack(record)
        assert await offsets(consumer, 3) == [3, 4, 5]


# --- idle ------------------------------------------------------------------------------------


async def test_a_loop_that_asks_every_few_seconds_is_not_idle() -> None:
    async with reading(100) as (consumer, t):
        for offset in range(100):
            assert await offsets(consumer, 1) == [offset]
            assert (consumer.health().idle_seconds or 0) < 1
            await t.advance(4)
        assert t.committed("orders", 0) == 99
        assert consumer.assignment() == {tp(0)}


async def test_a_loop_that_asks_no_more_is_idle_although_records_are_left() -> None:
    async with reading(10) as (consumer, t):
        assert await offsets(consumer, 1) == [0]
        await t.advance(290)
        assert await offsets(consumer, 1) == [1]
        await t.advance(299)
        assert consumer.assignment() == {tp(0)}
        await t.advance(25)
        assert consumer.assignment() == set()


# --- counting --------------------------------------------------------------------------------


async def test_each_record_is_committed_after_the_next_was_asked_for() -> None:
    async with reading(10) as (consumer, t):
        await offsets(consumer, 1)
        await t.advance(2)
        assert t.committed("orders", 0) == 0
        await offsets(consumer, 3)
        await t.advance(2)
        assert t.committed("orders", 0) == 3
        assert consumer.position(tp(0)) == 4
        assert consumer.health().in_flight == 1
        await consumer.commit()
        assert await offsets(consumer, 6) == [4, 5, 6, 7, 8, 9]


async def test_the_last_batch_counts_when_the_first_record_is_asked_for() -> None:
    async with reading(10, max_poll_records=5) as (consumer, t):
        batch = await consumer.poll()
        assert len(batch.records) == 5
        assert await offsets(consumer, 1) == [5]
        await t.advance(2)
        assert t.committed("orders", 0) == 5
        assert await offsets(consumer, 4) == [6, 7, 8, 9]
        await t.revoke(("orders", 0))
        assert await nothing_comes(consumer, t)
        assert t.committed("orders", 0) == 10


@pytest.mark.parametrize("mode", ["processed", "manual", "ack"])
async def test_what_records_left_is_the_next_batch(mode: CommitMode) -> None:
    async with reading(10, commit_mode=mode, max_poll_records=4) as (consumer, _t):
        assert await offsets(consumer, 2) == [0, 1]
        assert [r.offset for r in (await consumer.poll(max_records=1)).records] == [2]
        assert await offsets(consumer, 1) == [3]
        assert [r.offset for r in (await anext(consumer)).records] == [4, 5, 6, 7]
        assert await offsets(consumer, 2) == [8, 9]


async def test_by_hand_a_commit_covers_what_was_delivered() -> None:
    async with reading(10, commit_mode="manual") as (consumer, t):
        assert await offsets(consumer, 2) == [0, 1]
        await consumer.commit()
        assert t.committed("orders", 0) == 2
        assert await offsets(consumer, 8) == list(range(2, 10))
        await consumer.commit()
        assert t.committed("orders", 0) == 10


async def test_acknowledged_records_are_committed_and_no_others() -> None:
    async with reading(10, commit_mode="ack", max_in_flight=5) as (consumer, t):
        records = consumer.records()
        taken = [await anext(records) for _ in range(5)]
        assert await nothing_comes(consumer, t)
        for record in taken[:3]:
            consumer.ack(record)
        await t.advance(2)
        assert t.committed("orders", 0) == 3
        assert await offsets(consumer, 3) == [5, 6, 7]


async def test_a_task_group_holds_the_records_that_it_was_given() -> None:
    gate = asyncio.Event()

    async def work(_record: Record) -> None:
        await gate.wait()

    async with reading(6) as (consumer, t):
        assert await offsets(consumer, 1) == [0]
        async with consumer.task_group(order_by=None) as tasks:
            records = consumer.records()
            await anext(records)  # 1 counts when the next is asked for
            assert await tasks.submit(work, await anext(records))
            assert await offsets(consumer, 2) == [3, 4]
            await t.advance(2)
            assert t.committed("orders", 0) == 2
            gate.set()
            await t.advance(2)
            assert t.committed("orders", 0) == 4
        assert await offsets(consumer, 1) == [5]


async def test_observers_count_the_records_that_were_delivered() -> None:
    class Counting(Observer):
        def __init__(self) -> None:
            self.records: list[int] = []

        def on_poll(self, batch: PollResult) -> None:
            self.records += [record.offset for record in batch.records]

    counting = Counting()
    consumer = Consumer("orders", group_id="billing")
    consumer.observe(counting)
    async with TestConsumer(consumer, partitions=1) as t:
        for offset in range(6):
            await t.publish("orders", f"{offset}", partition=0)
        await t.advance(1)
        await offsets(consumer, 2)
        await t.advance(2)
        assert counting.records == [0, 1]
        consumer.pause(tp(0))
        consumer.resume(tp(0))
        await offsets(consumer, 1)
        await consumer.poll()
        await t.advance(2)
        assert counting.records == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("mode", "outcomes"),
    [
        ("processed", [(0, "ok"), (1, "ok"), (2, "given_up")]),
        ("manual", [(0, "delivered"), (1, "delivered"), (2, "delivered")]),
        ("ack", [(1, "ok"), (0, "given_up"), (2, "given_up")]),
    ],
)
async def test_a_journal_has_the_records_that_were_delivered(
    mode: CommitMode, outcomes: list[tuple[int, str]], tmp_path: Path
) -> None:
    consumer = Consumer("orders", group_id="g", commit_mode=mode, journal=Journal(tmp_path))
    async with TestConsumer(consumer, partitions=1) as t:
        for offset in range(6):
            await t.publish("orders", f"{offset}", partition=0)
        await t.advance(1)
        records = consumer.records()
        taken = [await anext(records) for _ in range(3)]
        if mode == "ack":
            consumer.ack(taken[1])
    table = read_journal(tmp_path).table.sort_by("seq")
    rows = [row for row in table.to_pylist() if row["kind"] == "ATTEMPT"]
    assert [(row["offset"], row["outcome"]) for row in rows] == outcomes
