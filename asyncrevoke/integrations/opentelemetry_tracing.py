"""Traces by OpenTelemetry (the extra ``otel``): a span for each call of a handler."""

from __future__ import annotations

from operator import attrgetter
from time import time_ns
from traceback import format_exception
from typing import TYPE_CHECKING

try:
    from opentelemetry import context as contexts
    from opentelemetry.context import Context
    from opentelemetry.propagate import get_global_textmap
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        SpanKind,
        Status,
        StatusCode,
        TracerProvider,
        get_current_span,
        get_tracer_provider,
        set_span_in_context,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"OpenTelemetryTracing needs {error.name}: pip install 'asyncrevoke[otel]'", name=error.name
    ) from error

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import error_text, reportable
from asyncrevoke.client.runtime.hooks.observers import PublishSpan, Tracer
from asyncrevoke.integrations import conventions as names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, SpanContext
    from opentelemetry.trace import Tracer as OpenTelemetryTracer
    from opentelemetry.util.types import AttributeValue

    from asyncrevoke.client.model import Record
    from asyncrevoke.client.runtime.hooks.observers import (
        EndedTransaction,
        Headers,
        Observed,
        ObservedProducer,
    )

_ALL = 2**30
# Multiplying by the golden ratio spreads neighbouring blocks.
_SPREAD, _MASK = 2_654_435_769, 2**32 - 1


