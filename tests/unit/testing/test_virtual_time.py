"""TestConsumer: time passes by calls of the test alone."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from types import SimpleNamespace
from typing import cast

import anyio
import anyio.to_thread
import pytest
from unit.testing.billing_consumer import billing

from asyncrevoke import (
    Consumer,
    IllegalStateError,
    Record,
)
from asyncrevoke.testing import TestConsumer
from asyncrevoke.testing.virtual_time import VirtualTime


async def test_handlers_sleep_in_virtual_time() -> None:
    billed = billing(seconds=3600)
    began = time.monotonic()
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        assert (billed.orders, t.in_flight) == ([], 1)
        await t.advance(3599.9)
        assert billed.orders == []
        await t.advance(0.1)
        assert billed.orders == [1]
    assert time.monotonic() - began < 600


async def test_advancing_in_many_steps_equals_advancing_once() -> None:
    billed = billing(seconds=30)
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1})
        for _ in range(300):
            await t.advance(0.1)
        assert billed.orders == [1]


async def test_timers_fire_in_order_with_their_consequences() -> None:
    seen: list[tuple[str, float]] = []
    async with TestConsumer(billing().consumer) as t:

        async def tell(name: str, *waits: float) -> None:
            for wait in waits:
                await asyncio.sleep(wait)
                seen.append((name, round(t.time, 3)))

        tasks = [asyncio.create_task(tell("a", 1, 1, 1)), asyncio.create_task(tell("b", 1.5, 1))]
        await t.advance(10)
        await asyncio.gather(*tasks)
    assert seen == [("a", 1), ("b", 1.5), ("a", 2), ("b", 2.5), ("a", 3)]


async def test_a_timeout_within_a_handler_counts_virtual_time() -> None:
    consumer = Consumer(group_id="billing")
    timed_out: list[bool] = []

    @consumer.handler("orders")
    async def handle(record: Record) -> None:
        del record
        with anyio.move_on_after(5) as scope:
            await asyncio.Event().wait()
        timed_out.append(scope.cancelled_caught)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x")
        await t.advance(4.9)
        assert timed_out == []
        await t.advance(0.1)
        assert timed_out == [True]


async def test_advancing_by_a_negative_time_raises_an_error() -> None:
    async with TestConsumer(billing().consumer) as t:
        with pytest.raises(ValueError, match="time cannot go back"):
            await t.advance(-1)


async def test_a_sleep_in_the_test_itself_takes_real_time() -> None:
    async with TestConsumer(billing().consumer) as t:
        async with asyncio.timeout(60):
            await asyncio.sleep(0.05)
        assert t.time == pytest.approx(0.05, abs=0.045)


async def test_the_event_loop_has_real_time_again_after_the_test_consumer() -> None:
    loop = asyncio.get_running_loop()
    async with TestConsumer(billing().consumer) as t:
        left = asyncio.create_task(asyncio.sleep(1000.02))
        await t.advance(1000)
    assert abs(loop.time() - time.monotonic()) < 1
    await asyncio.wait_for(left, timeout=5)
    assert "time" not in vars(loop)
    assert "call_at" not in vars(loop)


async def test_an_event_loop_other_than_asyncios_raises_an_error() -> None:
    class OtherLoop:
        pass

    passing = VirtualTime(cast("asyncio.AbstractEventLoop", OtherLoop()))
    for _ in range(2):
        with pytest.raises(IllegalStateError, match="needs asyncio's event loop, and this is Ot"):
            passing.enter()


async def test_a_cancelled_timer_never_fires() -> None:
    loop = asyncio.get_running_loop()
    fired: list[str] = []
    async with TestConsumer(billing().consumer) as t:
        first = loop.call_later(1, fired.append, "equal")
        second = loop.call_at(first.when(), fired.append, "equal")
        first.cancel()
        assert first.cancelled()
        assert not second.cancelled()
        loop.call_later(2, fired.append, "later")
        await t.advance(3)
    assert fired == ["equal", "later"]


async def test_callbacks_that_are_due_run_before_a_call_returns() -> None:
    fired: list[str] = []
    async with TestConsumer(billing().consumer) as t:
        asyncio.get_running_loop().call_later(0, fired.append, "due")
        with pytest.warns(UserWarning, match="no handler reads"):
            await t.publish("elsewhere", "x")
    assert fired == ["due"]
    assert t.time == 0


async def test_until_waits_for_results_of_threads() -> None:
    consumer = Consumer(group_id="billing")
    handled: list[str] = []
    ready = threading.Event()

    @consumer.handler("orders")
    async def handle(value: str) -> None:
        await anyio.to_thread.run_sync(ready.wait, 30)
        handled.append(value)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x")
        assert handled == []
        ready.set()
        await t.until(lambda: handled)
        with pytest.raises(TimeoutError, match="the condition is still false"):
            await t.until(lambda: False, within=0.05)


async def test_two_test_consumers_share_one_virtual_time() -> None:
    first, second = billing(seconds=10), billing(seconds=20)
    async with TestConsumer(first.consumer) as one, TestConsumer(second.consumer) as two:
        await one.publish("orders", {"id": 1})
        await two.publish("orders", {"id": 2})
        await one.advance(20)
        assert (first.orders, second.orders) == ([1], [2])
        assert two.time == 20


async def test_a_timer_that_is_late_by_a_rounding_error_does_not_change_the_time() -> None:
    async with TestConsumer(billing().consumer) as t:
        loop = asyncio.get_running_loop()
        fired: list[float] = []
        loop.call_at(math.nextafter(loop.time() + 20, math.inf), lambda: fired.append(t.time))
        await t.advance(20)
        assert (fired, t.time) == ([20], 20)


async def test_a_handler_may_publish() -> None:
    consumer = Consumer(group_id="billing")
    tests: list[TestConsumer] = []
    seen: list[tuple[str, str]] = []

    @consumer.handler("orders", "invoices")
    async def handle(value: str, record: Record) -> None:
        seen.append((record.topic, value))
        if record.topic == "orders":
            await tests[0].publish("invoices", value)

    async with TestConsumer(consumer) as t:
        tests.append(t)
        await t.publish("orders", "x")
        await t.advance(0)
    assert seen == [("orders", "x"), ("invoices", "x")]


async def test_one_consumer_object_can_be_tested_many_times() -> None:
    billed = billing()
    for _ in range(3):
        async with TestConsumer(billed.consumer) as t:
            await t.publish("orders", {"id": 1})
    assert billed.orders == [1, 1, 1]


async def test_the_same_consumer_may_be_restarted_after_a_crash() -> None:
    billed = billing(seconds=10)
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.advance(5)
        await t.crash()
        await t.restart(billed.consumer)
        await t.advance(12)
        assert billed.orders == [1]
        assert t.committed("orders", 0) == 1


async def test_a_task_that_waits_only_for_the_next_turn_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - what is to be found
            await asyncio.sleep(0)

    async with TestConsumer(billing().consumer) as t:
        with monkeypatch.context() as limit:
            limit.setattr("asyncrevoke.testing.virtual_time._MAX_BUSY_TURNS", 100)
            task = asyncio.create_task(spin())
            with pytest.raises(TimeoutError, match="still busy after 100 iterations"):
                await t.advance(1)
            task.cancel()


async def test_a_handler_that_is_stopped_in_a_debugger_does_not_count_as_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Consumer(group_id="billing")
    handled: list[str] = []
    stopped = 0.0

    @consumer.handler("orders")
    async def handle(value: str) -> None:
        nonlocal stopped
        stopped += 3600
        handled.append(value)

    async with TestConsumer(consumer) as t:
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + stopped)
        monkeypatch.setattr("asyncrevoke.testing.virtual_time.time", clock)
        await t.publish("orders", "x")
    assert handled == ["x"]
