"""Consumers with processing="exactly_once" in tests: results are in their topics from the commit of
their transaction on, together with the offsets."""

from __future__ import annotations

import asyncio

import pytest

from asyncrevoke import Consumer, HandlerContext, Record, Retry, RetryTopic
from asyncrevoke.testing import TestConsumer

# Within the first interval the transaction with the offsets at which the consumer begins is
# committed.
AFTER_FIRST_COMMIT = 10.0


def values(t: TestConsumer, topic: str) -> list[bytes | None]:
    return [record.value for record in t.records(topic)]


def exactly_once(*topics: str, transaction_interval: float = 5.0) -> Consumer:
    return Consumer(
        *topics,
        group_id="g",
        processing="exactly_once",
        transaction_interval=transaction_interval,
    )


async def test_a_result_is_visible_with_its_offset_after_the_transaction_interval() -> None:
    consumer = exactly_once()

    @consumer.handler("orders", publish_to="invoices")
    async def bill(value: bytes) -> bytes:
        return b"bill " + value

    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        await t.publish("orders", b"1")
        await t.advance(4.9)
        assert [call.outcome for call in t.calls] == ["ok"]
        assert (values(t, "invoices"), t.committed("orders", 0), t.in_flight) == ([], 0, 1)
        await t.advance(0.2)
        assert (values(t, "invoices"), t.committed("orders", 0)) == ([b"bill 1"], 1)
        assert t.in_flight == 0
        await t.publish("orders", b"2")
        await t.advance(5)
        first, second = t.records("invoices")
        # The marker of the first transaction has an offset, too.
        assert (first.offset, second.offset) == (0, 2)
        assert t.committed("orders", 0) == 2


async def test_leaving_the_test_commits_the_last_transaction() -> None:
    consumer = exactly_once(transaction_interval=60)

    @consumer.handler("orders", publish_to="invoices")
    async def bill(value: bytes) -> bytes:
        await asyncio.sleep(1)
        return value

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        assert values(t, "invoices") == []
    assert (values(t, "invoices"), t.committed("orders", 0)) == ([b"1"], 1)
    assert t.time < 2


async def test_a_commit_returns_when_what_is_finished_is_in_a_committed_transaction() -> None:
    consumer = exactly_once(transaction_interval=60)

    @consumer.handler("orders", publish_to="invoices")
    async def bill(value: bytes) -> bytes:
        await asyncio.sleep(100 if value == b"slow" else 0)
        return value

    async with TestConsumer(consumer, partitions=1) as t:
        # The offsets at which the consumer begins are committed.
        await t.advance(61)
        for value in (b"1", b"2", b"slow"):
            await t.publish("orders", value, key=value)
        await t.advance(1)
        assert values(t, "invoices") == []
        await consumer.commit()
        assert (sorted(map(str, values(t, "invoices"))), t.committed("orders", 0)) == (
            ["b'1'", "b'2'"],
            2,
        )
        assert t.time < 65


async def test_what_a_call_publishes_is_visible_together_with_what_it_returns() -> None:
    consumer = exactly_once()

    @consumer.handler("orders", publish_to="invoices")
    async def bill(value: bytes, context: HandlerContext) -> bytes:
        await context.publish("audit", b"begun", key="k")
        await asyncio.sleep(7)
        await context.publish("audit", b"ended", key="k")
        return value

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(6)
        assert values(t, "audit") == []
        await t.advance(6.5)
        assert (values(t, "audit"), values(t, "invoices")) == ([b"begun", b"ended"], [b"1"])


async def test_results_of_a_call_that_has_failed_are_left_out() -> None:
    consumer = exactly_once()

    @consumer.handler("orders", retry=Retry(attempts=2, backoff=1), publish_to="invoices")
    async def bill(value: bytes, context: HandlerContext) -> bytes:
        await context.publish("audit", b"attempt %d" % context.attempt)
        if context.attempt == 1:
            raise LookupError
        return value

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(10)
        assert (values(t, "audit"), values(t, "invoices")) == ([b"attempt 2"], [b"1"])


async def test_the_results_of_a_batch_are_visible_together() -> None:
    consumer = exactly_once()

    @consumer.handler("orders", batch=True, max_records=3, max_wait=2, publish_to="invoices")
    async def bill(orders: list[bytes]) -> list[bytes]:
        return [b"%d of %d" % (number, len(orders)) for number in range(len(orders))]

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(3):
            await t.publish("orders", b"%d" % number)
        assert [call.outcome for call in t.calls] == ["ok"]
        assert (values(t, "invoices"), t.committed("orders", 0)) == ([], None)
        await t.advance(5)
        assert values(t, "invoices") == [b"0 of 3", b"1 of 3", b"2 of 3"]
        assert t.committed("orders", 0) == 3


