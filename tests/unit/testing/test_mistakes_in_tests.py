"""What tests do wrong with a TestConsumer, and handlers with their consumer."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any, cast

import pytest

from asyncrevoke import Consumer, ConsumerClosedError, IllegalStateError, Record
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


async def test_a_handler_that_closes_its_consumer_gets_an_error_at_once() -> None:
    consumer = Consumer(group_id="billing")
    errors: list[str] = []

    @consumer.handler("orders")
    async def handle(value: bytes) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for close in (consumer.aclose(), asyncio.wait_for(consumer.aclose(), 60)):
            with pytest.raises(IllegalStateError) as caught:
                await close
            errors.append(str(caught.value))
        assert loop.time() == began
        consumer.stop()

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"")
        await t.advance(1)
    assert len(errors) == 2
    assert all("call consumer.stop() instead" in error for error in errors)


async def test_a_task_of_a_task_group_that_closes_its_consumer_gets_an_error_at_once() -> None:
    consumer = Consumer("orders", group_id="billing")
    errors: list[str] = []

    async def handle(record: Record) -> None:
        with pytest.raises(IllegalStateError) as caught:
            await consumer.aclose()
        errors.append(str(caught.value))
        consumer.stop()

    async def loop() -> None:
        async with consumer.task_group() as tasks:
            async for batch in consumer:
                for record in batch.records:
                    await tasks.submit(handle, record)

    async with TestConsumer(consumer) as t:
        task = asyncio.create_task(loop())
        await t.publish("orders", b"")
        await task
    assert len(errors) == 1


@pytest.mark.parametrize("callback", ["on_partitions_assigned", "on_partitions_revoked"])
@pytest.mark.parametrize("within_task", [False, True])
async def test_a_callback_of_a_listener_that_closes_its_consumer_gets_an_error_at_once(
    callback: str, within_task: bool
) -> None:
    errors: list[str] = []

    class Listener:
        pass

    async def close(_partitions: object) -> None:
        began = asyncio.get_running_loop().time()
        with pytest.raises(IllegalStateError) as caught:
            await (asyncio.create_task(consumer.aclose()) if within_task else consumer.aclose())
        assert asyncio.get_running_loop().time() == began
        errors.append(str(caught.value))

    setattr(Listener, callback, staticmethod(close))
    consumer = Consumer("orders", group_id="billing", listener=cast("Any", Listener()))
    async with TestConsumer(consumer):
        pass
    assert errors
    assert all("call consumer.stop() instead" in error for error in errors)


async def test_a_task_that_a_callback_has_started_may_close_the_consumer_later() -> None:
    closing: list[asyncio.Task[None]] = []

    class Listener:
        def on_partitions_assigned(self, _partitions: object) -> None:
            closing.append(asyncio.create_task(consumer.aclose()))

    consumer = Consumer("orders", group_id="billing", listener=cast("Any", Listener()))
    async with TestConsumer(consumer) as t:
        await t.advance(1)
        await closing[0]
        with pytest.raises(ConsumerClosedError):
            await consumer.commit()


@pytest.mark.parametrize("when", ["entered", "exited"])
async def test_a_partition_lifespan_that_closes_its_consumer_gets_an_error_at_once(
    when: str,
) -> None:
    consumer = Consumer(group_id="billing")
    errors: list[str] = []

    @consumer.handler("orders")
    async def handle(value: bytes) -> None: ...

    async def close(now: str) -> None:
        if when == now and not errors:
            for call in (consumer.aclose(), consumer.unsubscribe()):
                with pytest.raises(IllegalStateError, match="partition lifespan") as caught:
                    await call
                errors.append(str(caught.value))

    @consumer.partition_lifespan
    async def state(_partition: object) -> AsyncGenerator[None]:
        await close("entered")
        yield
        await close("exited")

    async with TestConsumer(consumer) as t:
        began = t.time
        await t.advance(0)
        await t.revoke(("orders", 0))
    assert errors
    assert t.time - began < 5


async def test_a_handler_that_unsubscribes_its_consumer_gets_an_error_at_once() -> None:
    consumer = Consumer(group_id="billing")
    errors: list[str] = []

    @consumer.handler("orders")
    async def handle(value: bytes) -> None:
        with pytest.raises(IllegalStateError, match="call it in another task") as caught:
            await consumer.unsubscribe()
        errors.append(str(caught.value))

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"")
        await t.advance(1)
    assert len(errors) == 1


async def test_a_handler_may_close_another_consumer() -> None:
    consumer, other = Consumer(group_id="billing"), Consumer("orders", group_id="shipping")
    closed: list[bytes] = []

    @consumer.handler("orders")
    async def handle(value: bytes) -> None:
        await other.aclose()
        closed.append(value)

    async with TestConsumer(consumer) as t, TestConsumer(other):
        await t.publish("orders", b"1")
        await t.advance(1)
    assert closed == [b"1"]


async def test_publishing_to_a_topic_that_no_handler_reads_warns() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", dead_letter="orders.dlq")
    async def one(value: bytes) -> None: ...

    @consumer.handler(pattern="audit-.*")
    async def two(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        with pytest.warns(UserWarning, match='no handler reads the topic "ordres"') as caught:
            await t.publish("ordres", b"")
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for topic in ("orders", "orders.dlq", "audit-eu"):
                await t.publish(topic, b"")


def test_a_test_in_another_event_loop_than_its_fixture_is_told_of_loop_scopes() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders")
    async def handle(value: bytes) -> None: ...

    async def use(t: TestConsumer) -> None:
        for call in (t.publish("orders", b""), t.advance(1), t.revoke(("orders", 0))):
            with pytest.raises(IllegalStateError, match="fixture and its tests need the same"):
                await call

    with asyncio.Runner() as fixture:
        t = fixture.run(TestConsumer(consumer).__aenter__())
        with asyncio.Runner() as test:
            test.run(use(t))
        fixture.run(t.__aexit__(None, None, None))