class OffsetSampler:
    """``offset in sampler`` is true for the ``share`` (from 0 to 1) of all offsets.

    Each block of offsets has one sampled offset, so the samples of a range are found without
    testing all offsets. It is pseudo-random, so a pattern in the log (such as a marker at every
    second offset) does not bias the sample.
    """

    def __init__(self, share: float) -> None:
        self._share = round(share * _ALL)

    def __contains__(self, offset: int) -> bool:
        return bool(self._share) and self._of_block(offset * self._share // _ALL) == offset

    def within(self, first: int, last: int) -> set[int]:
        """The sampled offsets from ``first`` to ``last``."""
        share = self._share
        if not share:
            return set()
        blocks = range(first * share // _ALL, last * share // _ALL + 1)
        return {offset for block in blocks if first <= (offset := self._of_block(block)) <= last}

    def _of_block(self, block: int) -> int:
        begin = -(-block * _ALL // self._share)
        end = -(-(block + 1) * _ALL // self._share)
        return begin + (block * _SPREAD & _MASK) % (end - begin)


__all__ = ["OpenTelemetryTracing"]

# Set in the contexts of calls.
_IN_CALL = contexts.create_key("asyncrevoke-call")
# The most characters of an error's traceback in a span.
_LONGEST_TRACEBACK = 64 * 1024
# The most links of a span, which is the SDK's default limit.
_MOST_LINKS = 128
# A record's headers, if it has any.
_HEADERS = attrgetter("headers")


class OpenTelemetryTracing(Tracer):
    """An observer for ``consumer.observe`` that makes a span for each call of a handler, and for
    ``producer.observe`` one for each record.

    The parent of the span is the context in the record's headers, read by the application's
    propagator (W3C's ``traceparent`` by default). The span of a batch has no parent, and a link to
    the context of each record. A record whose trace is not sampled has no span, but its context is
    current in the handler, so the calls of the handler are not sampled either. ``new_traces`` is
    the share (from 0 to 1) of the records without a context for which a trace begins; the SDK's
    sampler may still drop it. All attempts at a record have the same decision.

    A result that is published in a span has a child span until it is acknowledged, and carries the
    context of that. Records that are written to a dead letter topic or a retry topic carry the
    context of the span in which their handler failed.

    A recorded span costs tens of microseconds in the SDK: for very short handlers, sample at the
    producer, and set ``new_traces``. ``tracer_provider`` is by default the global provider at the
    time when the consumer is entered. Raises ConfigError.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, *, new_traces: float = 1.0
    ) -> None:
        if not 0 <= new_traces <= 1:
            raise ConfigError(f"new_traces={new_traces}: a share from 0 to 1")
        self._provider = tracer_provider
        self._new = OffsetSampler(new_traces)
        self._propagator: TextMapPropagator = get_global_textmap()
        self._fields: frozenset[str] = frozenset()
        self._tracer: OpenTelemetryTracer | None = None
        self._attributes: dict[str, AttributeValue] = {}
        self._attributes_of_sends: dict[str, AttributeValue] = {}
        # The error of the last call that has failed in a span, until the library asks for it.
        # Nothing is written into errors: their classes may forbid it.
        self._failed_call: tuple[BaseException, SpanContext] | None = None

    def on_open(self, consumer: Observed) -> None:
        """Read the application's propagator and tracer provider."""
        self._open(consumer.client_id)
        if consumer.group_id is not None:
            self._attributes[names.GROUP] = consumer.group_id

    def on_producer_open(self, producer: ObservedProducer) -> None:
        """Read the application's propagator and tracer provider."""
        self._open(producer.client_id)

    def _open(self, client_id: str) -> None:
        provider = self._provider or get_tracer_provider()
        self._tracer = provider.get_tracer("asyncrevoke", schema_url=names.SCHEMA_URL)
        self._propagator = get_global_textmap()
        self._fields = frozenset(field.lower() for field in self._propagator.fields)
        self._attributes = {
            names.SYSTEM: "kafka",
            names.OPERATION: "process",
            names.OPERATION_TYPE: "process",
            names.CLIENT_ID: client_id,
        }
        self._attributes_of_sends = self._attributes | {
            names.OPERATION: "send",
            names.OPERATION_TYPE: "send",
        }

    def wants(self, record: Record) -> bool:
        """Whether a record has a trace context, or a trace begins with it."""
        return (
            bool(record.headers) and bool(self._carrier(record.headers))
        ) or record.offset in self._new

    def choose(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records that :meth:`wants` accepts."""
        if any(map(_HEADERS, records)):
            return [record for record in records if self.wants(record)]
        first, last = records[0].offset, records[-1].offset
        offsets = self._new.within(first, last)
        if not offsets:
            return ()
        if last - first + 1 == len(records):
            return [records[offset - first] for offset in offsets]
        return [record for record in records if record.offset in offsets]

    async def call(
        self,
        handler: str,
        records: Sequence[Record],
        attempt: int,
        call: Callable[[], Awaitable[object]],
    ) -> None:
        """Make a call, in a span if it is traced. If cancelled, the span ends as failed."""
        first, batch = records[0], len(records) > 1
        context = Context() if batch else self._context(first)
        parent = get_current_span(context).get_span_context()
        traced = (
            parent.trace_flags.sampled if parent.is_valid else batch or first.offset in self._new
        )
        span: Span | None = None
        if traced:
            span = self._span(handler, records, attempt, context)
            context = set_span_in_context(span, context)
        token = contexts.attach(contexts.set_value(_IN_CALL, True, context))
        try:
            _ = await call()
        except BaseException as error:
            if span is not None:
                _failed(span, error)
                self._failed_call = error, span.get_span_context()
            raise
        finally:
            contexts.detach(token)
            if span is not None:
                span.end()

    def publish_span(self, topic: str, *, in_call: bool) -> PublishSpan:
        """A child of the current span if that is sampled; otherwise only its context."""
        context = contexts.get_current()
        if in_call and contexts.get_value(_IN_CALL, context) is None:
            return PublishSpan()
        parent = get_current_span(context).get_span_context()
        if self._tracer is None or not (parent.is_valid and parent.trace_flags.sampled):
            return PublishSpan(self._injected(context))
        attributes = {**self._attributes_of_sends, names.TOPIC: topic}
        span = self._tracer.start_span(f"send {topic}", context, SpanKind.PRODUCER, attributes)
        return _SendSpan(span, self._injected(set_span_in_context(span, context)))

    def on_transaction(self, transaction: EndedTransaction) -> None:
        """A span, with a link to the span of each result of it that is traced, up to 128. A
        transaction without such a result has none."""
        links: list[Link] = []
        for headers in transaction.result_headers:
            of = get_current_span(self._extracted(headers)).get_span_context()
            if of.is_valid and of.trace_flags.sampled:
                links.append(Link(of))
                if len(links) == _MOST_LINKS:
                    break
        if not links or self._tracer is None:
            return
        span = self._tracer.start_span(
            "commit",
            Context(),
            SpanKind.CLIENT,
            {
                **self._attributes,
                names.OPERATION: "commit",
                names.OPERATION_TYPE: "settle",
                names.BATCH_SIZE: transaction.records,
                names.RESULTS: transaction.results,
                names.OUTCOME: transaction.outcome,
            },
            links,
            start_time=time_ns() - round(transaction.seconds * 1e9),
        )
        if transaction.error is not None:
            _failed(span, transaction.error)
        span.end()

    def take_failed_call(self, error: BaseException) -> Headers:
        """The context of the span of the last call, if it has ended with ``error``, or if that is
        the error of its time limit."""
        failed, self._failed_call = self._failed_call, None
        if failed is None or (failed[0] is not error and failed[0] is not error.__cause__):
            return ()
        return self._injected(set_span_in_context(NonRecordingSpan(failed[1]), Context()))

    def _injected(self, context: Context) -> list[tuple[str, bytes | None]]:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, context)  # pyright: ignore[reportArgumentType]
        return [(name, value.encode()) for name, value in carrier.items()]

    def _span(
        self, handler: str, records: Sequence[Record], attempt: int, context: Context
    ) -> Span:
        assert self._tracer is not None
        first = records[0]
        attributes: dict[str, AttributeValue] = {
            **self._attributes,
            names.TOPIC: first.topic,
            names.PARTITION: str(first.partition),
            names.HANDLER: handler,
            names.ATTEMPT: attempt,
        }
        links: list[Link] = []
        if len(records) > 1:
            attributes[names.BATCH_SIZE] = len(records)
            for record in records:
                of = get_current_span(self._context(record)).get_span_context()
                if of.is_valid:
                    links.append(Link(of, {names.OFFSET: record.offset}))
        else:
            attributes[names.OFFSET] = first.offset
            if first.value is None:
                attributes[names.TOMBSTONE] = True
            else:
                attributes[names.BODY_SIZE] = len(first.value)
        return self._tracer.start_span(
            f"process {first.topic}", context, SpanKind.CONSUMER, attributes, links
        )

    def _context(self, record: Record) -> Context:
        return self._extracted(record.headers)

    def _extracted(self, headers: Headers) -> Context:
        carrier = self._carrier(headers)
        return self._propagator.extract(carrier, Context()) if carrier else Context()

    def _carrier(self, headers: Headers) -> dict[str, str]:
        fields = self._fields
        return {
            name.lower(): value.decode("utf-8", "replace")
            for name, value in headers
            if value is not None and name.lower() in fields
        }


class _SendSpan(PublishSpan):
    def __init__(self, span: Span, headers: Headers) -> None:
        super().__init__(headers)
        self._span = span

    def end(self, error: BaseException | None) -> None:
        if error is not None:
            _failed(self._span, error)
        self._span.end()


def _failed(span: Span, raised: BaseException) -> None:
    error = reportable(raised)
    span.set_attribute(names.ERROR, names.error_type(error))
    span.set_status(Status(StatusCode.ERROR, type(error).__name__))
    if isinstance(error, Exception):
        # As Span.record_exception does, which calls str() of the error without a limit.
        span.add_event(
            "exception",
            {
                names.EXCEPTION_TYPE: names.error_type(error),
                names.EXCEPTION_MESSAGE: error_text(error),
                names.EXCEPTION_STACKTRACE: "".join(format_exception(error))[:_LONGEST_TRACEBACK],
                names.EXCEPTION_ESCAPED: "False",
            },
        )
