"""TestConsumer with consumers that are iterated over, and task groups."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from unit.testing.billing_consumer import billing, tp

from asyncrevoke import (
    Consumer,
    IllegalStateError,
    Record,
)
from asyncrevoke.client.errors import NoOffsetError
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@asynccontextmanager
async def looping(consumer: Consumer, steps: list[object]) -> AsyncGenerator[asyncio.Task[None]]:
    """Iterate over the consumer in a task of its own, and write down what each step returns."""

    async def loop() -> None:
        async for records, to_be_revoked, lost in consumer:
            steps.append(([r.value for r in records], sorted(to_be_revoked), sorted(lost)))

    task = asyncio.create_task(loop())
    try:
        yield task
    finally:
        consumer.stop()
        await asyncio.wait((task,))


async def test_assigned_partitions_can_be_read_without_a_group() -> None:
    consumer = Consumer()
    consumer.assign([tp(6)])
    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x", partition=6)
        assert [record.value for record in (await consumer.poll()).records] == [b"x"]


async def test_a_seek_replaces_the_missing_committed_offset() -> None:
    consumer = Consumer(auto_offset_reset="error")
    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x", partition=2)
        await t.publish("orders", "y", partition=2)
        consumer.assign([tp(2), tp(3)])
        consumer.seek(tp(2), 1)
        with pytest.raises(NoOffsetError, match="orders-3: no committed"):
            await consumer.poll()
        assert [record.value for record in (await consumer.poll()).records] == [b"y"]


async def test_a_pattern_finds_topics_that_are_created_later() -> None:
    consumer = Consumer(group_id="billing", metadata_max_age=10)
    values: list[str] = []

    @consumer.handler(pattern="orders-.*")
    async def handle(value: str) -> None:
        values.append(value)

    async with TestConsumer(consumer, topics={"orders-eu": 1}) as t:
        await t.publish("orders-eu", "a")
        assert values == ["a"]
        await t.publish("orders-us", "b")
        await t.advance(30)
        assert values == ["a", "b"]


async def test_a_consumer_without_a_group_can_be_tested() -> None:
    consumer = Consumer("orders", group_id=None)
    values: list[object] = []
    async with TestConsumer(consumer) as t, looping(consumer, values):
        await t.publish("orders", "x")
        assert values == [([b"x"], [], [])]


async def test_a_test_consumer_is_entered_once_and_before_it_is_used() -> None:
    t = TestConsumer(billing().consumer)
    with pytest.raises(IllegalStateError, match="use `async with TestConsumer"):
        t.assignment()
    async with t:
        pass
    with pytest.raises(IllegalStateError, match="was entered before"):
        await t.__aenter__()


async def test_a_loop_in_a_task_receives_records_revocations_and_losses() -> None:
    consumer = Consumer("orders", group_id="billing")
    steps: list[object] = []
    async with TestConsumer(consumer) as t, looping(consumer, steps):
        await t.publish("orders", "x", partition=0)
        await t.revoke(("orders", 0))
        await t.lose(("orders", 1))
    assert steps == [
        ([b"x"], [], []),
        ([], [tp(0)], []),
        ([], [], [tp(1), tp(2), tp(3)]),
    ]
    assert t.committed("orders", 0) == 1


async def test_the_test_itself_may_poll() -> None:
    consumer = Consumer("orders", group_id="billing", commit_mode="ack")
    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x", partition=0)
        (record,) = (await consumer.poll()).records
        assert t.in_flight == 1
        assert consumer.ack(record)
        await t.advance(2)
        assert t.committed("orders", 0) == 1
        assert not (await consumer.poll(timeout=0.02)).records


async def test_assignment_contains_partitions_whose_revocation_is_delayed() -> None:
    consumer = Consumer("orders", group_id="billing")
    release = asyncio.Event()

    async def loop() -> None:
        async for batch in consumer:
            if batch.to_be_revoked and not release.is_set():
                consumer.delay_revoke(batch.to_be_revoked)

    async with TestConsumer(consumer) as t:
        task = asyncio.create_task(loop())
        await t.revoke(("orders", 0))
        await t.advance(5)
        assert tp(0) in t.assignment()
        release.set()
        await t.advance(1)
        assert tp(0) not in t.assignment()
        consumer.stop()
        await task


async def test_a_task_group_runs_in_virtual_time() -> None:
    consumer = Consumer("orders", group_id="billing")
    done: list[bytes | None] = []

    async def work(record: Record) -> None:
        await asyncio.sleep(10)
        done.append(record.value)

    async def loop() -> None:
        async with consumer.task_group(concurrency=4) as tasks:
            async for batch in consumer:
                for record in batch.records:
                    await tasks.submit(work, record)

    async with TestConsumer(consumer) as t:
        task = asyncio.create_task(loop())
        await t.publish("orders", "x", partition=0)
        assert t.in_flight == 1
        await t.advance(11.5)
        assert done == [b"x"]
        assert t.committed("orders", 0) == 1
        consumer.stop()
        await task
