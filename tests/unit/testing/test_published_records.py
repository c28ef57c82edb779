"""A consumer without a broker, in virtual time: what a user's test can do with it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from unit.testing.billing_consumer import billing, tp

from asyncrevoke import (
    Consumer,
    HandlerContext,
    IllegalStateError,
    Record,
)
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


async def test_a_published_record_is_handled_when_the_call_returns() -> None:
    billed = billing()
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, key="a")
        assert billed.orders == [1]
        assert t.in_flight == 0


async def test_handled_records_are_committed_within_commit_interval() -> None:
    async with TestConsumer(billing().consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        assert t.committed("orders", 0) is None
        await t.advance(30)
        assert t.committed("orders", 0) == 1
        assert t.time == 30


async def test_leaving_commits_handled_records() -> None:
    async with TestConsumer(billing().consumer) as t:
        await t.publish("orders", {"id": 1}, partition=2)
    assert t.committed("orders", 2) == 1


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"id": 1}, b'{"id":1}'),
        ("text", b"text"),
        (b"\xff", b"\xff"),
        (None, None),
        ([1, 2], b"[1,2]"),
        (tp(3), b'["orders",3]'),
    ],
)
async def test_published_values_are_encoded_as_bytes(value: object, written: bytes | None) -> None:
    consumer = Consumer(group_id="billing")
    handled: list[Record] = []

    @consumer.handler("orders")
    async def handle(record: Record) -> None:
        handled.append(record)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", value, key="a", headers={"trace": "7"}, timestamp=1_000)
    (record,) = handled
    assert record.value == written
    assert record.key == b"a"
    assert record.headers == (("trace", b"7"),)
    assert record.timestamp == 1_000


async def test_publishing_a_value_that_json_cannot_encode_raises_an_error() -> None:
    async with TestConsumer(billing().consumer) as t:
        with pytest.raises(TypeError, match="cannot be published: use bytes, str, None"):
            await t.publish("orders", object())


async def test_keyed_records_share_a_partition_and_records_without_key_go_round_robin() -> None:
    async with TestConsumer(billing().consumer) as t:
        keyed = [await t.publish("orders", {"id": n}, key="a") for n in range(3)]
        assert len({published.partition for published in keyed}) == 1
        assert [published.offset for published in keyed] == [0, 1, 2]
        round_robin = [await t.publish("orders", {"id": n}) for n in range(5)]
        assert [published.partition for published in round_robin] == [0, 1, 2, 3, 0]


async def test_topics_have_the_configured_number_of_partitions() -> None:
    async with TestConsumer(billing().consumer, partitions=2, topics={"orders": 3}) as t:
        assert t.assignment() == {tp(0), tp(1), tp(2)}
        with pytest.raises(ValueError, match="orders has partitions 0 to 2, and no 3"):
            await t.publish("orders", {"id": 1}, partition=3)
        with pytest.raises(ValueError, match="there is no partition orders-9"):
            await t.revoke(("orders", 9))
        with pytest.warns(UserWarning, match='no handler reads the topic "other"'):
            assert (await t.publish("other", "x", key="a")).partition < 2


async def test_a_consumer_that_was_entered_before_keeps_working_after_the_error() -> None:
    billed = billing()
    async with TestConsumer(billed.consumer) as t:
        with pytest.raises(IllegalStateError, match="entered once"):
            async with TestConsumer(billed.consumer):
                pass
        await t.publish("orders", {"id": 1})
        await t.advance(2)
        assert billed.orders == [1]
    assert "time" not in vars(asyncio.get_running_loop())


async def test_a_consumer_whose_resources_are_a_function_can_be_tested_many_times() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def database() -> AsyncGenerator[list[str]]:
        events.append("opened")
        yield events
        events.append("closed")

    consumer = Consumer(group_id="billing", resources=database)

    @consumer.handler("orders")
    async def bill(value: str, context: HandlerContext[list[str]]) -> None:
        context.state.append(value)

    for value in "a", "b":
        async with TestConsumer(consumer) as t:
            await t.publish("orders", value)
    assert events == ["opened", "a", "closed", "opened", "b", "closed"]
