"""Limits of single handlers: calls at once, calls within a time, records in flight."""

from __future__ import annotations

import asyncio

from unit.handlers.policy.limited_handlers import CLICKS, records, two
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import (
    OTHERS,
    HeldWork,
    RecordState,
    record,
    turns,
    until,
)

from asyncrevoke import Consumer, RateLimit
from asyncrevoke.client.model import Record  # noqa: TC001 - handlers' annotations are read
from asyncrevoke.handlers.policy.retry import Retry
from asyncrevoke.testing import TestConsumer


async def test_no_more_calls_of_a_handler_run_at_once_than_its_concurrency() -> None:
    work = HeldWork()
    async with running(work, concurrency=64, handler_concurrency=3) as run:
        run.source.feed(*records(10))
        while len(work.started) < 10:
            await turns()
            assert len(work.running) == 3
            work.end(work.running[0])
        work.end()
        await run.stop()
        assert work.most_at_once == 3
        assert work.offsets == list(range(10))


async def test_records_that_wait_for_a_limit_occupy_no_worker() -> None:
    async with two(concurrency=4, limits={"concurrency": 1}) as both:
        both.source.feed(*records(20), *records(3, CLICKS))
        await turns()
        assert len(both.orders.running) == 1
        assert len(both.clicks.running) == 3


async def test_a_record_that_waits_for_its_retry_does_not_count_for_its_handlers_concurrency() -> (
    None
):
    work = HeldWork()
    async with running(
        work, handler_concurrency=1, retry=Retry(backoff=1, jitter=0), on_error="skip"
    ) as run:
        first, second = records(2)
        run.source.feed(first, second)
        await until(lambda: work.running == [first])
        work.end(error=ValueError("boom"))
        await until(lambda: work.running == [second])
        run.clock.advance(1)
        await turns()
        assert work.running == [second]
        work.end()
        await until(lambda: work.running == [first])
        work.end()
        await run.stop()
        assert run.source.in_flight == 0


async def test_limited_handlers_end_after_a_failure_that_stops_the_consumer() -> None:
    """What is below H runs to its end, although the failed record's lane is never done."""
    work = HeldWork()
    first, behind, third = record(0, b"a"), record(1, b"c"), record(2, b"c")
    async with running(work, handler_concurrency=2) as run:
        run.source.feed(first, behind, third)
        await until(lambda: work.running == [first, behind])
        work.end(first, error=ValueError("boom"))
        await turns()
        work.end()
        assert "boom" in str(await run.failure())
        assert run.source.state_of(behind) is RecordState.DONE
        assert run.source.state_of(third) is RecordState.DROPPED


async def test_batches_count_as_one_call_each() -> None:
    work = HeldWork()

    async def handle(batch: list[Record]) -> None:
        await work(batch[0])

    async with running(handle, batch=True, max_records=2, handler_concurrency=1) as run:
        run.source.feed(*records(2), *records(2, OTHERS))
        await turns()
        assert len(work.running) == 1
        work.end()
        await turns()
        assert len(work.started) == 2
        work.end()
        await run.stop()


async def test_a_backlog_of_a_limited_handler_leaves_room_for_the_others() -> None:
    consumer = Consumer(group_id="billing", max_in_flight=20)
    billed: list[bytes] = []
    clicked: list[bytes] = []

    @consumer.handler("orders", rate_limit=RateLimit(1, per=60))
    async def bill(value: bytes) -> None:
        billed.append(value)

    @consumer.handler("clicks")
    async def count(value: bytes) -> None:
        clicked.append(value)

    async with TestConsumer(consumer, partitions=2) as t:
        for number in range(40):
            await t.publish("orders", b"%d" % number, key=b"%d" % number)
        # Half of what may be in flight, and at most one more for each partition.
        assert 10 <= t.in_flight <= 12
        for number in range(100):
            await t.publish("clicks", b"%d" % number, key=b"%d" % number)
        assert len(clicked) == 100
        await t.advance(60 * 41)
        assert sorted(billed, key=int) == [b"%d" % number for number in range(40)]


async def test_a_handlers_own_max_in_flight_limits_its_topics_together() -> None:
    consumer = Consumer(group_id="billing", max_in_flight=100)
    released = asyncio.Event()

    @consumer.handler("orders", "refunds", max_in_flight=4)
    async def bill(value: bytes) -> None:
        await released.wait()

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(20):
            for topic in ("orders", "refunds"):
                await t.publish(topic, b"", key=b"%d" % number)
        assert 4 <= t.in_flight <= 5
        released.set()
        await t.advance(5)
        assert t.committed("orders", 0) == t.committed("refunds", 0) == 20
