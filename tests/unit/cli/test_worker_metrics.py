"""The metrics of several workers as one text."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from asyncrevoke.cli.run.workers.supervisor import merged


def text_of(orders: int, *, queued: float | None = None) -> str:
    registry = CollectorRegistry()
    counter = Counter("orders", "Orders so far.", ["shop", "worker"], registry=registry)
    counter.labels('a "quoted" shop\n', "its own").inc(orders)
    seconds = Histogram("seconds", "How long.", buckets=(1, 2), registry=registry)
    for _ in range(orders):
        seconds.observe(1.5)
    if queued is not None:
        Gauge("queued", "Waiting.", registry=registry).set(queued)
    return generate_latest(registry).decode()


def test_each_sample_has_its_workers_number_and_each_family_is_described_once() -> None:
    text = merged({2: text_of(2, queued=float("inf")), 1: text_of(5)}).decode()
    lines = text.splitlines()
    for name, kind in (("orders_total", "counter"), ("seconds", "histogram"), ("queued", "gauge")):
        assert lines.count(f"# TYPE {name} {kind}") == 1
    families = {family.name: family for family in text_string_to_metric_families(text)}
    orders = [sample for sample in families["orders"].samples if sample.name == "orders_total"]
    assert [(sample.labels, sample.value) for sample in orders] == [
        ({"shop": 'a "quoted" shop\n', "worker": "1"}, 5.0),
        ({"shop": 'a "quoted" shop\n', "worker": "2"}, 2.0),
    ]
    buckets = {
        (sample.labels["worker"], sample.labels["le"]): sample.value
        for sample in families["seconds"].samples
        if sample.name == "seconds_bucket"
    }
    assert buckets == {
        ("1", "1.0"): 0, ("1", "2.0"): 5, ("1", "+Inf"): 5,
        ("2", "1.0"): 0, ("2", "2.0"): 2, ("2", "+Inf"): 2,
    }  # fmt: skip
    (queued,) = families["queued"].samples
    assert (queued.labels, queued.value) == ({"worker": "2"}, float("inf"))


def test_without_a_worker_that_responds_there_are_no_metrics() -> None:
    assert merged({}) == b""
