"""What looking on costs: handlers with metrics, traces and the page, beside handlers without.

    python -m benchmarks.costs.observability [--rounds R] [--records N] [--slow] [--json]

One broker; the variants take turns, each time in a new process and with a new group, and each round
gives a ratio to the variant without anything. Handlers await nothing (the hardest case), or 5 ms
with ``--slow``, 512 at once. Records have no trace context, but for the last variant, where each
has one that is not sampled. ``new_traces`` is 0.1 %; the page has a viewer that always reads.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import random
import statistics
import sys
import traceback
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke import Consumer
from asyncrevoke.broker import KafkaBroker
from asyncrevoke.broker.installation.jars import KAFKA_VERSION
from benchmarks.report.surroundings import surroundings, table
from benchmarks.workload.handler_work import WORK, Measured
from benchmarks.workload.load import fill_keyed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from benchmarks.workload.stall_member import Pipe

PARTITIONS = 8
SIZE = 100
KEYS = 10_000
DEADLINE = 300.0


class Variant(NamedTuple):
    """Who looks on."""

    prometheus: bool = False
    otel_metrics: bool = False
    tracing: bool = False
    page: bool = False
    topic: str = "plain"


OFF = "nothing"
VARIANTS = {
    OFF: Variant(),
    "Prometheus": Variant(prometheus=True),
    "tracing, 0.1 % of the records": Variant(tracing=True),
    "the page, with a viewer": Variant(page=True),
    "all three": Variant(prometheus=True, tracing=True, page=True),
    "OpenTelemetry metrics": Variant(otel_metrics=True),
    "tracing, all records in traces that are not sampled": Variant(tracing=True, topic="traced"),
}


class Task(NamedTuple):
    """One turn of a variant."""

    bootstrap: str
    variant: str
    group: str
    work: str
    records: int


def run_turn(task: Task, pipe: Pipe) -> None:
    """Handle so many records and send what was measured; blocks."""
    try:
        pipe.send(asyncio.run(_run(task)))
    except Exception:  # noqa: BLE001 - it is told in the other process
        pipe.send(traceback.format_exc())


async def _run(task: Task) -> Measured:
    variant = VARIANTS[task.variant]
    work = WORK[task.work](task.records)
    consumer = Consumer(
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        concurrency=512 if task.work == "slow" else 64,
    )
    handle = work.handle

    @consumer.handler(variant.topic)
    async def each(value: bytes) -> None:
        await handle(value)

    viewer = _observe(consumer, variant)
    watching = None if viewer is None else asyncio.create_task(_look(viewer))
    async with consumer:
        await work.finished.wait()
    if watching is not None:
        watching.cancel()
    return work.measured()


def _observe(consumer: Consumer, variant: Variant) -> AsyncGenerator[bytes] | None:
    if variant.prometheus:
        from asyncrevoke.integrations.prometheus import PrometheusMetrics

        consumer.observe(PrometheusMetrics())
    if variant.otel_metrics:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader

        from asyncrevoke.integrations.opentelemetry_metrics import (
            OpenTelemetryMetrics,
        )

        consumer.observe(OpenTelemetryMetrics(MeterProvider([InMemoryMetricReader()])))
    if variant.tracing:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
            InMemorySpanExporter,
        )

        from asyncrevoke.integrations.opentelemetry_tracing import (
            OpenTelemetryTracing,
        )

        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
        consumer.observe(OpenTelemetryTracing(provider, new_traces=0.001))
    if variant.page:
        from asyncrevoke.web.dashboard.app import Dashboard
        from asyncrevoke.web.dashboard.consumer_watch import ConsumerWatch
        from asyncrevoke.web.dashboard.history import History

        history = History("benchmark")
        consumer.observe(ConsumerWatch(history))
        return Dashboard(history).stream(seconds=DEADLINE)
    return None


async def _look(stream: AsyncGenerator[bytes]) -> None:
    async for _ in stream:
        pass


def measure(task: Task) -> Measured:
    """One turn, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=run_turn, args=(task, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(DEADLINE):
            raise SystemExit(f"{task.variant}: not done within {DEADLINE:.0f} s")
        measured = ours.recv()
    finally:
        process.kill()
        process.join()
    if not isinstance(measured, Measured):
        raise SystemExit(f"{task.variant} failed: {measured}")
    return measured


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What metrics, traces and the page cost handlers.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="variants with these in them")
    parser.add_argument("--slow", action="store_true", help="handlers await 5 ms")
    parser.add_argument("--json", action="store_true", help="for machines")
    options = parser.parse_args()
    found: dict[str, list[Measured]] = {
        variant: []
        for variant in VARIANTS
        if not options.only or variant == OFF or any(each in variant for each in options.only)
    }
    work = "slow" if options.slow else "noop"
    chance = random.Random(1)
    with KafkaBroker(
        quick=False, heap="1g", properties={"group.initial.rebalance.delay.ms": "0"}
    ) as broker:
        keys = [b"key-%d" % chance.randrange(KEYS) for _ in range(options.records)]
        trace = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
        for topic, headers in (("plain", ()), ("traced", (("traceparent", trace),))):
            broker.create_topic(topic, PARTITIONS)
            filling = fill_keyed(
                broker.bootstrap_servers, topic, PARTITIONS, keys, SIZE, headers=headers
            )
            asyncio.run(filling)
        numbers = itertools.count()
        for turn in range(options.rounds + 1):
            # Each begins in turn: what comes first, or after whom, must not matter.
            order = list(found.items())
            first = turn % len(order)
            for variant, every in order[first:] + order[:first]:
                group = f"group-{next(numbers)}"
                task = Task(broker.bootstrap_servers, variant, group, work, options.records)
                measured = measure(task)
                sys.stderr.write(
                    f"round {turn or 'to warm up'}, {variant}: {measured.rate:,.0f}/s\n"
                )
                if turn:
                    every.append(measured)
    facts = surroundings(os.environ.get("KAFKA_HOME", KAFKA_VERSION))
    if options.json:
        rates = {variant: [m._asdict() for m in every] for variant, every in found.items()}
        print(json.dumps({"surroundings": facts, "measured": rates}, indent=2))
        return 0
    rows: list[list[str]] = []
    for variant, every in found.items():
        pairs = list(zip(every, found[OFF], strict=True))
        rows.append(
            [
                variant,
                f"{statistics.median(m.rate for m in every):,.0f}",
                _spread([m.rate / off.rate for m, off in pairs]),
                _spread([m.cpu_rate / off.cpu_rate for m, off in pairs]),
            ]
        )
    header = [f"{work}: who looks on", "records/s", "÷ nothing", "per second of CPU ÷ nothing"]
    print(table(header, rows))
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    return 0


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    sys.exit(main())
