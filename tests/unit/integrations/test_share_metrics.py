"""Prometheus and OpenTelemetry know the locks and acknowledgements of a share group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from prometheus_client import CollectorRegistry
from unit.integrations.test_metrics import Scrape, _points

from asyncrevoke import Consumer
from asyncrevoke.integrations import conventions as names
from asyncrevoke.integrations.opentelemetry_metrics import OpenTelemetryMetrics
from asyncrevoke.integrations.prometheus import PrometheusMetrics
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from asyncrevoke.observing import Observer

HELD = "asyncrevoke_share_held_records"
ACKNOWLEDGED = "asyncrevoke_share_acknowledgements_total"
RENEWALS = "asyncrevoke_share_renewals_total"
LOST = "asyncrevoke_share_locks_lost_total"
DELIVERIES = "asyncrevoke_share_delivery_count"
OPENS = "asyncrevoke_share_session_opens_total"


def mails(*observers: Observer) -> Consumer:
    """A consumer whose handler takes 40 s, which is longer than a lock."""
    consumer = Consumer(group_id="mails", group_type="share")
    for observer in observers:
        consumer.observe(observer)

    @consumer.handler("mails", on_error="reject")
    async def send(mail: str) -> None:
        if mail == "bad":
            raise LookupError(mail)
        await asyncio.sleep(40)

    return consumer


async def test_locks_and_acknowledgements_are_counted() -> None:
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    provider = MeterProvider([reader])
    consumer = mails(PrometheusMetrics(registry), OpenTelemetryMetrics(provider))
    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("mails", "good")
        await t.publish("mails", "bad")
        await t.advance(1)
        seen = Scrape(registry)
        assert seen.get(HELD, asyncrevoke_state="running") == 1
        assert seen.get(HELD, asyncrevoke_state="waiting") == 0
        rejected = {"asyncrevoke_type": "reject", "asyncrevoke_outcome": "acknowledged"}
        assert seen.get(ACKNOWLEDGED, **rejected) == 1
        assert seen.get(RENEWALS) == 0
        opened = seen.get(OPENS)
        await t.advance(45)
        seen = Scrape(registry)
        assert seen.get(RENEWALS) > 0
        accepted = {"asyncrevoke_type": "accept", "asyncrevoke_outcome": "acknowledged"}
        assert seen.get(ACKNOWLEDGED, **accepted) == 1
        assert seen.get(HELD, asyncrevoke_state="running") == 0
        assert f"\n{LOST}" not in seen.text
        await t.publish("mails", "good")
        await t.expire_locks()
        await t.advance(1)
        await t.disconnect()
        await t.advance(1)
        seen = Scrape(registry)
        assert seen.get(LOST, asyncrevoke_reason="expired") == 1
        assert seen.get(LOST, asyncrevoke_reason="connection_closed") == 1
        assert seen.get(OPENS) > opened
        assert seen.get(f"{DELIVERIES}_count") == 5
        assert seen.get(f"{DELIVERIES}_sum") == 1 + 1 + 1 + 2 + 3
        assert seen.get("asyncrevoke_share_received_per_record_bytes") > 0
        found = _points(reader)
        expected = {m.name for m in names.METRICS if m.name.startswith("asyncrevoke.share")}
        assert expected <= found.keys()
        (deliveries,) = found[names.SHARE_DELIVERIES.name]
        assert cast("HistogramDataPoint", deliveries).sum == 8
        assert cast("HistogramDataPoint", deliveries).explicit_bounds == names.DELIVERY_BUCKETS
    provider.shutdown()


async def test_the_counts_of_an_earlier_session_are_kept() -> None:
    registry = CollectorRegistry()
    consumer = mails(PrometheusMetrics(registry))
    rejected = {"asyncrevoke_type": "reject", "asyncrevoke_outcome": "acknowledged"}
    for expected in (1, 2):
        async with TestConsumer(consumer, partitions=1) as t:
            await t.publish("mails", "bad")
            await t.advance(1)
            assert Scrape(registry).get(ACKNOWLEDGED, **rejected) == expected


async def test_a_consumer_group_has_no_metrics_of_share_groups() -> None:
    registry = CollectorRegistry()
    consumer = Consumer(group_id="g")
    consumer.observe(PrometheusMetrics(registry))

    @consumer.handler("orders")
    async def bill(_order: bytes) -> None:
        pass

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1")
        assert "\nasyncrevoke_share" not in Scrape(registry).text


async def test_the_lag_of_the_group_is_read_from_its_members() -> None:
    registry = CollectorRegistry()
    consumer = mails(PrometheusMetrics(registry))
    async with TestConsumer(consumer, partitions=2) as t:
        for number in range(3):
            await t.publish("mails", "good", partition=number % 2)
        await t.publish("mails", "bad", partition=1)
        await t.advance(20)
        assert Scrape(registry).get("asyncrevoke_share_lag") == 3
        await t.advance(40)
        assert Scrape(registry).get("asyncrevoke_share_lag") == 0
