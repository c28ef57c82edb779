"""TestConsumer: partitions share the workers of a consumer."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from asyncrevoke import Consumer, Record
from asyncrevoke.testing import TestConsumer


@pytest.mark.parametrize("order_by", ["key", None])
async def test_a_record_waits_one_call_at_most_behind_the_backlog_of_other_partitions(
    order_by: Literal["key"] | None,
) -> None:
    """A backlog of 1,500 records, and then one record of another partition."""
    consumer = Consumer(group_id="billing", order_by=order_by, concurrency=64)
    started: dict[bytes | None, float] = {}

    @consumer.handler("orders")
    async def bill(record: Record) -> None:
        started[record.value] = t.time
        await asyncio.sleep(0.5)

    async with TestConsumer(consumer, topics={"orders": 7}) as t:
        for number in range(1500):
            await t.publish("orders", b"backlog", key=b"%d" % number, partition=number % 6)
        await t.advance(1.2)
        published = t.time
        await t.publish("orders", b"late", partition=6)
        await t.advance(2)
        assert started[b"late"] - published <= 0.5
