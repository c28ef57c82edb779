"""Seeks and pauses of partitions whose records wait for their handlers or tasks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from asyncrevoke import Consumer, Record, TopicPartition
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions, OrderBy

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@dataclass
class Handlers:
    """Handlers that end one by one, as ``gates`` open."""

    consumer: Consumer
    began: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    ended: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def began_of(self, number: int) -> list[int]:
        return [offset for partition, offset in self.began if partition == number]


def handling(**options: Unpack[ConsumerOptions]) -> Handlers:
    options["group_id"] = "billing"
    handlers = Handlers(Consumer(**options))

    @handlers.consumer.handler("orders")
    async def handle(_value: bytes, record: Record) -> None:
        handlers.began.append((record.partition, record.offset))
        await handlers.gate.acquire()
        handlers.ended.append((record.partition, record.offset))

    return handlers


async def publish(t: TestConsumer, number: int, records: int, keys: int = 1) -> None:
    for offset in range(records):
        await t.publish("orders", "x", key=f"key-{offset % keys}", partition=number)


def open_gate(handlers: Handlers, times: int) -> None:
    for _ in range(times):
        handlers.gate.release()


@pytest.mark.parametrize("order_by", ["key", "partition", None])
async def test_after_a_seek_no_handler_starts_a_record_from_before(order_by: OrderBy) -> None:
    handlers = handling(concurrency=1, order_by=order_by)
    async with TestConsumer(handlers.consumer, partitions=1) as t:
        await publish(t, 0, 8)
        assert handlers.began == [(0, 0)]
        open_gate(handlers, 3)
        await t.advance(1)
        assert handlers.began_of(0) == [0, 1, 2, 3]
        handlers.consumer.seek(P0, 2)
        open_gate(handlers, 1)
        await t.advance(2)
        # 3 runs to its end, and does not count: the position is where it was sought.
        assert handlers.began_of(0) == [0, 1, 2, 3, 2]
        assert t.committed("orders", 0) == 2
        assert t.in_flight == 6
        open_gate(handlers, 100)
        await t.advance(2)
        assert handlers.began_of(0) == [0, 1, 2, 3, 2, 3, 4, 5, 6, 7]
        assert t.committed("orders", 0) == 8


async def test_seeking_to_the_end_drops_records_that_have_not_started() -> None:
    handlers = handling(concurrency=1)
    async with TestConsumer(handlers.consumer, partitions=1) as t:
        await publish(t, 0, 5)
        await handlers.consumer.seek_to_end(P0)
        open_gate(handlers, 100)
        await t.advance(2)
        assert handlers.began_of(0) == [0]
        assert t.committed("orders", 0) == 5
        await t.publish("orders", "x", partition=0)
        assert handlers.began_of(0) == [0, 5]


async def test_a_seek_drops_a_batch_that_is_being_collected() -> None:
    consumer = Consumer(group_id="billing")
    batches: list[list[int]] = []

    @consumer.handler("orders", batch=True, max_records=10, max_wait=5)
    async def handle(_values: list[bytes], records: list[Record]) -> None:
        batches.append([record.offset for record in records])

    async with TestConsumer(consumer, partitions=1) as t:
        await publish(t, 0, 4)
        await t.advance(1)
        consumer.seek(P0, 2)
        await t.advance(10)
        assert batches == [[2, 3]]


async def test_no_handler_starts_a_record_of_a_paused_partition() -> None:
    handlers = handling(concurrency=2)
    async with TestConsumer(handlers.consumer, partitions=2) as t:
        await publish(t, 0, 6)
        assert handlers.began == [(0, 0)]
        handlers.consumer.pause(P0)
        await publish(t, 1, 3)
        open_gate(handlers, 4)
        await t.advance(2)
        assert handlers.began_of(0) == [0]
        assert handlers.began_of(1) == [0, 1, 2]
        assert t.committed("orders", 0) == 1
        open_gate(handlers, 100)
        await t.advance(2)
        assert handlers.began_of(0) == [0]
        handlers.consumer.resume(P0)
        await t.advance(2)
        assert handlers.began_of(0) == [0, 1, 2, 3, 4, 5]
        assert t.committed("orders", 0) == 6


async def test_records_of_a_paused_partition_do_not_count_for_max_in_flight() -> None:
    handlers = handling(concurrency=2, max_in_flight=5)
    async with TestConsumer(handlers.consumer, partitions=2) as t:
        await publish(t, 0, 10)
        handlers.consumer.pause(P0)
        await publish(t, 1, 4)
        assert handlers.began == [(0, 0), (1, 0)]
        assert t.in_flight == 5
        open_gate(handlers, 100)
        await t.advance(2)
        assert handlers.began_of(1) == [0, 1, 2, 3]
        assert handlers.began_of(0) == [0]


async def test_records_before_one_that_has_started_wait_in_their_lanes() -> None:
    handlers = handling(concurrency=2, order_by="key")
    async with TestConsumer(handlers.consumer, partitions=1) as t:
        for key in ("slow", "slow", "fast", "slow"):
            await t.publish("orders", "x", key=key, partition=0)
        assert handlers.began_of(0) == [0, 2]
        handlers.consumer.pause(P0)
        open_gate(handlers, 100)
        await t.advance(2)
        assert handlers.began_of(0) == [0, 2]
        assert t.committed("orders", 0) == 1
        handlers.consumer.resume(P0)
        await t.advance(2)
        assert handlers.began_of(0) == [0, 2, 1, 3]
        assert t.committed("orders", 0) == 4


async def test_a_paused_partition_does_not_count_for_its_handlers_limits() -> None:
    consumer = Consumer(group_id="billing", concurrency=8)
    began: list[tuple[int, int]] = []
    gate = asyncio.Semaphore(0)

    @consumer.handler("orders", concurrency=3)
    async def handle(_value: bytes, record: Record) -> None:
        began.append((record.partition, record.offset))
        await gate.acquire()

    async with TestConsumer(consumer, partitions=2) as t:
        for key in ("a", "a", "b", "b", "c"):
            await t.publish("orders", "x", key=key, partition=0)
        assert began == [(0, 0), (0, 2), (0, 4)]
        consumer.pause(P0)
        for _ in range(3):
            gate.release()
        await t.advance(1)
        for key in ("a", "b", "c"):
            await t.publish("orders", "x", key=key, partition=1)
        assert began[3:] == [(1, 0), (1, 1), (1, 2)]
        consumer.resume(P0)
        for _ in range(100):
            gate.release()
        await t.advance(2)
        assert sorted(began[6:]) == [(0, 1), (0, 3)]


async def test_a_revocation_ends_a_pause() -> None:
    handlers = handling(concurrency=2, order_by="key")
    async with TestConsumer(handlers.consumer, partitions=2) as t:
        for key in ("slow", "slow", "fast", "slow"):
            await t.publish("orders", "x", key=key, partition=0)
        handlers.consumer.pause(P0)
        open_gate(handlers, 100)
        await t.revoke(("orders", 0))
        await t.advance(2)
        assert P0 not in handlers.consumer.assignment()
        await t.give(("orders", 0))
        await t.advance(2)
        assert sorted(set(handlers.began_of(0))) == [0, 1, 2, 3]
        assert t.committed("orders", 0) == 4


async def test_a_lost_partition_is_not_paused_when_it_comes_back() -> None:
    handlers = handling(concurrency=2, order_by="key")
    async with TestConsumer(handlers.consumer, partitions=2) as t:
        await publish(t, 0, 4)
        handlers.consumer.pause(P0)
        await t.lose()
        open_gate(handlers, 100)
        await t.advance(5)
        assert handlers.began_of(0)[-4:] == [0, 1, 2, 3]
        assert t.committed("orders", 0) == 4


async def test_leaving_does_not_wait_for_records_of_a_paused_partition() -> None:
    handlers = handling(concurrency=2, order_by="key")
    async with TestConsumer(handlers.consumer, partitions=1) as t:
        for key in ("slow", "slow", "fast", "slow"):
            await t.publish("orders", "x", key=key, partition=0)
        handlers.consumer.pause(P0)
        open_gate(handlers, 100)
        async with asyncio.timeout(10):
            await handlers.consumer.aclose()


async def test_after_a_seek_no_task_starts_a_record_from_before() -> None:
    gate = asyncio.Semaphore(0)
    began: list[int] = []

    async def work(record: Record) -> None:
        began.append(record.offset)
        await gate.acquire()

    consumer = Consumer("orders", group_id="billing")
    async with TestConsumer(consumer, partitions=1) as t:
        await publish(t, 0, 5)
        async with consumer.task_group(concurrency=1) as tasks:
            for record in (await consumer.poll()).records:
                assert await tasks.submit(work, record)
            await t.advance(0.1)
            assert began == [0]
            consumer.seek(P0, 3)
            assert tasks.in_flight == 1
            for _ in range(100):
                gate.release()
            for record in (await consumer.poll()).records:
                assert await tasks.submit(work, record)
        assert began == [0, 3, 4]
    assert t.committed("orders", 0) == 5


async def test_unsubscribing_waits_for_running_handlers_and_starts_no_others() -> None:
    handlers = handling(concurrency=1)
    async with TestConsumer(handlers.consumer, partitions=1) as t:
        await publish(t, 0, 6)
        unsubscribing = asyncio.ensure_future(handlers.consumer.unsubscribe())
        await t.advance(3)
        assert not unsubscribing.done()
        assert handlers.consumer.assignment() == {P0}
        open_gate(handlers, 100)
        await t.advance(3)
        await unsubscribing
        assert handlers.began_of(0) == [0]
        assert t.committed("orders", 0) == 1
