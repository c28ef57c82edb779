"""Resources of which each running call has one for itself."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from asyncrevoke import CallNext, ConfigError, Consumer, HandlerContext
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Pool:
    """What is opened, and by whom it is used."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0
        self.given: list[object] = []
        self.in_use: set[int] = set()
        self.most_in_use = 0

    # The annotation of the parameter is that of what resources= opens; type checkers accept it.
    @asynccontextmanager
    async def one(self, shared: str | None) -> AsyncGenerator[int]:
        self.given.append(shared)
        self.opened += 1
        with anyio.CancelScope():  # must be left by the task that entered it
            yield self.opened
        self.closed += 1

    async def use(self, number: int, seconds: float = 1) -> None:
        assert number not in self.in_use, "two calls have the same one"
        self.in_use.add(number)
        self.most_in_use = max(self.most_in_use, len(self.in_use))
        try:
            await asyncio.sleep(seconds)
        finally:
            self.in_use.remove(number)


Context = HandlerContext[str, int]


async def test_calls_at_the_same_time_have_one_resource_each_and_later_calls_reuse_them() -> None:
    pool = Pool()

    @asynccontextmanager
    async def shared() -> AsyncGenerator[str]:
        yield "shared"

    consumer = Consumer(
        group_id="g",
        concurrency=3,
        order_by=None,
        resources=shared(),
        worker_resources=pool.one,
    )

    @consumer.handler("orders")
    async def bill(value: bytes, context: Context) -> None:
        assert context.state == "shared"
        await pool.use(context.worker_state)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(2)
        assert pool.opened == 1, "opened when it is first needed"
        for _ in range(12):
            await t.publish("orders", b"x")
        await t.advance(10)
        assert t.committed("orders", 0) == 13
        assert (pool.opened, pool.most_in_use, pool.closed) == (3, 3, 0)
        assert pool.given == ["shared"] * 3
    assert pool.closed == 3


async def test_worker_resources_are_closed_after_the_last_handler_and_before_resources() -> None:
    lines: list[str] = []

    @asynccontextmanager
    async def shared() -> AsyncGenerator[None]:
        yield
        lines.append("resources closed")

    @asynccontextmanager
    async def one(_: object) -> AsyncGenerator[None]:
        yield
        lines.append("worker_resources closed")

    consumer = Consumer(group_id="g", resources=shared(), worker_resources=one)

    @consumer.handler("orders")
    async def bill(value: bytes, context: HandlerContext) -> None:
        await asyncio.sleep(5)
        lines.append("handled")

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1")
    assert lines == ["handled", "worker_resources closed", "resources closed"]


async def test_a_handler_without_context_and_middleware_opens_no_resource() -> None:
    pool = Pool()
    consumer = Consumer(group_id="g", worker_resources=pool.one)

    @consumer.handler("orders")
    async def bill(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1")
    assert pool.opened == 0


async def test_middleware_and_batches_have_worker_resources_too() -> None:
    pool = Pool()
    seen: list[object] = []
    consumer = Consumer(group_id="g", worker_resources=pool.one)

    @consumer.middleware
    async def note(context: HandlerContext, call_next: CallNext) -> None:
        seen.append(context.worker_state)
        await call_next()

    @consumer.handler("clicks", batch=True, max_records=2)
    async def store(clicks: list[bytes], context: HandlerContext) -> None:
        seen.append(context.worker_state)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("clicks", b"1")
        await t.publish("clicks", b"2")
        assert seen == [1, 1]


async def test_a_resource_that_cannot_be_opened_stops_the_consumer_with_its_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class NoDatabaseError(Exception):
        pass

    @asynccontextmanager
    async def one(_: object) -> AsyncGenerator[None]:
        raise NoDatabaseError
        yield

    consumer = Consumer(group_id="g", worker_resources=one)

    @consumer.handler("orders", on_error="skip")
    async def bill(value: bytes, context: HandlerContext) -> None:
        raise AssertionError("called without its resources")

    t = TestConsumer(consumer, partitions=1)
    with pytest.raises(NoDatabaseError) as raised:
        async with t:
            await t.publish("orders", b"1")
    assert not hasattr(raised.value, "__notes__")
    assert "reason='worker_resources could not be opened'" in caplog.text
    assert t.committed("orders", 0) in (None, 0)


async def test_a_resource_goes_to_the_next_call_if_its_call_is_cancelled_while_it_opens() -> None:
    pool = Pool()
    ready = asyncio.Event()

    @asynccontextmanager
    async def slow(shared: None) -> AsyncGenerator[int]:
        async with pool.one(shared) as number:
            await ready.wait()
            yield number

    consumer = Consumer(group_id="g", worker_resources=slow)
    handled: list[bytes] = []

    @consumer.handler("orders")
    async def bill(value: bytes, context: HandlerContext) -> None:
        handled.append(value)

    async with TestConsumer(consumer, partitions=2) as t:
        await t.publish("orders", b"lost", partition=0)
        await t.lose(("orders", 0))
        ready.set()
        await t.publish("orders", b"kept", partition=1)
        assert handled == [b"kept"]
        assert pool.opened == 1
    assert pool.closed == 1


async def test_an_error_of_closing_is_raised_when_the_consumer_is_left() -> None:
    @asynccontextmanager
    async def one(_: object) -> AsyncGenerator[None]:
        yield
        raise OSError("cannot close")

    consumer = Consumer(group_id="g", worker_resources=one)

    @consumer.handler("orders")
    async def bill(value: bytes, context: HandlerContext) -> None: ...

    with pytest.raises(OSError, match="cannot close"):
        async with TestConsumer(consumer) as t:
            await t.publish("orders", b"1")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Pool().one(None), "give the function itself"),
        (3, "give the function itself"),
        (lambda: None, "one parameter"),
    ],
)
def test_a_value_that_cannot_open_resources_is_a_config_error_with_the_fix(
    given: Any, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        Consumer(group_id="g", worker_resources=given)


async def test_worker_resources_without_handlers_are_rejected() -> None:
    consumer = Consumer("orders", group_id="g", worker_resources=Pool().one)
    with pytest.raises(ConfigError, match="worker_resources= is for handlers"):
        await consumer.start()
