"""The limit of calls within a time."""

from __future__ import annotations

from typing import Any, cast

from unit.handlers.policy.limited_handlers import CLICKS, records, two
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import (
    ORDERS,
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

PER_SECOND = RateLimit(2)


async def test_no_more_calls_begin_within_the_time_than_the_rate_allows() -> None:
    work = HeldWork()
    async with running(work, rate_limit=RateLimit(2, per=1.0)) as run:
        run.source.feed(*records(5))
        await turns()
        assert work.offsets == [0, 1]
        work.end()
        run.clock.advance(0.9)
        await turns()
        assert work.offsets == [0, 1]
        run.clock.advance(0.1)
        await turns()
        assert work.offsets == [0, 1, 2, 3]
        work.end()
        run.clock.advance(1)
        await turns()
        work.end()
        await run.stop()
        assert work.offsets == [0, 1, 2, 3, 4]


async def test_other_handlers_run_while_one_waits_for_its_rate() -> None:
    async with two(concurrency=2, limits={"rate_limit": PER_SECOND}) as both:
        both.source.feed(*records(20), *records(20, CLICKS))
        for _ in range(30):
            await turns(5)
            both.orders.end()
            both.clicks.end()
        assert both.orders.offsets == [0, 1]
        assert both.clicks.offsets == list(range(20))


async def test_a_retry_counts_for_the_rate() -> None:
    calls: list[float] = []

    async def fails(of: Record) -> None:
        calls.append(run.clock.now)
        raise ValueError("boom")

    retry = Retry(attempts=4, backoff=0.1, max_backoff=0.1, jitter=0)
    async with running(fails, rate_limit=PER_SECOND, retry=retry, on_error="skip") as run:
        only = record(0)
        run.source.feed(only)
        for _ in range(40):
            await turns()
            run.clock.advance(0.1)
        await until(lambda: only in run.source.completions)
        await run.stop()
    assert len(calls) == 4
    assert calls[1] < 1
    assert calls[2] >= calls[0] + 1
    assert calls[3] >= calls[1] + 1


async def test_a_dead_letter_does_not_wait_for_the_rate() -> None:
    class Letters:
        sent = 0

        async def send(self, topic: str, letter: object) -> None:
            self.sent += 1

    async def fails(of: Record) -> None:
        raise ValueError("boom")

    letters = Letters()
    async with running(
        fails, rate_limit=RateLimit(1), dead_letter="dlq", dead_letters=cast("Any", letters)
    ) as run:
        run.source.feed(*records(2))
        await until(lambda: letters.sent == 1)
        await turns()
        assert len(run.source.completions) == 1
        run.clock.advance(1)
        await until(lambda: letters.sent == 2)
        await run.stop()


async def test_a_revocation_drops_records_that_wait_for_the_rate() -> None:
    work = HeldWork()
    async with running(work, rate_limit=PER_SECOND) as run:
        taken = records(5)
        run.source.feed(*taken)
        await until(lambda: len(work.running) == 2)
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.dropped_after)
        assert run.source.dropped_after == [(ORDERS, 1)]
        assert run.clock.timers == []
        work.end()
        run.clock.advance(10)
        await turns()
        assert work.offsets == [0, 1]
        assert run.source.commit_point(taken) == 2
        await run.stop()


async def test_records_below_the_last_started_run_at_their_rate_before_the_release() -> None:
    work = HeldWork()
    a0, a1, b2, b3 = record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, b"b")
    async with running(work, rate_limit=PER_SECOND) as run:
        run.source.feed(a0, a1, b2, b3)
        await until(lambda: work.running == [a0, b2])
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.state_of(b3) is RecordState.DROPPED)
        work.end()
        await turns()
        assert work.started == [a0, b2], "the drain waits for the rate"
        run.clock.advance(1)
        await until(lambda: work.running == [a1])
        work.end()
        await run.stop()
        assert run.source.commit_point([a0, a1, b2]) == 3


async def test_a_lost_partition_does_not_count_for_limits() -> None:
    work = HeldWork()
    async with running(work, rate_limit=RateLimit(1), handler_concurrency=1) as run:
        run.source.feed(*records(5), *records(2, OTHERS))
        await until(lambda: len(work.running) == 1)
        run.source.feed(lost=[ORDERS])
        await until(lambda: len(work.cancelled) == 1)
        assert work.running == []
        run.clock.advance(1)
        await until(lambda: [each.partition for each in work.running] == [1])
        work.end()
        run.clock.advance(1)
        await until(lambda: len(work.started) == 3)
        work.end()
        await run.stop()
        assert [completion.topic_partition for completion in run.source.completions] == [
            OTHERS,
            OTHERS,
        ]


async def test_cancelling_the_runner_leaves_no_timer_of_the_rate() -> None:
    work = HeldWork()
    async with running(work, rate_limit=RateLimit(1)) as run:
        run.source.feed(*records(5))
        await until(lambda: work.running)
        assert run.clock.timers == [1.0]


async def test_a_rate_holds_in_virtual_time() -> None:
    consumer = Consumer(group_id="billing")
    began: list[float] = []
    clicked: list[bytes] = []

    @consumer.handler("orders", rate_limit=RateLimit(10, per=60))
    async def bill(value: bytes) -> None:
        began.append(round(t.time))

    @consumer.handler("clicks")
    async def count(value: bytes) -> None:
        clicked.append(value)

    async with TestConsumer(consumer) as t:
        for number in range(25):
            await t.publish("orders", b"", key=b"%d" % number)
        await t.publish("clicks", b"1")
        assert len(began) == 10
        assert clicked == [b"1"]
        await t.advance(59)
        assert len(began) == 10
        await t.advance(62)
    assert len(began) == 25
    assert max(began[10:20]) - min(began) >= 60
    assert max(began[20:]) - min(began[10:20]) >= 60


async def test_a_revocation_leaves_records_that_wait_for_the_rate_to_the_next_owner() -> None:
    consumer = Consumer(group_id="billing")
    billed: list[bytes] = []

    @consumer.handler("orders", rate_limit=RateLimit(1, per=60))
    async def bill(value: bytes) -> None:
        billed.append(value)

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(5):
            await t.publish("orders", b"%d" % number, key=b"%d" % number)
        assert billed == [b"0"]
        await t.revoke(("orders", 0))
        await t.advance(300)
        assert billed == [b"0"]
        assert t.committed("orders", 0) == 1
        assert t.in_flight == 0
        await t.give(("orders", 0))
        await t.advance(61)
        assert billed[:2] == [b"0", b"1"]
