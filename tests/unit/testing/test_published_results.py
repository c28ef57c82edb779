"""Results of handlers in tests: in the topics of the simulated cluster, without sockets."""

from __future__ import annotations

import pytest

from asyncrevoke import (
    CallNext,
    Consumer,
    ConsumerClosedError,
    HandlerContext,
    IllegalStateError,
    PublishError,
)
from asyncrevoke.testing import TestConsumer

TRACE = ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")


def echoing() -> Consumer:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders", publish_to="invoices")
    async def echo(value: bytes) -> bytes:
        return value

    return consumer


async def test_results_have_the_key_and_the_trace_context_of_their_records() -> None:
    async with TestConsumer(echoing()) as t:
        headers: dict[str, str | bytes | None] = {TRACE[0]: TRACE[1], "other": b"x"}
        await t.publish("orders", b"1", key="k", headers=headers)
        await t.publish("orders", b"2")
        first, second = sorted(t.records("invoices"), key=lambda record: record.value or b"")
    assert (first.key, first.value, first.headers) == (b"k", b"1", (TRACE,))
    assert (second.key, second.headers) == (None, ())


async def test_a_value_that_does_not_decode_is_no_call_of_a_handler_with_results() -> None:
    consumer = Consumer(group_id="g")

    @consumer.middleware
    async def passing_on(context: HandlerContext, call_next: CallNext) -> None:
        await call_next()

    @consumer.handler("orders", publish_to="invoices", dead_letter="failed", max_handler_time=60)
    async def bill(order: dict[str, int]) -> dict[str, int]:
        return order

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"no JSON")
        assert t.calls_of(bill) == []
        assert [each.outcome for each in t.not_handled] == ["dead_lettered"]


async def test_the_consumer_of_a_module_publishes_in_each_test() -> None:
    consumer = echoing()
    for _ in range(2):
        async with TestConsumer(consumer) as t:
            await t.publish("orders", b"1", partition=0)
            assert len(t.records("invoices")) == 1
            await t.advance(1)
            assert t.committed("orders", 0) == 1


async def test_a_handler_publishes_by_its_context() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders")
    async def handle(value: bytes, context: HandlerContext) -> None:
        await context.publish("invoices", {"of": value.decode()}, headers={"a": "b"})
        await context.publish("audit", None, key="own", partition=3, timestamp=7)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", key="k", headers={TRACE[0]: TRACE[1]})
        (invoice,) = t.records("invoices")
        (audit,) = t.records("audit")
    assert (invoice.key, invoice.value) == (b"k", b'{"of":"1"}')
    assert invoice.headers == (TRACE, ("a", b"b"))
    assert (audit.key, audit.value, audit.partition, audit.timestamp) == (b"own", None, 3, 7)


async def test_code_outside_of_handlers_publishes_until_the_consumer_is_closed() -> None:
    for consumer in (echoing(), Consumer("orders", group_id="g")):
        with pytest.raises(IllegalStateError):
            _ = consumer.producer
        async with TestConsumer(consumer) as t:
            producer = consumer.producer
            await producer.publish("invoices", "text", key="k")
            assert [record.value for record in t.records("invoices")] == [b"text"]
            assert consumer.producer is producer
            with pytest.raises(PublishError, match="not published to invoices: "):
                await producer.publish("invoices", object())
            session = consumer._session
            await t.advance(0)
        assert session is not None
        with pytest.raises(ConsumerClosedError):
            await producer.publish("invoices", "late")


async def test_results_are_published_again_after_a_crash() -> None:
    consumer = echoing()
    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", partition=0)
        await t.crash()
        await t.restart(consumer)
        await t.advance(1)
        assert len(t.records("invoices")) in (1, 2)
        assert t.committed("orders", 0) == 1
