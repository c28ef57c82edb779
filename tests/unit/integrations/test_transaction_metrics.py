"""Observers, health and the dashboard know the transactions of processing="exactly_once"."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from prometheus_client import CollectorRegistry
from unit.dashboard.table_rows import table_rows
from unit.integrations.test_metrics import SENT, Scrape, _points
from unit.testing.exactly_once.test_simulated_faults import (
    AFTER_FIRST_COMMIT,
    billing,
    inject,
)

from asyncrevoke import Consumer
from asyncrevoke.client.producing.requests import (
    ProduceRequest,
    produce_response,
    produced_batches,
)
from asyncrevoke.client.producing.transactions.requests import EndTxnRequest
from asyncrevoke.client.protocol.messages import EntityResponse, ErrorCode
from asyncrevoke.integrations import conventions as names
from asyncrevoke.integrations.opentelemetry_metrics import OpenTelemetryMetrics
from asyncrevoke.integrations.prometheus import PrometheusMetrics
from asyncrevoke.observing import Observer
from asyncrevoke.testing import TestConsumer
from asyncrevoke.web.dashboard.consumer_watch import ConsumerWatch
from asyncrevoke.web.dashboard.history import History
from asyncrevoke.web.dashboard.page import parts

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from asyncrevoke.client.protocol.messages import Request
    from asyncrevoke.client.runtime.hooks.observers import EndedTransaction
    from asyncrevoke.testing.fake_kafka.group_state import Reply

TRANSACTIONS = "asyncrevoke_transactions_total"
WAITING = "asyncrevoke_transaction_waiting"
RECORDS = "asyncrevoke_transaction_records"
RESULTS = "asyncrevoke_transaction_results"
PENDING = "asyncrevoke_transaction_pending_seconds"


class Ends(Observer):
    """Collects the ends of transactions."""

    def __init__(self) -> None:
        self.all: list[EndedTransaction] = []

    def on_transaction(self, transaction: EndedTransaction) -> None:
        self.all.append(transaction)


def refuse_produce(error: ErrorCode) -> Callable[..., None]:
    def refuse(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if isinstance(message, ProduceRequest):
            of_invoices = [p for p, _ in produced_batches(message) if p.topic == "invoices"]
            if of_invoices:
                errors = dict.fromkeys(of_invoices, error)
                reply(EntityResponse(entity=produce_response(errors)))
                return
        process(reply)

    return refuse


async def test_records_that_wait_and_committed_transactions_are_measured() -> None:
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    provider = MeterProvider([reader])
    consumer, ends = billing(), Ends()
    for observer in (PrometheusMetrics(registry), OpenTelemetryMetrics(provider), ends):
        consumer.observe(observer)
    async with TestConsumer(consumer, partitions=2) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        first = len(ends.all)
        durations = "messaging_client_operation_duration_seconds_count"
        commits = Scrape(registry).get(durations)
        for partition in (0, 1, 1):
            await t.publish("orders", b"12345", partition=partition)
        seen = Scrape(registry)
        assert seen.get(WAITING) == 3
        assert seen.get(f"{WAITING}_size_bytes") == 15
        assert seen.get(PENDING) == 0
        await t.advance(61)
        seen = Scrape(registry)
        assert seen.get(WAITING) == seen.get(f"{WAITING}_size_bytes") == 0
        assert seen.get(SENT) == 3
        (end,) = ends.all[first:]
        assert (end.outcome, end.records, end.results, end.error) == ("committed", 3, 3, None)
        assert end.result_headers == ()
        committed = {"asyncrevoke_outcome": "committed", "messaging_consumer_group_name": "g"}
        assert seen.get(TRANSACTIONS, **committed) == first + 1
        assert seen.get(f"{RECORDS}_sum") == seen.get(f"{RESULTS}_sum") == 3
        assert seen.get(f"{RECORDS}_count") == first + 1
        assert seen.get(durations) == commits + 1
        found = _points(reader)
    provider.shutdown()
    (records,) = found[names.TRANSACTION_RECORDS.name]
    assert cast("HistogramDataPoint", records).sum == 3
    assert cast("HistogramDataPoint", records).explicit_bounds == names.COUNT_BUCKETS
    assert len(found[names.FINISHED_SIZE.name]) == len(found[names.UNCOMMITTED.name]) == 1


async def test_records_that_are_being_written_wait_until_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delayed: list[Callable[[], None]] = []

    def delay_the_end(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if isinstance(message, EndTxnRequest):
            delayed.append(lambda: process(reply))
        else:
            process(reply)

    consumer = billing(transaction_interval=1)
    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        inject(monkeypatch, delay_the_end)
        await t.publish("orders", b"12345")
        await t.advance(6)
        progress = consumer.health().transactions
        assert progress is not None
        assert (progress.records, progress.size) == (1, 5)
        assert progress.seconds is not None
        assert 4.5 < progress.seconds < 5.5
        assert consumer.probe().ready
        monkeypatch.undo()
        delayed[0]()
        await t.advance(1)
        assert consumer.health().transactions == (0, 0, None)


async def test_a_transaction_that_no_broker_takes_is_named_by_health_and_dashboard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry, history = CollectorRegistry(), History("billing")
    consumer, ends = billing(transaction_interval=1), Ends()
    for observer in (PrometheusMetrics(registry), ConsumerWatch(history), ends):
        consumer.observe(observer)
    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        first = len(ends.all)
        inject(monkeypatch, refuse_produce(ErrorCode.not_enough_replicas))
        await t.publish("orders", b"1")
        await t.advance(12)
        rows = table_rows(parts(history, 0)["unavailable"])
        assert rows[1][0] == "transactions"
        assert rows[1][1].endswith("s: 1 finished record wait")
        assert consumer.probe().ready
        # Aborted when it takes too long, and begun again.
        await t.advance(140)
        probe = consumer.probe()
        assert (probe.live, probe.ready) == (True, False)
        assert probe.reasons[-1].startswith("no transaction was committed for 15")
        assert Scrape(registry).get(PENDING) > 140
        aborted = ends.all[first:]
        assert {(end.outcome, end.records, end.results) for end in aborted} == {("timed_out", 1, 1)}
        assert all(end.error is not None and end.seconds > 1 for end in aborted)
        count = len(aborted)
        assert Scrape(registry).get(TRANSACTIONS, asyncrevoke_outcome="timed_out") == count
        assert ["timed out", str(count)] in table_rows(parts(history, 0)["transactions"])
        assert "transaction aborted (timed out): 1 record" in parts(history, 0)["notes"]
        monkeypatch.undo()
        await t.advance(30)
        assert consumer.probe().ready
        assert Scrape(registry).get(PENDING) == 0


async def test_an_abort_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, ends = billing(transaction_interval=1, dead_letter="failed"), Ends()
    consumer.observe(ends)
    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        first = len(ends.all)
        inject(monkeypatch, refuse_produce(ErrorCode.topic_authorization_failed))
        await t.publish("orders", b"1")
        await t.advance(10)
        outcomes = [end.outcome for end in ends.all[first:]]
        assert outcomes == ["results_refused", "committed"]
        monkeypatch.undo()


async def test_a_lost_partition_is_the_reason_of_an_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if not isinstance(message, ProduceRequest):
            process(reply)

    consumer, ends = billing(transaction_interval=1), Ends()
    consumer.observe(ends)
    async with TestConsumer(consumer, partitions=2) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        first = len(ends.all)
        inject(monkeypatch, drop)
        await t.publish("orders", b"1", partition=0)
        await t.advance(2)
        monkeypatch.undo()
        await t.lose(("orders", 0))
        await t.advance(60)
        assert ends.all[first].outcome == "partition_lost"
        progress = consumer.health().transactions
        assert progress is not None
        assert progress.seconds is None


async def test_a_loop_of_ones_own_counts_records_and_results_of_its_transactions() -> None:
    registry, ends = CollectorRegistry(), Ends()
    consumer = Consumer("orders", group_id="g", processing="exactly_once", transaction_interval=60)
    consumer.observe(PrometheusMetrics(registry))
    consumer.observe(ends)
    async with TestConsumer(consumer, partitions=1) as t:
        for _ in range(3):
            await t.publish("orders", b"1")
        async for batch in consumer:
            async with consumer.transaction() as tx:
                for record in batch.records:
                    tx.publish("invoices", record.value, record=record)
                    tx.publish("receipts", record.value, record=record)
            if batch.records:
                break
        end = ends.all[-1]
        assert (end.outcome, end.records, end.results) == ("committed", 3, 6)
        invoices = {"messaging_destination_name": "invoices", "asyncrevoke_handler": ""}
        assert Scrape(registry).get(SENT, **invoices) == 3


async def test_at_least_once_has_no_metrics_of_transactions() -> None:
    registry = CollectorRegistry()
    consumer = Consumer(group_id="g")
    consumer.observe(PrometheusMetrics(registry))

    @consumer.handler("orders", publish_to="invoices")
    async def bill(order: bytes) -> bytes:
        return order

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1")
        await t.advance(5)
        text = Scrape(registry).text
        assert consumer.health().transactions is None
    assert "\nasyncrevoke_transaction" not in text
