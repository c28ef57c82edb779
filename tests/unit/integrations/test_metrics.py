"""What is measured, by Prometheus and by OpenTelemetry."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
)
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from unit.integrations.queried_metrics import metrics_of

from asyncrevoke import Consumer, HandlerContext, Message, Retry, by_header
from asyncrevoke.integrations import conventions as names
from asyncrevoke.integrations.consumer_metrics import ConsumerMetrics, Distribution, Histogram
from asyncrevoke.integrations.opentelemetry_metrics import OpenTelemetryMetrics
from asyncrevoke.integrations.prometheus import PrometheusMetrics, prometheus_name
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncrevoke.client.runtime.hooks.observers import Observer

ROOT = Path(__file__).parents[3]
SENT = "messaging_client_sent_messages_total"

_Point = HistogramDataPoint | NumberDataPoint


def billing(*observers: Observer, client_id: str = "till") -> Consumer:
    """A consumer whose handler takes a while, and rejects what is bad."""
    consumer = Consumer(group_id="billing", client_id=client_id)
    for observer in observers:
        consumer.observe(observer)

    @consumer.handler("orders", retry=Retry(attempts=2, backoff=0.1), dead_letter="orders.dlq")
    async def bill(order: bytes) -> None:
        if order == b"bad":
            raise LookupError("no such order")
        await asyncio.sleep(0.5)

    return consumer


async def a_day(t: TestConsumer) -> None:
    """Two good records, a bad one, and a partition that goes while one of them is handled."""
    await t.publish("orders", b"good", partition=0)
    await t.publish("orders", b"bad", partition=1)
    await t.advance(3)
    await t.publish("orders", b"good", partition=2)
    await t.revoke(("orders", 2))
    await t.advance(3)


class Scrape:
    """Everything that a registry tells."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.text = generate_latest(registry).decode()
        self._families = list(text_string_to_metric_families(self.text))

    def names(self) -> list[str]:
        return [family.name for family in self._families]

    def get(self, sample: str, **labels: str) -> float:
        """The sum of the samples that have these labels."""
        found = [
            each.value
            for family in self._families
            for each in family.samples
            if each.name == sample and labels.items() <= each.labels.items()
        ]
        assert found, f"no {sample} with {labels} in\n{self.text}"
        return sum(found)


async def test_prometheus_has_records_calls_failures_commits_and_revocations() -> None:
    registry = CollectorRegistry()
    async with TestConsumer(billing(PrometheusMetrics(registry))) as t:
        await a_day(t)
        seen = Scrape(registry)
    group = {"messaging_consumer_group_name": "billing", "messaging_client_id": "till"}
    orders = {**group, "messaging_destination_name": "orders"}
    consumed = "messaging_client_consumed_messages_total"
    assert seen.get(consumed, **orders, messaging_destination_partition_id="0") == 1
    assert seen.get(consumed, **orders) == 3
    process = "messaging_process_duration_seconds"
    assert seen.get(f"{process}_count", **orders, error_type="") == 2
    assert seen.get(f"{process}_count", **orders, error_type="LookupError") == 2
    failures = "asyncrevoke_failures_total"
    assert seen.get(failures, **orders, asyncrevoke_decision="retried") == 1
    assert seen.get(failures, **orders, asyncrevoke_decision="dead_lettered") == 1
    commits = "messaging_client_operation_duration_seconds_count"
    assert seen.get(commits, **group, messaging_operation_name="commit") >= 2
    revocations = "asyncrevoke_revocations_total"
    assert seen.get(revocations, **group, asyncrevoke_outcome="requested") == 1
    assert seen.get(revocations, **group, asyncrevoke_outcome="released") == 1
    assert seen.get("asyncrevoke_revocation_duration_seconds_sum", **group) >= 0.4
    assert seen.get("asyncrevoke_rebalances_total", **group) >= 2
    assert seen.get("asyncrevoke_event_loop_lag_seconds_count", **group) >= 5
    assert seen.get("asyncrevoke_partitions_assigned", **group) == 3


