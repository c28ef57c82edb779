"""The metrics of all workers as one text, for ``asyncrevoke run --workers --metrics``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.cli.run.metrics_text import MetricsText

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.cli.run.workers.worker import WorkerProcess

LABEL = "worker"


def metrics_of_workers(workers: Mapping[int, WorkerProcess]) -> MetricsText:
    """The metrics of the running workers at each request, without those that do not send them in
    time."""

    async def collect() -> bytes:
        asked = dict(workers)
        texts = await asyncio.gather(*(worker.read_metrics() for worker in asked.values()))
        received = {
            number: text for number, text in zip(asked, texts, strict=True) if text is not None
        }
        return await asyncio.to_thread(merged, received)

    return MetricsText(collect)


def merged(texts: Mapping[int, str]) -> bytes:
    """One text of the workers' texts. Each sample gets the label ``worker``, as all workers have
    the same client id and the same metrics of the process."""
    from prometheus_client import CollectorRegistry, Metric, generate_latest
    from prometheus_client.parser import text_string_to_metric_families
    from prometheus_client.registry import Collector

    families: dict[str, Metric] = {}
    for number, text in sorted(texts.items()):
        for part in text_string_to_metric_families(text):
            family = families.setdefault(
                part.name, Metric(part.name, part.documentation, part.type)
            )
            family.samples += [
                sample._replace(labels={**sample.labels, LABEL: str(number)})
                for sample in part.samples
            ]

    class Families(Collector):
        def collect(self) -> list[Metric]:
            return list(families.values())

    registry = CollectorRegistry()
    registry.register(Families())
    return generate_latest(registry)
