"""TestConsumer: errors of handlers, retries and dead letters."""

from __future__ import annotations

import asyncio
import sys

import pytest
from unit.testing.billing_consumer import billing

from asyncrevoke import (
    Consumer,
    HandlerContext,
    Retry,
    RetryTopic,
)
from asyncrevoke.testing import TestConsumer


async def test_a_handler_failure_is_raised_once_by_the_next_call() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        raise LookupError(value)

    async with TestConsumer(consumer) as t:
        with pytest.raises(LookupError, match="x"):
            await t.publish("orders", "x", partition=0)
        await t.advance(10)
        assert not t.committed("orders", 0)


async def test_a_handler_failure_that_no_call_raised_is_raised_on_exit() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        await asyncio.sleep(0.1)
        raise LookupError(value)

    with pytest.raises(LookupError, match="x"):
        async with TestConsumer(consumer) as t:
            await t.publish("orders", "x", partition=0)


async def test_retry_backoff_takes_virtual_time() -> None:
    consumer = Consumer(group_id="billing")
    attempts: list[tuple[int, float]] = []

    @consumer.handler("orders", retry=Retry(attempts=3, backoff=60, max_backoff=600, jitter=0))
    async def bill(value: str, context: HandlerContext) -> None:
        del value
        attempts.append((context.attempt, t.time))
        if context.attempt < 3:
            raise ConnectionError

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x", partition=0)
        await t.advance(300)
    assert [attempt for attempt, _ in attempts] == [1, 2, 3]
    assert attempts[1][1] == pytest.approx(60)


async def test_dead_letters_returns_the_records_of_a_dead_letter_topic() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", dead_letter="orders.dlq")
    async def bill(order: dict[str, int]) -> None:
        raise LookupError(order)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", {"id": 1}, key="a", partition=0)
        await t.publish("orders", "no json", partition=1)
        letters = {letter.value: dict(letter.headers) for letter in t.dead_letters("orders.dlq")}
        assert set(letters) == {b'{"id":1}', b"no json"}
        assert letters[b'{"id":1}']["asyncrevoke-error-type"] == b"LookupError"
        await t.advance(2)
        assert t.committed("orders", 0) == 1
        assert t.committed("orders", 1) == 1


async def test_sys_exit_in_a_handler_exits_the_test() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        sys.exit(value)

    async with TestConsumer(consumer) as t:
        with pytest.raises(SystemExit, match="x"):
            await t.publish("orders", "x")


async def test_an_error_of_the_test_cancels_handlers_and_is_raised() -> None:
    billed = billing(seconds=100)
    t = TestConsumer(billed.consumer)
    with pytest.raises(AssertionError, match="of the test"):
        async with t:
            await t.publish("orders", {"id": 1}, partition=0)
            raise AssertionError("of the test")
    assert billed.orders == []
    assert not t.committed("orders", 0)


async def test_leaving_waits_for_running_handlers() -> None:
    billed = billing(seconds=15)
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
    assert billed.orders == [1]
    assert t.committed("orders", 0) == 1


async def test_batch_waits_and_handler_time_limits_take_virtual_time() -> None:
    consumer = Consumer(group_id="billing")
    batches: list[list[int]] = []

    @consumer.handler("clicks", batch=True, max_records=5, max_wait=2)
    async def store(clicks: list[int]) -> None:
        batches.append(clicks)

    @consumer.handler("orders", max_handler_time=60, dead_letter="orders.dlq")
    async def hang(value: str) -> None:
        del value
        await asyncio.Event().wait()

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(7):
            await t.publish("clicks", number)
        await t.publish("orders", "x")
        assert batches == [[0, 1, 2, 3, 4]]
        await t.advance(2)
        assert batches[1:] == [[5, 6]]
        await t.advance(57.9)
        assert t.dead_letters("orders.dlq") == []
        await t.advance(0.1)
        assert len(t.dead_letters("orders.dlq")) == 1


async def test_calls_of_a_retry_topic_have_the_outcomes_of_their_records() -> None:
    consumer = Consumer(group_id="g")
    fails = True

    @consumer.handler("orders", retry_topic=RetryTopic("again", delay=60), dead_letter="failed")
    async def handle(value: bytes) -> None:
        if fails:
            raise ConnectionError

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"x")
        await t.advance(1000)
        assert [call.outcome for call in t.calls] == [
            *["sent_to_retry_topic"] * 3,
            "dead_lettered",
        ]
        assert len(t.records("again")) == 3
        assert len(t.dead_letters("failed")) == 1
        await t.publish("orders", b"y")
        fails = False
        await t.advance(61)
        assert [call.outcome for call in t.calls[4:]] == ["sent_to_retry_topic", "ok"]
        assert t.not_handled == []


async def test_batches_of_a_retry_topic_have_the_outcomes_of_their_records() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler(
        "orders", batch=True, retry_topic=RetryTopic("again", attempts=1), dead_letter="failed"
    )
    async def handle(values: list[bytes]) -> None:
        raise ConnectionError

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"x")
        await t.publish("orders", b"y")
        await t.advance(100)
        assert [call.outcome for call in t.calls] == ["sent_to_retry_topic", "dead_lettered"]
        assert t.not_handled == []