def test_throttle_times_are_counted() -> None:
    metrics = ConsumerMetrics()
    fields = {"node": "kafka-1:9092", "request": "Fetch", "seconds": 20.0}
    metrics.on_event("throttled by a quota", fields)
    reads = {metric.name: values for metric, values in metrics.counters()}
    ((_, throttles),) = reads[names.THROTTLE.name]
    assert isinstance(throttles, Distribution)
    assert (sum(throttles.counts), throttles.total) == (1, 20.0)


def name_of(handler: Callable[..., object]) -> str:
    return f"{handler.__module__}.{handler.__qualname__.replace('.<locals>', '')}"


async def test_handlers_that_share_a_topic_are_told_apart() -> None:
    registry = CollectorRegistry()
    consumer = Consumer(group_id="billing")
    consumer.observe(PrometheusMetrics(registry))

    @consumer.handler("orders", where=by_header("type", "created"), unmatched="skip")
    async def created(order: bytes) -> None:
        await asyncio.sleep(0.5)

    @consumer.handler(
        "orders",
        where=by_header("type", "deleted"),
        retry=Retry(attempts=2, backoff=0.1),
        dead_letter="orders.dlq",
    )
    async def deleted(order: bytes) -> None:
        await asyncio.sleep(0.25)
        if order == b"bad":
            raise LookupError("no such order")

    async with TestConsumer(consumer) as t:
        for number, kind in enumerate(("created", "deleted", "created", "unknown")):
            await t.publish("orders", b"good", headers={"type": kind}, partition=number % 2)
        await t.publish("orders", b"bad", headers={"type": "deleted"}, partition=2)
        await t.advance(3)
        seen = Scrape(registry)
    own = {
        name: {"messaging_destination_name": "orders", "asyncrevoke_handler": name_of(handler)}
        for name, handler in (("created", created), ("deleted", deleted))
    }
    process = "messaging_process_duration_seconds"
    assert seen.get(f"{process}_count", **own["created"], error_type="") == 2
    assert seen.get(f"{process}_count", **own["deleted"], error_type="") == 1
    assert seen.get(f"{process}_count", **own["deleted"], error_type="LookupError") == 2
    assert seen.get(f"{process}_count") == 5
    failures = "asyncrevoke_failures_total"
    assert seen.get(failures, **own["deleted"], asyncrevoke_decision="retried") == 1
    assert seen.get(failures, **own["deleted"], asyncrevoke_decision="dead_lettered") == 1
    assert seen.get(failures, asyncrevoke_handler="", asyncrevoke_decision="skipped") == 1


async def test_calls_with_batches_are_counted_for_the_handler_that_shares_a_topic() -> None:
    registry = CollectorRegistry()
    consumer = Consumer(group_id="billing")
    consumer.observe(PrometheusMetrics(registry))

    @consumer.handler("orders", where=by_header("type", "created"), batch=True, max_records=2)
    async def created(orders: list[bytes]) -> None:
        pass

    async with TestConsumer(consumer) as t:
        for _ in range(4):
            await t.publish("orders", b"1", headers={"type": "created"}, partition=0)
        await t.advance(3)
        seen = Scrape(registry)
    handled = {"asyncrevoke_handler": name_of(created)}
    assert seen.get("messaging_process_duration_seconds_count", **handled) == 2


async def test_results_are_counted_by_handler_and_topic() -> None:
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    provider = MeterProvider([reader])
    consumer = Consumer(group_id="billing")
    consumer.observe(PrometheusMetrics(registry))
    consumer.observe(OpenTelemetryMetrics(provider))

    @consumer.handler("orders", publish_to="invoices")
    async def bill(order: bytes, context: HandlerContext) -> bytes:
        await context.publish("receipts", order)
        return order

    @consumer.handler("carts", publish_to="items")
    async def split(cart: bytes) -> list[Message[bytes]]:
        return [Message(cart), Message(cart), Message(cart, topic="audits")]

    @consumer.handler("returns", publish_to="refunds", batch=True, max_records=2)
    async def refund(values: list[bytes]) -> list[bytes]:
        return values

    async with TestConsumer(consumer) as t:
        assert SENT not in Scrape(registry).text
        for topic in ("orders", "carts", "returns", "orders", "returns"):
            await t.publish(topic, b"1", partition=0)
        await t.advance(2)
        note = asyncio.ensure_future(consumer.producer.publish("notes", b"1"))
        await t.advance(1)
        await note
        seen = Scrape(registry)
        found = _points(reader)
    provider.shutdown()
    results = {
        ("bill", "invoices"): 2,
        ("bill", "receipts"): 2,
        ("split", "items"): 2,
        ("split", "audits"): 1,
        ("refund", "refunds"): 2,
        ("", "notes"): 1,
    }
    counted = {
        (
            str(_attributes(point)[names.HANDLER]).rpartition(".")[2],
            _attributes(point)[names.TOPIC],
        ): cast("NumberDataPoint", point).value
        for point in found[names.SENT.name]
    }
    assert counted == results
    for (_, topic), count in results.items():
        assert seen.get(SENT, messaging_destination_name=topic) == count


