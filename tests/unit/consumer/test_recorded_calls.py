"""The calls of handlers that TestConsumer writes down."""

from __future__ import annotations

import asyncio

import pytest

from asyncrevoke import (
    BatchError,
    CallNext,
    Consumer,
    HandlerContext,
    Record,
    Retry,
)
from asyncrevoke.testing import Call, TestConsumer


def told(calls: list[Call]) -> list[tuple[int, int, str]]:
    return [(call.record.offset, call.attempt, call.outcome) for call in calls]


async def test_calls_are_in_order_with_attempt_outcome_and_error() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders", retry=Retry(attempts=2, backoff=3), dead_letter="dlq")
    async def bill(value: str) -> None:
        await asyncio.sleep(1)
        if value == "bad":
            raise ValueError(value)

    @consumer.handler("refunds")
    async def refund(value: str) -> None: ...

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", "good", key="a")
        await t.publish("orders", "bad", key="b")
        assert told(t.calls) == [(0, 1, "running"), (1, 1, "running")]
        await t.advance(2)
        assert told(t.calls) == [(0, 1, "ok"), (1, 1, "retried")]
        await t.publish("refunds", "1")
        await t.advance(10)
        assert told(t.calls_of(bill)) == [(0, 1, "ok"), (1, 1, "retried"), (1, 2, "dead_lettered")]
        assert told(t.calls_of(refund)) == told(t.calls_of("refund")) == [(0, 1, "ok")]
        last = t.calls_of(bill)[-1]
        assert isinstance(last.error, ValueError)
        assert last.record.value == b"bad"
        assert repr(last).endswith(".bill: orders-0 at offset 1, attempt 2: dead_lettered>")


@pytest.mark.parametrize(("policy", "outcome"), [("skip", "skipped"), ("pause", "paused")])
async def test_the_outcome_is_what_the_policy_decides(policy: str, outcome: str) -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders", on_error=policy)  # type: ignore[arg-type]
    async def bill(value: str) -> None:
        raise ValueError

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", "1")
        assert told(t.calls) == [(0, 1, outcome)]


async def test_the_call_that_stops_the_consumer_has_the_outcome_stop() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        raise ZeroDivisionError

    t = TestConsumer(consumer, partitions=1)
    with pytest.raises(ZeroDivisionError):
        async with t:
            await t.publish("orders", "1")
    assert told(t.calls) == [(0, 1, "stopped")]


async def test_calls_of_lost_partitions_are_cancelled_and_failures_of_revoked_ones_abandoned() -> (
    None
):
    consumer = Consumer(group_id="g")

    @consumer.handler("orders", retry=Retry(attempts=None, backoff=1))
    async def bill(each: Record) -> None:
        await asyncio.sleep(10)
        raise ValueError

    async with TestConsumer(consumer, partitions=2) as t:
        await t.publish("orders", "1", partition=0)
        await t.lose(("orders", 0))
        await t.publish("orders", "2", partition=1)
        await t.revoke(("orders", 1))
        await t.advance(15)
        assert [call.outcome for call in t.calls] == ["cancelled", "abandoned"]


async def test_a_value_that_does_not_decode_is_not_recorded_as_a_call() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders", dead_letter="dlq")
    async def bill(value: dict[str, int]) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"no json")
        assert len(t.dead_letters("dlq")) == 1
        assert t.calls == []


async def test_each_record_of_a_batch_has_its_own_outcome() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("clicks", batch=True, max_records=3, dead_letter="dlq")
    async def store(clicks: list[str]) -> None:
        raise BatchError({1: ValueError()})

    async with TestConsumer(consumer, partitions=1) as t:
        for value in ("a", "bad", "c"):
            await t.publish("clicks", value)
        (call,) = t.calls_of(store)
        assert call.outcome == "mixed"
        assert [call.outcome_of(record) for record in call.records] == ["ok", "dead_lettered", "ok"]


async def test_calls_that_middleware_skips_are_not_recorded_and_errors_it_hides_are_failures() -> (
    None
):
    consumer = Consumer(group_id="g")

    @consumer.middleware
    async def skip_or_hide(context: HandlerContext, call_next: CallNext) -> None:
        if context.record.offset > 0:
            return
        try:
            await call_next()
        except ValueError:
            return

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        raise ValueError

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", "1")
        await t.publish("orders", "2")
        await t.advance(2)
        assert told(t.calls) == [(0, 1, "failed")]
        assert t.committed("orders", 0) == 2


async def test_calls_after_a_crash_are_appended_to_earlier_calls() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        await asyncio.sleep(5)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", "1")
        await t.crash()
        await t.restart(consumer)
        await t.advance(6)
        assert told(t.calls_of(bill)) == [(0, 1, "cancelled"), (0, 1, "ok")]
