"""Metrics for OpenTelemetry (the extra ``otel``), for each exporter of its SDK."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

try:
    from opentelemetry.metrics import (
        Histogram,
        Meter,
        MeterProvider,
        Observation,
        get_meter_provider,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"OpenTelemetryMetrics needs {error.name}: pip install 'asyncrevoke[otel]'", name=error.name
    ) from error

from asyncrevoke.integrations import conventions as names
from asyncrevoke.integrations.consumer_metrics import Attributes, ConsumerMetrics, Distribution

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from opentelemetry.metrics import CallbackOptions

    from asyncrevoke.client.runtime.hooks.observers import Observed, ObservedProducer

__all__ = ["OpenTelemetryMetrics"]

_instruments: WeakKeyDictionary[MeterProvider, _Instruments] = WeakKeyDictionary()


class OpenTelemetryMetrics(ConsumerMetrics):
    """An observer for ``consumer.observe`` or ``producer.observe``; its metrics go to
    ``meter_provider``.

    By default this is the global provider at the time when the consumer is entered. Counters and
    gauges are read when an exporter reads them, in its thread, which waits at most a second for the
    event loop. Durations are recorded one by one, as OpenTelemetry requires: this costs some
    microseconds for each call of a handler.
    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        super().__init__()
        self._provider = meter_provider
        self._instruments: _Instruments | None = None

    def on_open(self, consumer: Observed) -> None:
        """Add the metrics to the meter."""
        super().on_open(consumer)
        self._add()

    def on_producer_open(self, producer: ObservedProducer) -> None:
        """Add the metrics to the meter."""
        super().on_producer_open(producer)
        self._add()

    def _add(self) -> None:
        provider = self._provider or get_meter_provider()
        shared = _instruments.get(provider)
        if shared is None:
            shared = _instruments[provider] = _Instruments(provider)
        shared.add(self)
        self._instruments = shared

    def on_handlers_completed(self, handler: str, topic: str, seconds: Sequence[float]) -> None:
        """Record calls that have returned, one by one."""
        attributes = self.of_calls(handler, topic)
        for value in seconds:
            self._record(names.PROCESS, value, attributes)

    def failed(self, handler: str, topic: str, error: str, seconds: float) -> None:
        """A call has raised an error of type ``error``."""
        attributes = self.of_calls(handler, topic) | {names.ERROR: error}
        self._record(names.PROCESS, seconds, attributes)

    def committed(self, seconds: float) -> None:
        """A commit was acknowledged."""
        self._record(names.COMMIT, seconds, self.of_commits())

    def transaction_committed(self, records: int, results: int) -> None:
        """A transaction of so many records and results was committed."""
        self._record(names.TRANSACTION_RECORDS, records, self.of({}))
        self._record(names.TRANSACTION_RESULTS, results, self.of({}))

    def delivered(self, counts: Sequence[int]) -> None:
        """Records of a share group were delivered for these times."""
        for count in counts:
            self._record(names.SHARE_DELIVERIES, count, self.of({}))

    def drained(self, seconds: float) -> None:
        """A partition was released ``seconds`` after its revocation was requested."""
        self._record(names.DRAIN, seconds, self.of({}))

    def throttled(self, seconds: float) -> None:
        """A broker has returned this throttle time."""
        self._record(names.THROTTLE, seconds, self.of({}))

    def on_tick(self, late: float) -> None:
        """Record by how many seconds the event loop was late."""
        self._record(names.LOOP_LAG, max(0.0, late), self.of({}))

    def _record(self, metric: names.Metric, value: float, attributes: Attributes) -> None:
        if self._instruments is not None:
            self._instruments.histograms[metric].record(value, attributes)


class _Instruments:
    """The instruments of one provider, for all its consumers."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("asyncrevoke", schema_url=names.SCHEMA_URL)
        self._all: list[ConsumerMetrics] = []
        self.histograms = {
            metric: _histogram(meter, metric)
            for metric in names.METRICS
            if metric.kind == "histogram"
        }
        for metric in names.METRICS:
            ask = [partial(self._observe, metric)]
            if metric.kind == "counter":
                _ = meter.create_observable_counter(metric.name, ask, metric.unit, metric.about)
            elif metric.kind == "gauge":
                _ = meter.create_observable_gauge(metric.name, ask, metric.unit, metric.about)

    def add(self, measures: ConsumerMetrics) -> None:
        """Add the metrics of a consumer, once."""
        if measures not in self._all:
            self._all.append(measures)

    def _observe(self, metric: names.Metric, _: CallbackOptions) -> Iterable[Observation]:
        for measures in list(self._all):
            readings = measures.gauges() if metric.kind == "gauge" else measures.counters()
            for found, values in readings:
                if found is metric:
                    for attributes, value in values:
                        assert not isinstance(value, Distribution)
                        yield Observation(value, attributes)


def _histogram(meter: Meter, metric: names.Metric) -> Histogram:
    return meter.create_histogram(
        metric.name,
        metric.unit,
        metric.about,
        explicit_bucket_boundaries_advisory=names.buckets_of(metric),
    )
