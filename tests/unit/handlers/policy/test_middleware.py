"""Middleware: what goes around each call of a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import RecordState, record, turns

from asyncrevoke import (
    BatchError,
    CallNext,
    ConfigError,
    Consumer,
    HandlerContext,
    Record,
    Retry,
    Router,
)
from asyncrevoke.handlers.execution.invocation import HandlerInvoker
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.handlers.policy.middleware import Middleware


class Trace:
    """Middleware that writes down when calls begin and end."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def around(self, name: str) -> Middleware:
        async def trace(context: HandlerContext, call_next: CallNext) -> None:
            self.lines.append(f"{name} >")
            try:
                await call_next()
            except Exception as error:
                self.lines.append(f"{name} ! {error}")
                raise
            self.lines.append(f"{name} <")

        return trace


async def test_what_is_registered_first_is_outermost_and_a_router_s_own_is_inside() -> None:
    trace = Trace()
    router = Router()

    @router.handler("refunds")
    async def refund(value: bytes) -> None:
        trace.lines.append("refund")

    router.middleware(trace.around("router"))
    consumer = Consumer(group_id="g")
    consumer.middleware(trace.around("outer"))
    consumer.include_router(router)
    consumer.middleware(trace.around("inner"))

    @consumer.handler("orders")
    async def bill(value: bytes) -> None:
        trace.lines.append("bill")

    async with TestConsumer(consumer) as t:
        await t.publish("refunds", b"1")
        assert trace.lines == [
            *("outer >", "inner >", "router >", "refund"),
            *("router <", "inner <", "outer <"),
        ]
        trace.lines.clear()
        await t.publish("orders", b"2")
        assert trace.lines == ["outer >", "inner >", "bill", "inner <", "outer <"]


async def test_middleware_sees_each_attempt_with_its_context() -> None:
    seen: list[tuple[str, int, int, Sequence[Record]]] = []
    consumer = Consumer(group_id="g")

    @consumer.middleware
    async def note(context: HandlerContext, call_next: CallNext) -> None:
        seen.append((context.handler, context.attempt, context.record.offset, context.records))
        await call_next()

    @consumer.handler("orders", retry=Retry(attempts=2, backoff=1), on_error="skip")
    async def bill(each: Record) -> None:
        raise ValueError

    async with TestConsumer(consumer) as t:
        published = await t.publish("orders", b"1")
        await t.advance(5)
        assert [line[1:3] for line in seen] == [(1, published.offset), (2, published.offset)]
        assert all(line[0].endswith(".bill") for line in seen)
        assert [[each.value for each in line[3]] for line in seen] == [[b"1"], [b"1"]]


async def test_a_record_whose_middleware_does_not_call_the_handler_is_done() -> None:
    handled: list[bytes] = []
    consumer = Consumer(group_id="g")

    @consumer.middleware
    async def not_twice(context: HandlerContext, call_next: CallNext) -> None:
        if context.record.value not in handled:
            await call_next()

    @consumer.handler("orders")
    async def bill(value: bytes) -> None:
        handled.append(value)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.publish("orders", b"1")
        await t.advance(2)
        assert handled == [b"1"]
        assert t.committed("orders", 0) == 2


async def test_an_exception_of_middleware_is_a_failure_of_its_record() -> None:
    consumer = Consumer(group_id="g")
    handled: list[bytes] = []

    @consumer.middleware
    async def reject(context: HandlerContext, call_next: CallNext) -> None:
        if context.record.value == b"bad":
            raise PermissionError("not for us")
        await call_next()

    @consumer.handler("orders", dead_letter="dlq", retry=Retry(attempts=2, backoff=1))
    async def bill(value: bytes) -> None:
        handled.append(value)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"bad")
        await t.publish("orders", b"good")
        await t.advance(5)
        (letter,) = t.dead_letters("dlq")
        assert dict(letter.headers)["asyncrevoke-attempts"] == b"2"
        assert handled == [b"good"]
        assert t.committed("orders", 0) == 2


async def test_call_next_raises_the_handlers_error_and_middleware_may_catch_it() -> None:
    trace = Trace()
    consumer = Consumer(group_id="g")

    @consumer.middleware
    async def swallow(context: HandlerContext, call_next: CallNext) -> None:
        try:
            await call_next()
        except ValueError as error:
            trace.lines.append(f"swallowed {error}")

    consumer.middleware(trace.around("inner"))

    @consumer.handler("orders")
    async def bill(value: bytes) -> None:
        raise ValueError("boom")

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(2)
        assert trace.lines == ["inner >", "inner ! boom", "swallowed boom"]
        assert t.committed("orders", 0) == 1


