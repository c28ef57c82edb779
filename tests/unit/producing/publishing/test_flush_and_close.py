"""Flushing and closing end, and lose no error."""

from __future__ import annotations

import asyncio

import pytest
from unit.handlers.results.scripted_results_broker import ScriptedResultsBroker
from unit.producing.publishing.scripted_producer import entered, values

from asyncrevoke import Consumer, ConsumerClosedError, IllegalStateError, PublishError
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.testing import TestConsumer

pytestmark = pytest.mark.timeout(20)


async def test_flush_waits_for_what_was_queued_before_only() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        flushed = False

        async def publish_on() -> None:
            while not flushed:
                _ = await producer.publish_soon("t", b"%d" % len(broker.written))
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publish_on())
            await asyncio.sleep(0.01)
            await producer.flush()
            flushed = True


async def test_flush_ends_at_its_timeout_and_the_records_stay() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        broker.responding.clear()
        _ = await producer.publish_soon("t", b"1")
        with pytest.raises(TimeoutError, match=r"1 record not acknowledged within 0\.02 s"):
            await producer.flush(0.02)
        broker.responding.set()
        await producer.flush(5)
    assert values(broker) == [0, 1]


async def test_closing_waits_for_acknowledgements() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        for number in range(100):
            _ = await producer.publish_soon("t", b"%d" % number)
    assert values(broker) == list(range(100))
    assert broker.closed
    with pytest.raises(ConsumerClosedError, match="the producer is closed"):
        _ = await producer.publish_soon("t", b"")
    await producer.aclose()


@pytest.mark.parametrize("by_option", [True, False])
async def test_closing_ends_in_time_and_raises_what_is_left(by_option: bool) -> None:
    broker, record = ScriptedResultsBroker(), None
    with pytest.raises(PublishError, match="closed before the record was acknowledged") as raised:
        async with entered(broker, close_timeout=0.05 if by_option else 60) as producer:
            await producer.publish("t", b"0")
            broker.responding.clear()
            record = await producer.publish_soon("t", b"1")
            if not by_option:
                await producer.aclose(0.05)
    assert raised.value.in_doubt
    assert record is not None
    with pytest.raises(ConsumerClosedError):
        await record
    assert broker.closed


async def test_closing_raises_an_error_that_no_call_has_received() -> None:
    broker = ScriptedResultsBroker()
    broker.errors[b"1"] = ErrorCode.topic_authorization_failed
    with pytest.raises(PublishError, match="WRITE"):
        async with entered(broker) as producer:
            _ = await producer.publish_soon("t", b"1")


async def test_the_exception_of_the_block_comes_first_and_records_are_written() -> None:
    broker = ScriptedResultsBroker()
    broker.errors[b"1"] = ErrorCode.topic_authorization_failed
    with pytest.raises(ZeroDivisionError):
        async with entered(broker) as producer:
            _ = await producer.publish_soon("t", b"0")
            _ = await producer.publish_soon("u", b"1")
            raise ZeroDivisionError
    assert values(broker) == [0]


async def test_cancelled_closing_disconnects_at_once() -> None:
    broker = ScriptedResultsBroker()
    async with entered(broker) as producer:
        await producer.publish("t", b"0")
        broker.responding.clear()
        record = await producer.publish_soon("t", b"1")
        closing = asyncio.create_task(producer.aclose())
        await asyncio.sleep(0)
        other = asyncio.create_task(producer.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await other
        assert broker.closed
        with pytest.raises(ConsumerClosedError):
            await record


async def test_consumer_producer_is_flushed_when_its_consumer_closes() -> None:
    consumer = Consumer("t", group_id="g")
    async with TestConsumer(consumer) as t:
        producer = consumer.producer
        with pytest.raises(IllegalStateError, match="closed with its consumer"):
            await producer.aclose()
        for number in range(10):
            _ = await producer.publish_soon("t", b"%d" % number, partition=0)
        closing = t.consumer.aclose()
        await closing
        assert [record.value for record in t.records("t")] == [b"%d" % n for n in range(10)]


async def test_a_consumer_raises_errors_of_its_producer_when_it_closes() -> None:
    consumer = Consumer("t", group_id="g")
    with pytest.raises(PublishError, match="there is no partition 99"):
        async with TestConsumer(consumer):
            await consumer.producer.publish("t", b"")
            _ = await consumer.producer.publish_soon("t", b"", partition=99)
