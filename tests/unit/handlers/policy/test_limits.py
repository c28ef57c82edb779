"""Limits of single handlers: calls at once, calls within a time, records in flight."""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.handlers.scripted_runner import ScriptedClock, running
from unit.handlers.scripted_source import (
    ORDERS,
    OTHERS,
    Fate,
    HeldWork,
    LogLines,
    ScriptedSource,
    record,
    turns,
    until,
)

from asyncrevoke import Consumer, RateLimit
from asyncrevoke.errors import ConfigError
from asyncrevoke.handlers.execution.runner_context import RunnerContext
from asyncrevoke.handlers.policy.retry import Retry
from asyncrevoke.handlers.registry import Router
from asyncrevoke.handlers.runner import HandlerRunner
from asyncrevoke.handlers.scheduling.handler_limiter import HandlerLimiter
from asyncrevoke.handlers.scheduling.lanes import LaneQueue
from asyncrevoke.model import Record, TopicPartition
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from asyncrevoke.handlers.scheduling.partition_lanes import Entry

CLICKS = TopicPartition("clicks", 0)
PER_SECOND = RateLimit(2)


def records(count: int, partition: TopicPartition = ORDERS, start: int = 0) -> list[Record]:
    """Each with a key of its own."""
    return [record(start + i, b"%d" % (start + i), partition=partition) for i in range(count)]


class Two:
    """A runner with a limited handler of orders and a free one of clicks."""

    def __init__(self, concurrency: int, limits: dict[str, Any]) -> None:
        self.source, self.log, self.clock = ScriptedSource(), LogLines(), ScriptedClock()
        self.orders, self.clicks = HeldWork(), HeldWork()
        router = Router()

        @router.handler("orders", **limits)
        async def bill(of: Record) -> None:
            await self.orders(of)

        @router.handler("clicks")
        async def count(of: Record) -> None:
            await self.clicks(of)

        del bill, count
        context = RunnerContext(concurrency=concurrency, log=self.log, clock=self.clock)
        self.runner = HandlerRunner(self.source, router, context)


@asynccontextmanager
async def two(concurrency: int, limits: dict[str, Any]) -> AsyncGenerator[Two]:
    both = Two(concurrency, limits)
    task = asyncio.get_running_loop().create_task(both.runner.run())
    try:
        yield both
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert both.clock.timers == []


# -- calls at once --------------------------------------------------------------------------------


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
        assert run.source.fate(behind) is Fate.DONE
        assert run.source.fate(third) is Fate.DROPPED


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


# -- calls within a time --------------------------------------------------------------------------


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
        await until(lambda: run.source.fate(b3) is Fate.DROPPED)
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
        assert [each.topic_partition for each in run.source.completions] == [OTHERS, OTHERS]


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


# -- records in flight ----------------------------------------------------------------------------


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
        for number in range(100):
            await t.publish("orders", b"%d" % number, key=b"%d" % number)
        # Half of what may be in flight, and at most one more for each partition.
        assert 10 <= t.in_flight <= 12
        for number in range(100):
            await t.publish("clicks", b"%d" % number, key=b"%d" % number)
        assert len(clicked) == 100
        await t.advance(60 * 101)
        assert sorted(billed, key=int) == [b"%d" % number for number in range(100)]


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


# -- what is refused ------------------------------------------------------------------------------


def refusal(**options: Any) -> str:
    async def handle(value: bytes) -> None: ...

    with pytest.raises(ConfigError) as caught:
        Router().handler("orders", **options)(handle)
    return str(caught.value)


def test_limits_that_cannot_work_are_refused_with_the_fix() -> None:
    assert "use rate_limit=RateLimit(100, per=1.0)" in refusal(rate_limit=100)
    assert "concurrency=0" in refusal(concurrency=0)
    assert "whole number" in refusal(concurrency=1.5)
    assert "max_in_flight=0" in refusal(max_in_flight=0)
    for calls, per in ((0, 1.0), (1.5, 1.0), (1, 0), (1, -1), (1, "s")):
        with pytest.raises(ConfigError, match="RateLimit"):
            RateLimit(cast("int", calls), per=cast("float", per))


async def test_limits_beyond_those_of_the_consumer_are_refused_when_it_starts() -> None:
    for options, word in (
        ({"concurrency": 65}, "concurrency=65, and the consumer's concurrency=64"),
        ({"max_in_flight": 2001}, "max_in_flight=2001"),
        ({"batch": True, "max_in_flight": 10}, "max_records=500"),
    ):
        consumer = Consumer(group_id="billing")

        async def handle(value: list[bytes]) -> None: ...

        consumer.handler("orders", **cast("Any", options))(handle)
        with pytest.raises(ConfigError, match=word):
            await consumer.start()


# -- the gate itself ------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_sequence_of_calls_keeps_both_limits_and_loses_nothing(data: st.DataObject) -> None:
    clock = ScriptedClock()
    most = data.draw(st.sampled_from([None, 1, 3]))
    rate = data.draw(st.sampled_from([None, RateLimit(1, per=0.3), RateLimit(3, per=1.0)]))
    lanes: LaneQueue[Record] = LaneQueue("key")

    class Reactions:
        def limiter_permits(self, limiter: HandlerLimiter[Entry[Record]]) -> None:
            lanes.queue_permitted(limiter)

    limiter: HandlerLimiter[Entry[Record]] = HandlerLimiter(clock, most, rate, Reactions())
    running: list[Entry[Record]] = []
    began: list[float] = []
    queued: list[Record] = []
    offset = 0

    def take() -> None:
        if (entry := lanes.take()) is not None:
            queued.remove(entry[1])
            running.append(entry)
            began.append(clock.now)
        assert most is None or len(running) <= most
        if rate is not None:
            window = [at for at in began if at + rate.per > clock.now]
            assert len(window) <= rate.calls

    for _ in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(["put", "take", "take", "done", "again", "wait", "drain"])):
            case "put":
                keys = data.draw(st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=5))
                new = [record(offset + i, key) for i, key in enumerate(keys)]
                offset += len(new)
                lanes.put(ORDERS, new, None, limiter)
                queued += new
            case "take":
                take()
            case "done" if running:
                lanes.free_lane(running.pop(data.draw(st.integers(0, len(running) - 1))))
            case "again" if running:
                entry = running.pop()
                lanes.free_limiter(entry)
                lanes.requeue(entry)
                queued.append(entry[1])
            case "wait":
                clock.advance(data.draw(st.sampled_from([0.1, 0.5, 2.0])))
            case "drain":
                first = data.draw(st.none() | st.integers(0, 20))
                for dropped in lanes.drop_for_revocation(ORDERS, first, lambda _: False):
                    queued.remove(dropped)
            case _:
                pass
        assert lanes.queued == len(queued)
    for _ in range(1000):
        if not (queued or running):
            break
        take()
        if running and not lanes.ready:
            lanes.free_lane(running.pop())
        elif not lanes.ready:
            clock.advance(0.1)
    assert not queued
    assert not running
    assert lanes.busy_lanes == 0
    assert clock.timers == []


def test_an_idle_key_costs_no_memory() -> None:
    lanes: LaneQueue[Record] = LaneQueue("key")

    def pass_through(first: int) -> None:
        for start in range(first, first + 20_000, 500):
            lanes.put(ORDERS, [record(i, b"key %d" % i) for i in range(start, start + 500)])
            while (entry := lanes.take()) is not None:
                lanes.free_lane(entry)

    pass_through(0)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        pass_through(20_000)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert lanes.busy_lanes == 0
    assert grown < 20_000, "less than a byte for each key"
