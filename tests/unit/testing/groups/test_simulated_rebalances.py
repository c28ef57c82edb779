"""TestConsumer: revocations, losses, crashes and restarts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from unit.testing.billing_consumer import billing, tp

from asyncrevoke import (
    Consumer,
    Record,
    TopicPartition,
)
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from asyncrevoke.client.config import GroupProtocol


async def test_an_idle_partition_is_released_at_once_when_it_is_revoked() -> None:
    async with TestConsumer(billing().consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.revoke(("orders", 0))
        await t.advance(0.5)
        assert t.assignment() == {tp(1), tp(2), tp(3)}
        assert t.committed("orders", 0) == 1


async def test_a_running_handler_delays_the_revocation_until_it_ends() -> None:
    billed = billing(seconds=10)
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.publish("orders", {"id": 2}, partition=0)  # same lane: never started
        await t.revoke(("orders", 0))
        assert tp(0) in t.assignment()
        await t.advance(11)
        assert tp(0) not in t.assignment()
        assert billed.orders == [1]
        assert t.committed("orders", 0) == 1


@pytest.mark.parametrize("protocol", ["consumer", "auto"])
async def test_either_group_protocol_can_be_tested(protocol: GroupProtocol) -> None:
    consumer = Consumer(group_id="billing", group_protocol=protocol)
    seen: list[int] = []

    @consumer.handler("orders")
    async def bill(order: dict[str, int]) -> None:
        seen.append(order["id"])
        await asyncio.sleep(10)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.revoke(("orders", 0))
        assert tp(0) in t.assignment()
        await t.advance(11)
        assert t.assignment() == {tp(1), tp(2), tp(3)}
        assert t.committed("orders", 0) == 1
        await t.lose(("orders", 1))
        await t.give(("orders", 0), ("orders", 1))
        assert len(t.assignment()) == 4
        if protocol == "consumer":
            with pytest.raises(ValueError, match="a revocation is never withdrawn"):
                await t.withdraw(("orders", 0))
    assert seen == [1]


async def test_a_withdrawn_revocation_keeps_the_partition_assigned() -> None:
    billed = billing(seconds=10)
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.revoke(("orders", 0))
        await t.withdraw(("orders", 0))
        await t.advance(30)
        assert tp(0) in t.assignment()
        assert billed.orders == [1]
        with pytest.raises(ValueError, match="is not being revoked"):
            await t.withdraw(("orders", 0))


async def test_a_released_partition_can_be_assigned_again() -> None:
    billed = billing()
    async with TestConsumer(billed.consumer) as t:
        await t.revoke(("orders", 0))
        await t.publish("orders", {"id": 1}, partition=0)
        assert billed.orders == []
        await t.give(("orders", 0))
        assert billed.orders == [1]


async def test_a_lost_partitions_handlers_are_cancelled_and_not_committed() -> None:
    consumer = Consumer(group_id="billing", commit_interval=1.0)
    cancelled: list[TopicPartition] = []

    @consumer.handler("orders")
    async def bill(record: Record) -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            cancelled.append(record.topic_partition)
            raise

    async with TestConsumer(consumer) as t:
        await t.publish("orders", {"id": 1}, partition=1)
        await t.lose(("orders", 1))
        assert cancelled == [tp(1)]
        assert t.assignment() == {tp(0), tp(2), tp(3)}
        await t.advance(30)
        assert t.committed("orders", 1) is None


async def test_records_of_a_lost_partition_are_handled_again_after_reassignment() -> None:
    billed = billing(seconds=10)
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.advance(9)
        await t.lose()
        await t.advance(9)
        assert billed.orders == []
        await t.advance(2)
        assert billed.orders == [1]


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_each_assignor_can_be_tested(assignor: str) -> None:
    consumer = Consumer(group_id="billing", assignors=(assignor,))
    handled: list[int] = []

    @consumer.handler("orders")
    async def handle(value: int) -> None:
        handled.append(value)

    async with TestConsumer(consumer) as t:
        await t.revoke(("orders", 0), ("orders", 1))
        await t.advance(2)
        assert t.assignment() == {tp(2), tp(3)}
        await t.publish("orders", b"1", partition=3)
    assert handled == [1]


async def test_after_a_crash_another_consumer_reads_from_the_committed_offset() -> None:
    first, second = billing(seconds=10), billing()
    async with TestConsumer(first.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.advance(20)
        await t.publish("orders", {"id": 2}, partition=0)
        await t.advance(5)
        await t.crash()
        assert first.orders == [1]
        assert t.committed("orders", 0) == 1
        await t.restart(second.consumer)
        assert second.orders == [2]


async def test_a_crash_commits_nothing() -> None:
    billed = billing()
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        assert billed.orders == [1]
        await t.crash()
    assert t.committed("orders", 0) is None


async def test_topics_whose_names_begin_alike_are_told_apart_by_their_ids() -> None:
    consumer = Consumer(group_id="billing", group_protocol="consumer")
    seen: list[str] = []
    eu, us = "orders-of-customers-eu", "orders-of-customers-us"

    @consumer.handler(eu, us)
    async def bill(order: str) -> None:
        seen.append(order)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish(eu, "a")
        await t.publish(us, "b")
        assert t.assignment() == {tp(0, eu), tp(0, us)}
    assert seen == ["a", "b"]