async def test_a_dead_letter_is_visible_with_the_offset_of_its_record() -> None:
    consumer = exactly_once()

    @consumer.handler("orders", dead_letter="failed", publish_to="invoices")
    async def bill(_value: bytes, context: HandlerContext) -> bytes:
        await context.publish("audit", b"never")
        raise LookupError

    async with TestConsumer(consumer, partitions=1, topics={"failed": 1, "audit": 1}) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        await t.publish("orders", b"1")
        await t.advance(4)
        assert (t.dead_letters("failed"), t.committed("orders", 0)) == ([], 0)
        await t.advance(2)
        assert (values(t, "failed"), t.committed("orders", 0)) == ([b"1"], 1)
        assert values(t, "audit") == values(t, "invoices") == []


async def test_a_retry_is_read_after_its_transaction_and_committed_with_its_result() -> None:
    consumer = exactly_once()

    @consumer.handler("orders", retry_topic=RetryTopic("later", delay=60), publish_to="invoices")
    async def bill(value: bytes, context: HandlerContext) -> bytes:
        await context.publish("audit", b"attempt %d" % context.attempt)
        if context.attempt == 1:
            raise LookupError
        return value

    async with TestConsumer(consumer, partitions=1, topics={"later": 1, "audit": 1}) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        await t.publish("orders", b"1")
        await t.advance(4)
        assert (t.records("later"), t.committed("orders", 0)) == ([], 0)
        await t.advance(10)
        assert (values(t, "later"), t.committed("orders", 0)) == ([b"1"], 1)
        await t.advance(60)
        assert [call.outcome for call in t.calls] == ["sent_to_retry_topic", "ok"]
        assert (values(t, "invoices"), values(t, "audit")) == ([b"1"], [b"attempt 2"])
        # The record, and the marker of the transaction that has written it.
        assert t.committed("later", 0) == 2


async def test_a_loop_commits_the_results_of_its_batch_at_the_end_of_the_block() -> None:
    consumer = exactly_once("orders")
    batches: list[list[bytes | None]] = []

    async def loop() -> None:
        async for batch in consumer:
            batches.append([record.value for record in batch.records])
            try:
                async with consumer.transaction() as transaction:
                    for record in batch.records:
                        transaction.publish("invoices", record.value, record=record)
                    await asyncio.sleep(3)
                    if len(batches) == 1:
                        raise LookupError
            except LookupError:
                continue

    async with TestConsumer(consumer, partitions=1) as t:
        running = asyncio.create_task(loop())
        await t.publish("orders", b"1")
        await t.advance(4)
        assert (values(t, "invoices"), t.committed("orders", 0)) == ([], None)
        await t.advance(3)
        assert batches == [[b"1"], [b"1"]]
        assert (values(t, "invoices"), t.committed("orders", 0)) == ([b"1"], 1)
        consumer.stop()
        await running


async def test_what_a_task_publishes_is_committed_with_its_record() -> None:
    consumer = exactly_once("orders")

    async def loop() -> None:
        async with consumer.task_group() as tasks:

            async def bill(record: Record) -> None:
                await tasks.publish(record, "invoices", record.value)
                await asyncio.sleep(10)

            async for batch in consumer:
                for record in batch.records:
                    await tasks.submit(bill, record)

    async with TestConsumer(consumer, partitions=1) as t:
        running = asyncio.create_task(loop())
        await t.publish("orders", b"1")
        await t.advance(9)
        assert (values(t, "invoices"), t.committed("orders", 0)) == ([], 0)
        await t.advance(7)
        assert (values(t, "invoices"), t.committed("orders", 0)) == ([b"1"], 1)
        consumer.stop()
        await running


async def test_a_batch_without_results_commits_its_offsets() -> None:
    consumer = exactly_once("orders")
    read: list[object] = []

    async def loop() -> None:
        async for batch in consumer:
            async with consumer.transaction():
                read.append(batch)

    async with TestConsumer(consumer, partitions=1) as t:
        running = asyncio.create_task(loop())
        await t.publish("orders", b"1")
        assert t.committed("orders", 0) == 1
        consumer.stop()
        await running
    assert len(read) == 1


@pytest.mark.parametrize("number", range(2))
async def test_the_consumer_of_a_module_publishes_each_result_once_in_each_test(
    number: int,
) -> None:
    async with TestConsumer(_OF_MODULE) as t:
        await t.publish("orders", b"%d" % number)
        await t.advance(1)
        assert values(t, "invoices") == [b"%d" % number]


_OF_MODULE = exactly_once(transaction_interval=0.1)


@_OF_MODULE.handler("orders", publish_to="invoices")
async def bill_in_module(value: bytes) -> bytes:
    return value