async def test_middleware_runs_once_for_a_batch_and_batch_error_passes_through_it() -> None:
    calls: list[tuple[int, list[int]]] = []
    consumer = Consumer(group_id="g")

    @consumer.middleware
    async def note(context: HandlerContext, call_next: CallNext) -> None:
        calls.append((context.attempt, [each.offset for each in context.records]))
        await call_next()

    @consumer.handler(
        "clicks", batch=True, max_records=3, retry=Retry(attempts=2, backoff=1), on_error="skip"
    )
    async def store(clicks: list[bytes]) -> None:
        bad = {index: ValueError() for index, click in enumerate(clicks) if click == b"bad"}
        if bad:
            raise BatchError(bad)

    async with TestConsumer(consumer, partitions=1) as t:
        for value in (b"a", b"bad", b"c"):
            await t.publish("clicks", value)
        await t.advance(5)
        assert calls == [(1, [0, 1, 2]), (2, [1])]
        assert t.committed("clicks", 0) == 3


async def test_max_handler_time_limits_middleware_too() -> None:
    async def forever(context: HandlerContext, call_next: CallNext) -> None:
        await hold()

    hold = _Hold()
    consumer = Consumer(group_id="g")
    consumer.middleware(forever)

    @consumer.handler("orders", max_handler_time=2, on_error="skip")
    async def bill(value: bytes) -> None: ...

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(4)
        assert hold.cancelled
        assert t.committed("orders", 0) == 1


class _Hold:
    cancelled = False

    async def __call__(self) -> None:
        import asyncio

        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def test_call_next_raises_decode_error() -> None:
    trace = Trace()
    consumer = Consumer(group_id="g")
    consumer.middleware(trace.around("m"))

    @consumer.handler("orders", on_error="skip")
    async def bill(value: dict[str, int]) -> None: ...

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"no json")
        assert trace.lines[0] == "m >"
        assert trace.lines[1].startswith("m ! ")


async def test_without_middleware_the_compiled_call_is_used_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rejected(*_: object) -> None:
        raise AssertionError("nothing goes around this handler")

    monkeypatch.setattr(HandlerInvoker, "call_record", rejected)
    handled: list[int] = []

    async def handle(each: Record) -> None:
        handled.append(each.offset)

    async def handle_with_context(each: Record, context: HandlerContext) -> None:
        handled.append(context.record.offset)

    functions: tuple[Any, ...] = (handle, handle_with_context)
    for function in functions:
        async with running(function) as run:
            run.source.feed(one := record(7))
            await turns()
            assert run.source.state_of(one) is RecordState.DONE
            await run.stop()
    assert handled == [7, 7]


async def test_middleware_is_composed_once_per_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    from asyncrevoke.handlers.execution import invocation
    from asyncrevoke.handlers.policy import middleware

    built: list[int] = []
    chain = middleware.compose_middleware

    def counted(functions: Any) -> Any:
        built.append(len(functions))
        return chain(functions)

    monkeypatch.setattr(invocation, "compose_middleware", counted)
    trace = Trace()
    consumer = Consumer(group_id="g")
    consumer.middleware(trace.around("m"))

    @consumer.handler("orders")
    async def bill(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        for _ in range(5):
            await t.publish("orders", b"1")
    assert trace.lines == ["m >", "m <"] * 5
    assert built == [1]


def test_a_value_that_cannot_be_middleware_is_a_config_error_with_the_fix() -> None:
    consumer = Consumer(group_id="g")

    def sync(context: HandlerContext, call_next: CallNext) -> None: ...

    async def one_parameter(call_next: CallNext) -> None: ...

    with pytest.raises(ConfigError, match=r"not an async function.*async def timing"):
        consumer.middleware(sync)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match=r"other parameters.*call_next"):
        consumer.middleware(one_parameter)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="not 3"):
        consumer.middleware(3)  # type: ignore[type-var]


async def test_a_consumer_with_middleware_and_no_handler_is_rejected_when_entered() -> None:
    consumer = Consumer(group_id="g")
    consumer.middleware(Trace().around("m"))
    with pytest.raises(ConfigError, match="no handler"):
        await consumer.start()