async def test_gauges_are_asked_for_when_they_are_scraped() -> None:
    registry = CollectorRegistry()
    async with TestConsumer(billing(PrometheusMetrics(registry))) as t:
        await t.publish("orders", b"good", partition=2)
        in_flight = {"messaging_destination_name": "orders"}
        assert Scrape(registry).get("asyncrevoke_in_flight", **in_flight) == 1
        await t.revoke(("orders", 2))
        assert Scrape(registry).get("asyncrevoke_partitions_revoking") == 1
        await t.advance(0.3)
        assert Scrape(registry).get("asyncrevoke_revocation_pending_seconds") >= 0.3
        await t.advance(3)
        seen = Scrape(registry)
        assert seen.get("asyncrevoke_in_flight", **in_flight) == 0
        assert seen.get("asyncrevoke_lag", **in_flight) == 0
        assert seen.get("asyncrevoke_partitions_revoking") == 0
    after = Scrape(registry)
    assert after.get("messaging_client_consumed_messages_total") == 1
    assert "\nasyncrevoke_lag{" not in after.text


async def test_calls_in_flight_are_counted_by_handler_and_topic() -> None:
    registry = CollectorRegistry()
    consumer = Consumer(group_id="billing")
    consumer.observe(PrometheusMetrics(registry))

    @consumer.handler("orders", "refunds")
    async def bill(order: bytes) -> None:
        await asyncio.sleep(0.5)

    @consumer.handler("carts", batch=True, max_records=2)
    async def count(carts: list[bytes]) -> None:
        await asyncio.sleep(1.5)

    calls = "asyncrevoke_calls_in_flight"
    billed = {"asyncrevoke_handler": name_of(bill)}
    counted = {"asyncrevoke_handler": name_of(count), "messaging_destination_name": "carts"}
    async with TestConsumer(consumer) as t:
        assert f"\n{calls}{{" not in Scrape(registry).text
        for partition in range(3):
            await t.publish("orders", b"1", partition=partition)
        await t.publish("refunds", b"1")
        for _ in range(2):
            await t.publish("carts", b"1", partition=0)
        seen = Scrape(registry)
        assert seen.get(calls, **billed, messaging_destination_name="orders") == 3
        assert seen.get(calls, **billed, messaging_destination_name="refunds") == 1
        assert seen.get(calls, **counted) == 1
        await t.advance(1)
        seen = Scrape(registry)
        assert seen.get(calls, **billed) == 0
        assert seen.get(calls, **counted) == 1
        await t.advance(1)
        assert Scrape(registry).get(calls) == 0


async def test_several_consumers_share_a_registry() -> None:
    registry = CollectorRegistry()
    for till in ("till-1", "till-2"):
        async with TestConsumer(billing(PrometheusMetrics(registry), client_id=till)) as t:
            await t.publish("orders", b"good")
            await t.advance(2)
    seen = Scrape(registry)
    assert seen.get("messaging_client_consumed_messages_total", messaging_client_id="till-1") == 1
    assert seen.get("messaging_client_consumed_messages_total", messaging_client_id="till-2") == 1
    assert len(set(seen.names())) == len(seen.names())


async def test_a_scraper_in_a_thread_gets_a_response_while_the_loop_is_blocked() -> None:
    registry = CollectorRegistry()
    consumer = Consumer("orders", bootstrap_servers="127.0.0.1:1", group_id="billing")
    consumer.observe(PrometheusMetrics(registry))
    texts: list[str] = []
    async with consumer:
        assert "asyncrevoke_partitions_assigned{" in await asyncio.to_thread(_scrape, registry)
        thread = threading.Thread(target=lambda: texts.append(_scrape(registry)))
        thread.start()
        thread.join(10)  # the event loop stands still meanwhile
    assert "asyncrevoke_rebalances_total{" in texts[0]
    assert "asyncrevoke_partitions_assigned{" not in texts[0]


