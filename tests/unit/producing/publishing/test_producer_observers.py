"""Metrics and spans of a producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry
from unit.handlers.results.scripted_results_broker import ScriptedResultsBroker
from unit.producing.publishing.scripted_producer import entered

from asyncrevoke import Consumer, IllegalStateError, PublishError
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.runtime.hooks.observers import PublishSpan
from asyncrevoke.integrations.conventions import error_type
from asyncrevoke.integrations.opentelemetry_metrics import OpenTelemetryMetrics
from asyncrevoke.integrations.opentelemetry_tracing import OpenTelemetryTracing
from asyncrevoke.integrations.prometheus import PrometheusMetrics
from asyncrevoke.observing import Tracer
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from asyncrevoke.client.runtime.hooks.observers import ObservedProducer

OF_PRODUCER = {"messaging_system_name": "kafka", "messaging_consumer_group_name": ""}


async def test_prometheus_has_acknowledged_failed_and_queued_records() -> None:
    broker, registry = ScriptedResultsBroker(), CollectorRegistry()
    broker.errors[b"bad"] = ErrorCode.topic_authorization_failed

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(
            name, OF_PRODUCER | {"messaging_client_id": "till"} | labels
        )

    async with entered(broker, PrometheusMetrics(registry)) as producer:
        await producer.publish("t", b"0")
        with pytest.raises(PublishError):
            await producer.publish("t", b"bad")
        broker.responding.clear()
        for _ in range(3):
            _ = await producer.publish_soon("t", b"1")
        sent = {"messaging_operation_name": "send", "asyncrevoke_handler": ""}
        topic = {"messaging_destination_name": "t"}
        assert sample("messaging_client_sent_messages_total", **sent, **topic) == 1
        error = {"error_type": error_type(PublishError("t", ""))}
        assert sample("asyncrevoke_publish_failures_total", **topic, **error) == 1
        assert sample("asyncrevoke_producer_queued") == 3
        size = sample("asyncrevoke_producer_queued_size_bytes")
        assert size is not None
        assert size > 3
        oldest = sample("asyncrevoke_producer_queued_oldest_seconds")
        assert oldest is not None
        assert 0 <= oldest < 5
        assert sample("asyncrevoke_rebalances_total") is None
        broker.responding.set()
    assert sample("asyncrevoke_producer_queued") is None
    assert sample("messaging_client_sent_messages_total", **sent, **topic) == 4


async def test_opentelemetry_has_the_same_metrics() -> None:
    broker, reader = ScriptedResultsBroker(), InMemoryMetricReader()
    provider = MeterProvider([reader])
    async with entered(broker, OpenTelemetryMetrics(provider)) as producer:
        await producer.publish("t", b"0")
        data = reader.get_metrics_data()
    provider.shutdown()
    assert data is not None
    names = {
        metric.name
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert names == {
        "messaging.client.sent.messages",
        "asyncrevoke.producer.queued",
        "asyncrevoke.producer.queued.size",
        "asyncrevoke.producer.queued.oldest",
    }


async def test_each_record_has_a_span_that_ends_with_it() -> None:
    broker, exporter, provider = ScriptedResultsBroker(), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    broker.errors[b"bad"] = ErrorCode.topic_authorization_failed
    async with entered(broker, OpenTelemetryTracing(provider)) as producer:
        await producer.publish("t", b"untraced")
        broker.responding.clear()
        with provider.get_tracer("app").start_as_current_span("request") as parent:
            good = await producer.publish_soon("t", b"good")
            with pytest.raises(PublishError, match="cannot be encoded"):
                _ = await producer.publish_soon("t", b"", headers={"h": "\ud800"})
        (encoding, _) = exporter.get_finished_spans()
        assert encoding.status.status_code is StatusCode.ERROR
        exporter.clear()
        broker.responding.set()
        await good
        with provider.get_tracer("app").start_as_current_span("request"):
            bad = await producer.publish_soon("t", b"bad")
        with pytest.raises(PublishError):
            await bad
    sent = [span for span in exporter.get_finished_spans() if span.name == "send t"]
    assert [span.status.status_code for span in sent] == [StatusCode.UNSET, StatusCode.ERROR]
    assert sent[0].parent == parent.get_span_context()
    assert (sent[0].attributes or {})["messaging.client.id"] == "till"
    ((name, value),) = broker.headers[1]
    assert sent[0].context is not None
    assert name == "traceparent"
    assert format(sent[0].context.span_id, "016x") in (value or b"").decode()


class BrokenTracer(Tracer):
    """Its spans cannot end."""

    opened: ObservedProducer | None = None
    closed = 0

    def publish_span(self, topic: str, *, in_call: bool) -> PublishSpan:
        class Span(PublishSpan):
            def end(self, error: BaseException | None) -> None:
                raise LookupError(topic, in_call, error)

        return Span()

    def on_producer_open(self, producer: ObservedProducer) -> None:
        self.opened = producer

    def on_close(self) -> None:
        self.closed += 1


async def test_an_observer_sees_opening_and_closing_and_a_span_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, tracer = ScriptedResultsBroker(), BrokenTracer()
    async with entered(broker, tracer) as producer:
        assert tracer.opened is not None
        assert tracer.opened.client_id == "till"
        assert tracer.opened.snapshot() == producer.health()
        await producer.publish("t", b"0")
        assert tracer.closed == 0
        with pytest.raises(IllegalStateError, match="before the producer is entered"):
            producer.observe(tracer)
    assert tracer.closed == 1
    assert "observer failed" in caplog.text


async def test_failures_of_consumer_producer_are_counted() -> None:
    registry = CollectorRegistry()
    consumer = Consumer("t", group_id="g", client_id="till")
    consumer.observe(PrometheusMetrics(registry))
    async with TestConsumer(consumer) as t:
        await consumer.producer.publish("t", b"0")
        record = await consumer.producer.publish_soon("t", b"1")
        producer = t.consumer.handler_host.open_producer(consumer._entered_in_any_group())
        producer._core.fail_all(PublishError("t", "no"))
        with pytest.raises(PublishError):
            await record
        value = registry.get_sample_value(
            "asyncrevoke_publish_failures_total",
            {
                "messaging_system_name": "kafka",
                "messaging_consumer_group_name": "g",
                "messaging_client_id": "till",
                "messaging_destination_name": "t",
                "error_type": error_type(PublishError("t", "")),
            },
        )
        assert value == 1
