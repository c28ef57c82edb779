"""Spans around the calls of handlers, by the SDK's exporter in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    format_span_id,
    format_trace_id,
)

from asyncrevoke import (
    BatchError,
    ConfigError,
    Consumer,
    HandlerContext,
    Message,
    Record,
    Retry,
    RetryTopic,
)
from asyncrevoke.integrations import conventions as names
from asyncrevoke.integrations.opentelemetry_tracing import OpenTelemetryTracing
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from asyncrevoke.client.config.consumer_options import Processing

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-00"}


class Traced:
    """A consumer with a tracer, and the spans that have ended."""

    def __init__(
        self, *topics: str, new_traces: float = 1.0, processing: Processing = "at_least_once"
    ) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.consumer = Consumer(
            *topics, group_id="billing", client_id="till", processing=processing
        )
        self.consumer.observe(OpenTelemetryTracing(provider, new_traces=new_traces))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def calls(self) -> list[ReadableSpan]:
        return [span for span in self.spans if span.kind is SpanKind.CONSUMER]

    def sends(self) -> list[ReadableSpan]:
        return [span for span in self.spans if span.kind is SpanKind.PRODUCER]


def ids_of(span: ReadableSpan) -> tuple[str, str]:
    context = span.get_span_context()
    assert context is not None
    return format_trace_id(context.trace_id), format_span_id(context.span_id)


def parent_of(span: ReadableSpan) -> tuple[str, str] | None:
    parent = span.parent
    return parent and (format_trace_id(parent.trace_id), format_span_id(parent.span_id))


def traceparent_of(record: Record) -> list[bytes | None]:
    return [value for name, value in record.headers if name == "traceparent"]


def as_header(span: ReadableSpan) -> bytes:
    context = span.get_span_context()
    assert context is not None
    trace_id, span_id = format_trace_id(context.trace_id), format_span_id(context.span_id)
    return f"00-{trace_id}-{span_id}-{context.trace_flags:02x}".encode()


async def test_a_call_is_a_span_in_the_records_trace() -> None:
    traced = Traced()
    current: list[str] = []

    @traced.consumer.handler("orders")
    async def bill(order: bytes) -> None:
        current.append(format_trace_id(trace.get_current_span().get_span_context().trace_id))

    async with TestConsumer(traced.consumer) as t:
        await t.publish("orders", b"1", partition=2, headers=SAMPLED)
    (span,) = traced.spans
    assert (span.name, span.kind, parent_of(span)) == (
        "process orders",
        SpanKind.CONSUMER,
        (TRACE, PARENT),
    )
    assert current == [TRACE]
    assert span.attributes == {
        names.SYSTEM: "kafka",
        names.OPERATION: "process",
        names.OPERATION_TYPE: "process",
        names.GROUP: "billing",
        names.CLIENT_ID: "till",
        names.TOPIC: "orders",
        names.PARTITION: "2",
        names.OFFSET: 0,
        names.BODY_SIZE: 1,
        names.HANDLER: f"{__name__}.test_a_call_is_a_span_in_the_records_trace.bill",
        names.ATTEMPT: 1,
    }


async def test_a_record_of_a_trace_that_is_not_sampled_has_no_span_but_its_context() -> None:
    traced = Traced()
    current: list[tuple[str, bool]] = []

    @traced.consumer.handler("orders")
    async def bill(order: bytes) -> None:
        context = trace.get_current_span().get_span_context()
        current.append((format_trace_id(context.trace_id), context.trace_flags.sampled))

    async with TestConsumer(traced.consumer) as t:
        await t.publish("orders", b"1", headers=UNSAMPLED)
    assert current == [(TRACE, False)]
    assert traced.spans == []


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0, 0), (0.5, 40, 60), (1.0, 100, 100)])
async def test_a_share_of_the_records_without_a_context_begins_a_trace(
    share: float, least: int, most: int
) -> None:
    traced = Traced(new_traces=share)

    @traced.consumer.handler("orders")
    async def bill(order: bytes) -> None: ...

    async with TestConsumer(traced.consumer) as t:
        for _ in range(100):
            await t.publish("orders", b"1", partition=0)
    assert least <= len(traced.spans) <= most
    assert all(span.parent is None for span in traced.spans)
    with pytest.raises(ConfigError, match="from 0 to 1"):
        Traced(new_traces=2)


async def test_a_span_of_one_record_is_not_current_for_the_next() -> None:
    traced = Traced(new_traces=0.0)
    seen: list[tuple[bool, object]] = []

    @traced.consumer.handler("orders")
    async def bill(order: bytes) -> None:
        valid = trace.get_current_span().get_span_context().is_valid
        seen.append((valid, baggage.get_baggage("customer")))

    async with TestConsumer(traced.consumer) as t:
        await t.publish("orders", b"1", partition=0, headers={**SAMPLED, "baggage": "customer=7"})
        await t.publish("orders", b"2", partition=0)
    assert seen == [(True, "7"), (False, None)]


@pytest.mark.parametrize(
    "value", [b"", b"\xff\xfe", b"00-0-0-01", f"00-{'0' * 32}-{PARENT}-01".encode(), b"x" * 10_000]
)
async def test_headers_that_make_no_sense_begin_a_trace_like_none(value: bytes) -> None:
    traced = Traced()

    @traced.consumer.handler("orders")
    async def bill(order: bytes) -> None: ...

    async with TestConsumer(traced.consumer) as t:
        await t.publish("orders", b"1", headers={"traceparent": value})
    assert [span.parent for span in traced.spans] == [None]


async def test_each_attempt_is_a_span_and_the_dead_letter_has_the_last_ones_context() -> None:
    traced = Traced()

    @traced.consumer.handler("orders", retry=Retry(attempts=2, backoff=0.1), dead_letter="dlq")
    async def bill(order: bytes) -> None:
        raise LookupError("no such order")

    async with TestConsumer(traced.consumer) as t:
        await t.publish("orders", b"1", headers={**SAMPLED, "own": "kept"})
        await t.advance(2)
        (letter,) = t.dead_letters("dlq")
    first, second = traced.spans
    for attempt, span in enumerate((first, second), start=1):
        assert span.attributes is not None
        assert span.attributes[names.ATTEMPT] == attempt
        assert span.attributes[names.ERROR] == "LookupError"
        assert span.status.status_code is StatusCode.ERROR
        assert [event.name for event in span.events] == ["exception"]
        assert parent_of(span) == (TRACE, PARENT)
    assert traceparent_of(letter) == [as_header(second)]
    assert ("own", b"kept") in letter.headers


async def test_the_dead_letter_of_a_call_that_took_too_long_has_its_context() -> None:
    traced = Traced()

    @traced.consumer.handler("orders", max_handler_time=1, dead_letter="dlq")
    async def bill(order: bytes) -> None:
        await asyncio.sleep(60)

    async with TestConsumer(traced.consumer) as t:
        await t.publish("orders", b"1")
        await t.advance(5)
        (letter,) = t.dead_letters("dlq")
    (span,) = traced.spans
    assert traceparent_of(letter) == [as_header(span)]


async def test_each_dead_letter_has_the_context_of_its_own_call() -> None:
    traced = Traced()

    @traced.consumer.handler("orders", retry=Retry(attempts=2, backoff=1), dead_letter="dlq")
    async def bill(order: bytes) -> None:
        raise LookupError(order)

    async with TestConsumer(traced.consumer) as t:
        for key in ("a", "b", "c"):
            await t.publish("orders", key.encode(), key=key, partition=0)
        await t.advance(10)
        letters = t.dead_letters("dlq")
    last = {
        span.attributes[names.OFFSET]: as_header(span)
        for span in traced.spans
        if span.attributes is not None
    }
    found = {
        int(dict(letter.headers)["asyncrevoke-origin-offset"] or b""): traceparent_of(letter)
        for letter in letters
    }
    assert found == {offset: [header] for offset, header in last.items()}
    assert len(found) == 3


async def test_a_record_comes_back_from_a_retry_topic_in_the_trace_of_its_failure() -> None:
    traced = Traced()

    @traced.consumer.handler("orders", retry_topic=RetryTopic("orders.later", delay=5))
    async def bill(order: bytes) -> None:
        if len(traced.spans) == 0:
            raise LookupError("no such order")

    async with TestConsumer(traced.consumer) as t:
        await t.publish("orders", b"1")
        await t.advance(10)
    failed, again = traced.spans
    context = failed.get_span_context()
    assert context is not None
    assert parent_of(again) == (format_trace_id(context.trace_id), format_span_id(context.span_id))
    assert again.attributes is not None
    assert again.attributes[names.ATTEMPT] == 2


async def test_a_batch_is_a_span_with_a_link_to_each_record() -> None:
    traced = Traced()

    @traced.consumer.handler("orders", batch=True, max_records=3, dead_letter="dlq")
    async def store(orders: list[bytes]) -> None:
        raise BatchError({1: LookupError("no such order")})

    other = {"traceparent": f"00-{TRACE[::-1]}-{PARENT}-01"}
    async with TestConsumer(traced.consumer) as t:
        for headers in (SAMPLED, other, {}):
            await t.publish("orders", b"1", partition=0, headers=headers)
        await t.advance(2)
        (letter,) = t.dead_letters("dlq")
    (span,) = traced.spans
    assert span.parent is None
    links = [(format_trace_id(link.context.trace_id), link.attributes) for link in span.links]
    assert links == [(TRACE, {names.OFFSET: 0}), (TRACE[::-1], {names.OFFSET: 1})]
    assert span.attributes is not None
    assert span.attributes[names.BATCH_SIZE] == 3
    assert traceparent_of(letter) == [as_header(span)]


async def test_tasks_of_a_task_group_have_spans() -> None:
    traced = Traced("orders")
    consumer = traced.consumer

    async def bill(record: Record) -> None: ...

    async def loop() -> None:
        async with consumer.task_group() as tasks:
            async for batch in consumer:
                for record in batch.records:
                    await tasks.submit(bill, record)

    async with TestConsumer(consumer) as t:
        running = asyncio.create_task(loop())
        await t.publish("orders", b"1", headers=SAMPLED)
        await t.advance(1)
        consumer.stop()
        await running
    assert [parent_of(span) for span in traced.spans] == [(TRACE, PARENT)]


async def test_each_result_has_a_span_in_that_of_the_call_that_publishes_it() -> None:
    traced = Traced()

    @traced.consumer.handler("orders", publish_to="invoices")
    async def bill(order: bytes, context: HandlerContext) -> list[Message[bytes]]:
        await context.publish("receipts", order)
        inner = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1))
        with trace.use_span(NonRecordingSpan(inner)):
            await context.publish("notes", order)
        return [Message(order), Message(order, headers={"traceparent": "own"})]

    async with TestConsumer(traced.consumer) as t:
        await t.publish("orders", b"1", headers=SAMPLED | {"baggage": "shop=3"})
        sends, (span,) = traced.sends(), traced.calls()
        invoice, with_own_context = t.records("invoices")
        (receipt,) = t.records("receipts")
        (note,) = t.records("notes")
    assert [send.name for send in sends] == ["send receipts", "send notes"] + ["send invoices"] * 2
    of_receipt, of_note, *of_invoices = sends
    for result, send in ((invoice, of_invoices[0]), (receipt, of_receipt)):
        assert traceparent_of(result) == [as_header(send)]
        assert ("baggage", b"shop=3") in result.headers
    for send in (of_receipt, *of_invoices):
        assert parent_of(send) == ids_of(span)
    assert parent_of(of_note) == (f"{1:032x}", f"{2:016x}")
    assert traceparent_of(note) == [as_header(of_note)]
    assert with_own_context.headers == (("traceparent", b"own"),)
    assert of_receipt.kind is SpanKind.PRODUCER
    assert of_receipt.attributes == {
        names.SYSTEM: "kafka",
        names.OPERATION: "send",
        names.OPERATION_TYPE: "send",
        names.CLIENT_ID: "till",
        names.TOPIC: "receipts",
    }


async def test_the_span_of_a_result_that_is_not_published_has_the_error() -> None:
    traced = Traced()

    @traced.consumer.handler("orders", publish_to="invoices", on_error="skip")
    async def bill(order: bytes) -> Message[bytes]:
        return Message(order, partition=99)

    async with TestConsumer(traced.consumer) as t:
        await t.publish("orders", b"1", headers=SAMPLED)
    (send,), (call,) = traced.sends(), traced.calls()
    for span in (send, call):
        assert not span.status.is_ok
        assert dict(span.attributes or {})[names.ERROR] == "asyncrevoke.errors.PublishError"


async def test_a_result_is_not_in_the_span_that_the_consumer_was_entered_in() -> None:
    traced = Traced(new_traces=0.0)
    startup = NonRecordingSpan(SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1)))

    @traced.consumer.handler("orders", publish_to="invoices")
    async def bill(order: bytes, context: HandlerContext) -> list[bytes]:
        await context.publish("receipts", order)
        return [order]

    with trace.use_span(startup):
        async with TestConsumer(traced.consumer) as t:
            await t.publish("orders", b"1", headers=SAMPLED)
            await t.publish("orders", b"2", headers=UNSAMPLED)
            await t.publish("orders", b"3")
            by_value = {record.value: record for record in t.records("invoices")}
            receipts = {record.value: record for record in t.records("receipts")}
            publishing = asyncio.ensure_future(traced.consumer.producer.publish("notes", b"4"))
            await t.advance(1)
            await publishing
            (note,) = t.records("notes")
    send_receipt, send, send_note = traced.sends()
    (span,) = traced.calls()
    assert parent_of(send) == parent_of(send_receipt) == ids_of(span)
    assert traceparent_of(by_value[b"1"]) == [as_header(send)]
    assert traceparent_of(by_value[b"2"]) == [UNSAMPLED["traceparent"].encode()]
    assert by_value[b"3"].headers == receipts[b"3"].headers == ()
    assert parent_of(send_note) == (f"{1:032x}", f"{2:016x}")
    assert traceparent_of(note) == [as_header(send_note)]


async def test_results_of_a_batch_carry_on_its_span() -> None:
    traced = Traced()

    @traced.consumer.handler("orders", batch=True, max_records=2, publish_to="invoices")
    async def bill(orders: list[bytes]) -> list[bytes]:
        return orders

    async with TestConsumer(traced.consumer) as t:
        for headers in (SAMPLED, {}):
            await t.publish("orders", b"1", partition=0, headers=headers)
        await t.advance(2)
        invoices = t.records("invoices")
    sends, (span,) = traced.sends(), traced.calls()
    assert [traceparent_of(invoice) for invoice in invoices] == [
        [as_header(send)] for send in sends
    ]
    assert [parent_of(send) for send in sends] == [ids_of(span)] * 2


async def test_a_transaction_is_a_span_with_links_to_its_traced_results() -> None:
    traced = Traced(new_traces=0, processing="exactly_once")

    @traced.consumer.handler("orders", publish_to="invoices")
    async def bill(order: bytes) -> bytes:
        return order

    async with TestConsumer(traced.consumer, partitions=1) as t:
        await t.advance(1)
        await t.publish("orders", b"1", headers=SAMPLED)
        await t.publish("orders", b"2", headers=UNSAMPLED)
        await t.publish("orders", b"3")
        await t.advance(1)
        await t.publish("orders", b"4")
        await t.advance(1)
        (result, *_) = t.records("invoices")
    (call,), (send,) = traced.calls(), traced.sends()
    (commit,) = [span for span in traced.spans if span.kind is SpanKind.CLIENT]
    assert (commit.name, parent_of(commit)) == ("commit", None)
    (link,) = commit.links
    assert (format_trace_id(link.context.trace_id), format_span_id(link.context.span_id)) == (
        ids_of(send)
    )
    assert traceparent_of(result) == [as_header(send)]
    assert parent_of(send) == ids_of(call)
    assert commit.attributes is not None
    assert commit.attributes[names.OUTCOME] == "committed"
    assert commit.attributes[names.BATCH_SIZE] == commit.attributes[names.RESULTS] == 3
    assert commit.start_time is not None
    assert commit.end_time is not None
    assert commit.start_time <= commit.end_time