def _scrape(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


async def test_opentelemetry_has_the_same_metrics() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    async with TestConsumer(billing(OpenTelemetryMetrics(provider))) as t:
        await a_day(t)
        await t.publish("orders", b"good", partition=0)
        found = _points(reader)
    provider.shutdown()
    # This consumer publishes no results, has no transactions, is in no share group, exceeds no
    # quota, and can write its dead letters.
    elsewhere = ("asyncrevoke.transaction", "asyncrevoke.share", "asyncrevoke.producer")
    of_others = {m for m in names.METRICS if m.name.startswith(elsewhere)}
    others = {names.SENT, names.PUBLISH_FAILURES, names.THROTTLE, names.UNWRITTEN, *of_others}
    assert found.keys() == {metric.name for metric in names.METRICS if metric not in others}
    process = found[names.PROCESS.name]
    good = [p for p in process if names.ERROR not in (p.attributes or {})]
    assert [cast("HistogramDataPoint", p).count for p in good] == [2]
    assert cast("HistogramDataPoint", good[0]).explicit_bounds == names.BUCKETS
    bad = [p for p in process if (p.attributes or {}).get(names.ERROR) == "LookupError"]
    assert [cast("HistogramDataPoint", p).count for p in bad] == [2]
    consumed = found[names.CONSUMED.name]
    assert sum(cast("NumberDataPoint", p).value for p in consumed) == 4
    (calls,) = found[names.CALLS_IN_FLIGHT.name]
    assert cast("NumberDataPoint", calls).value == 1
    assert _attributes(consumed[0])[names.GROUP] == "billing"
    assert cast("NumberDataPoint", found[names.ASSIGNED.name][0]).value == 3


def _points(reader: InMemoryMetricReader) -> dict[str, list[_Point]]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: cast(
            "list[HistogramDataPoint | NumberDataPoint]", list(metric.data.data_points)
        )
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def _attributes(point: _Point) -> Mapping[str, object]:
    assert point.attributes is not None
    return cast("Mapping[str, object]", point.attributes)


def test_a_histogram_counts_many_values_as_it_counts_single_ones() -> None:
    values = [0.001, 0.005, 0.006, 0.2, 0.25, 11.0, 12.0]
    single, many, short = (Histogram(names.BUCKETS) for _ in range(3))
    for value in values:
        single.add(value)
    many.add_all(values)
    assert many.read() == single.read()
    assert sum(many.read().counts) == len(values)
    short.add_all([0.001, 0.005])
    assert short.read().counts[:2] == (2, 0)


def test_names_for_prometheus_follow_opentelemetrys_rules() -> None:
    assert prometheus_name(names.CONSUMED) == "messaging_client_consumed_messages_total"
    assert prometheus_name(names.PROCESS) == "messaging_process_duration_seconds"
    assert prometheus_name(names.LAG) == "asyncrevoke_lag"


def test_the_grafana_dashboard_asks_for_nothing_that_does_not_exist() -> None:
    board = cast(
        "dict[str, object]",
        json.loads((ROOT / "docs" / "how-to" / "operating" / "grafana.json").read_text()),
    )
    asked = re.findall(r'"expr": "((?:[^"\\]|\\.)*)"', json.dumps(board))
    assert len(asked) >= 10
    found = metrics_of(asked)
    assert found.unknown == set()
    assert found.metrics == {prometheus_name(metric) for metric in names.METRICS}


@pytest.mark.parametrize("metric", names.METRICS, ids=lambda metric: metric.name)
def test_the_page_about_metrics_has_each_of_them(metric: names.Metric) -> None:
    page = (ROOT / "docs" / "how-to" / "operating" / "metrics.md").read_text()
    attributes = ", ".join(f"`{name}`" for name in metric.attributes) or "-"
    row = f"| `{metric.name}` | {metric.kind} | {metric.unit} | {metric.about} | {attributes} |"
    assert row in page
