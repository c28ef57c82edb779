"""Metrics for Prometheus, by prometheus-client (the extra ``metrics``)."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"PrometheusMetrics needs {error.name}: pip install 'asyncrevoke[metrics]'", name=error.name
    ) from error

from asyncrevoke.integrations import conventions as names
from asyncrevoke.integrations.consumer_metrics import (
    Attributes,
    ConsumerMetrics,
    Distribution,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import Metric as Family

    from asyncrevoke.client.runtime.hooks.observers import Observed, ObservedProducer

__all__ = ["PrometheusMetrics", "prometheus_name"]

_CONSUMER = (names.SYSTEM, names.GROUP, names.CLIENT_ID)
_collectors: WeakKeyDictionary[CollectorRegistry, _Consumers] = WeakKeyDictionary()


class PrometheusMetrics(ConsumerMetrics):
    """An observer for ``consumer.observe`` or ``producer.observe``; ``registry`` has its metrics.

    ::

        from prometheus_client import start_http_server

        consumer.observe(PrometheusMetrics())
        start_http_server(9000, addr="127.0.0.1")

    Consumers with different ``client_id`` or group may share a registry, each with one observer.
    Values are computed when the registry is scraped, in any thread, which waits at most a second
    for the event loop. A scraper that hangs does not block the consumer.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__()
        self._registry = registry

    def on_open(self, consumer: Observed) -> None:
        """Add the metrics to the registry."""
        super().on_open(consumer)
        self._register()

    def on_producer_open(self, producer: ObservedProducer) -> None:
        """Add the metrics to the registry."""
        super().on_producer_open(producer)
        self._register()

    def _register(self) -> None:
        collector = _collectors.get(self._registry)
        if collector is None:
            collector = _collectors[self._registry] = _Consumers()
            self._registry.register(collector)
        collector.add(self)


class _Consumers(Collector):
    """All consumers of one registry, which may have each family of metrics only once."""

    def __init__(self) -> None:
        self._all: list[ConsumerMetrics] = []

    def add(self, measures: ConsumerMetrics) -> None:
        """Add the metrics of a consumer, unless other metrics of it were added."""
        if not any(measures.is_of_same_consumer(other) for other in self._all):
            self._all.append(measures)

    def describe(self) -> Iterable[Family]:
        """The families of :meth:`collect`, so that registering does not collect."""
        return [_family(metric) for metric in names.METRICS]

    def collect(self) -> Iterable[Family]:
        """Read the metrics of all consumers."""
        families: dict[names.Metric, Family] = {}
        for measures in list(self._all):
            for metric, readings in measures.read():
                family = families.get(metric) or families.setdefault(metric, _family(metric))
                for attributes, value in readings:
                    _add(family, metric, attributes, value)
        return families.values()


def prometheus_name(metric: names.Metric) -> str:
    """A metric's name by OpenTelemetry's rules for Prometheus, without the suffix of a sample."""
    name = metric.name.replace(".", "_")
    name += {"s": "_seconds", "By": "_bytes"}.get(metric.unit, "")
    return f"{name}_total" if metric.kind == "counter" else name


def _family(metric: names.Metric) -> Family:
    name = prometheus_name(metric)
    labels = [label.replace(".", "_") for label in (*_CONSUMER, *metric.attributes)]
    match metric.kind:
        case "counter":
            return CounterMetricFamily(name, metric.about, labels=labels)
        case "gauge":
            return GaugeMetricFamily(name, metric.about, labels=labels)
        case "histogram":
            return HistogramMetricFamily(name, metric.about, labels=labels)


def _add(family: Family, metric: names.Metric, attributes: Attributes, value: Value) -> None:
    labels = [attributes.get(name, "") for name in (*_CONSUMER, *metric.attributes)]
    if isinstance(value, Distribution):
        assert isinstance(family, HistogramMetricFamily)
        bounds = [*(str(bound) for bound in value.bounds), "+Inf"]
        counts = accumulate(value.counts)
        family.add_metric(labels, list(zip(bounds, counts, strict=True)), value.total)
    else:
        assert isinstance(family, (CounterMetricFamily, GaugeMetricFamily))
        family.add_metric(labels, value)
