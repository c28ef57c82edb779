"""The record that holds a revoke back is named: in the log, to the listener, in health."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from asyncrevoke import BlockingRecord, Consumer, RebalanceListener, Record
from asyncrevoke.client.runtime.session.reactions import RevocationWarnings
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import Sequence


class Listener(RebalanceListener):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[Sequence[BlockingRecord]] = []

    async def on_revocation_delayed(self, blocking: Sequence[BlockingRecord]) -> None:
        self.told.append(blocking)


def blocking(partition: int, seconds: float) -> BlockingRecord:
    return BlockingRecord("orders", partition, 7, seconds, 1)


def test_a_partition_is_named_after_5_s_and_then_every_30_s_each_by_itself() -> None:
    delayed = RevocationWarnings()
    named: list[tuple[int, float]] = []
    for second in range(80):
        now = [blocking(0, second)]
        if 10 <= second < 20 or second >= 70:
            now.append(blocking(1, second - (10 if second < 20 else 70)))
        named += [(one.partition, one.seconds) for one in delayed.take_due(now)]
    assert named == [(0, 5), (1, 5), (0, 35), (0, 65), (1, 5)]


def test_nothing_is_remembered_of_a_partition_that_went() -> None:
    delayed = RevocationWarnings()
    delayed.take_due([blocking(n, 6) for n in range(100)])
    delayed.take_due([])
    assert delayed._next == {}


async def test_a_handler_s_record_is_named_in_log_listener_and_health(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = Listener()
    consumer = Consumer(group_id="g", listener=listener, order_by=None)

    @consumer.handler("orders")
    async def bill(each: Record) -> None:
        await asyncio.sleep(60 if each.offset == 1 else 1)

    async with TestConsumer(consumer, partitions=2) as t:
        for _ in range(3):
            await t.publish("orders", b"secret", key="secret", partition=0)
        await t.advance(2)
        assert consumer.health().blocking_records == ()
        await t.revoke(("orders", 0))
        (one,) = consumer.health().blocking_records
        assert (one.topic_partition, one.offset, one.unfinished) == (("orders", 0), 1, 1)
        assert one.seconds <= 1
        assert one.handler is not None
        assert one.handler.endswith(".bill")
        with caplog.at_level(logging.WARNING, "asyncrevoke"):
            await t.advance(7)
        (told,) = listener.told
        assert [each._replace(seconds=0) for each in told] == [one._replace(seconds=0)]
        assert 5 <= told[0].seconds < 7
        (line,) = [record.getMessage() for record in caplog.records]
        assert line.startswith("revocation delayed by in-flight record")
        assert "partition=orders-0 offset=1" in line
        assert f"handler={one.handler}" in line
        assert "secret" not in line
        await t.advance(60)
        assert consumer.health().blocking_records == ()
        assert len(listener.told) == 2, "after 5 and 35 s"


async def test_of_a_task_group_it_is_the_function_that_was_submitted() -> None:
    listener = Listener()
    consumer = Consumer("orders", group_id="g", listener=listener)

    async def slow(each: Record, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def loop() -> None:
        async with consumer.task_group() as tasks:
            async for batch in consumer:
                for record in batch.records:
                    await tasks.submit(slow, record, 10)

    async with TestConsumer(consumer, partitions=1) as t:
        looping = asyncio.create_task(loop())
        await t.publish("orders", b"1")
        await t.publish("orders", b"2")
        await t.revoke(("orders", 0))
        await t.advance(8)
        ((one,),) = listener.told
        assert (one.offset, one.unfinished) == (0, 2)
        assert one.handler is not None
        assert one.handler.endswith(".slow")
        await t.advance(20)
        consumer.stop()
        await looping


async def test_with_acks_it_is_the_oldest_record_that_is_not_acknowledged() -> None:
    listener = Listener()
    consumer = Consumer("orders", group_id="g", commit_mode="ack", listener=listener)
    taken: list[Record] = []

    async def loop() -> None:
        async for batch in consumer:
            taken.extend(batch.records)

    async with TestConsumer(consumer, partitions=1) as t:
        looping = asyncio.create_task(loop())
        for _ in range(3):
            await t.publish("orders", b"1")
        consumer.ack(taken[0])
        consumer.ack(taken[2])
        await t.revoke(("orders", 0))
        await t.advance(8)
        ((one,),) = listener.told
        assert one[:3] == ("orders", 0, 1)
        assert (one.unfinished, one.handler) == (1, None)
        consumer.ack(taken[1])
        assert consumer.health().blocking_records == ()
        consumer.stop()
        await looping


async def test_a_loop_that_does_not_ask_for_the_next_batch_is_named_too() -> None:
    listener = Listener()
    consumer = Consumer("orders", group_id="g", listener=listener)

    async def loop() -> None:
        async for batch in consumer:
            if batch.records:
                await asyncio.sleep(20)

    async with TestConsumer(consumer, partitions=1) as t:
        looping = asyncio.create_task(loop())
        await t.publish("orders", b"1")
        await t.revoke(("orders", 0))
        await t.advance(8)
        ((one,),) = listener.told
        assert (one.offset, one.handler) == (0, None)
        await t.advance(20)
        assert not t.assignment()
        consumer.stop()
        await looping


async def test_an_abandoned_record_delays_no_commit() -> None:
    consumer = Consumer(group_id="g", order_by=None)

    @consumer.handler("orders", on_error="pause")
    async def bill(each: Record) -> None:
        if each.offset == 0:
            await asyncio.sleep(1)
            raise ValueError
        await asyncio.sleep(60)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"bad")
        await t.publish("orders", b"good")
        await t.advance(2)
        await t.revoke(("orders", 0))
        (one,) = consumer.health().blocking_records
        assert (one.offset, one.unfinished) == (1, 1)


async def test_what_closing_waits_for_is_named_too(caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener()
    consumer = Consumer(group_id="g", listener=listener)

    @consumer.handler("orders")
    async def bill(each: Record) -> None:
        await asyncio.sleep(12)

    with caplog.at_level(logging.WARNING, "asyncrevoke"):
        async with TestConsumer(consumer, partitions=1) as t:
            await t.publish("orders", b"1")
    ((one,),) = listener.told
    assert one[:3] == ("orders", 0, 0)
    assert [record.getMessage().partition(" group")[0] for record in caplog.records] == [
        "revocation delayed by in-flight record"
    ]


async def test_a_listener_that_fails_is_raised_by_the_next_step() -> None:
    class Broken(RebalanceListener):
        def on_revocation_delayed(self, blocking: Sequence[BlockingRecord]) -> None:
            raise ZeroDivisionError

    consumer = Consumer("orders", group_id="g", commit_mode="ack", listener=Broken())

    async def loop() -> None:
        async for _ in consumer:
            pass

    async with TestConsumer(consumer, partitions=1) as t:
        looping = asyncio.create_task(loop())
        await t.publish("orders", b"1")
        await t.revoke(("orders", 0))
        await t.advance(8)
        with pytest.raises(ZeroDivisionError):
            await looping
