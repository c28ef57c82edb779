"""What looking on costs a record on its way through the handlers, in CPU, without a broker.

    python -m benchmarks.costs.observer [--turns T] [--records N]

Handlers that await nothing run on records that are in memory already; the variants take turns in
one process, and the best turn of each counts, so that what else the machine does matters little.
What fetching, decoding and committing cost is not in it:
``benchmarks.costs.observability`` has all.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import random
import sys
import time
from typing import TYPE_CHECKING, cast

from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from asyncrevoke import PollResult, Record, Router, TopicPartition
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.hooks.observers import ConsumerSnapshot, Observed, Observers
from asyncrevoke.client.runtime.session.membership_guard import NoMembership
from asyncrevoke.handlers.execution.runner_context import RunnerContext
from asyncrevoke.handlers.runner import HandlerRunner
from asyncrevoke.integrations.opentelemetry_tracing import OpenTelemetryTracing
from asyncrevoke.integrations.prometheus import PrometheusMetrics
from asyncrevoke.web.dashboard.consumer_watch import ConsumerWatch
from asyncrevoke.web.dashboard.history import History
from benchmarks.report.surroundings import table

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from asyncrevoke.client.runtime.hooks.observers import Observer
    from asyncrevoke.handlers.scheduling.record_source import RecordSource

PARTITIONS = 8
KEYS = 10_000
POLL = 500
IN_FLIGHT = 2000


def _metrics() -> Observer:
    return PrometheusMetrics(CollectorRegistry())


def _tracing() -> Observer:
    return OpenTelemetryTracing(TracerProvider(), new_traces=0.001)


def _page() -> Observer:
    return ConsumerWatch(History("benchmark"))


VARIANTS: dict[str, tuple[Callable[[], Observer], ...]] = {
    "nothing": (),
    "Prometheus": (_metrics,),
    "tracing, 0.1 % of the records": (_tracing,),
    "the page": (_page,),
    "all three": (_metrics, _tracing, _page),
}


class InMemory:
    """As much of a RecordSource as a runner uses that is never asked to give anything back."""

    in_flight = 0
    stopping = False
    membership = NoMembership()

    def __init__(self, batches: Iterable[PollResult], observers: Observers | None) -> None:
        self._batches = iter(batches)
        self._observers = observers

    async def poll(self) -> PollResult:
        """The next batch, when there is room."""
        while self.in_flight > IN_FLIGHT - POLL:  # noqa: ASYNC110 - it is a busy loop
            await asyncio.sleep(0)
        batch = next(self._batches, None)
        while batch is None and self.in_flight:  # noqa: ASYNC110
            await asyncio.sleep(0)
        if batch is None:
            raise StopAsyncIteration
        self.in_flight += POLL
        if self._observers is not None:
            self._observers.on_poll(batch)
        return batch

    def complete_all(self, records: Sequence[Record]) -> None:
        """These are done."""
        self.in_flight -= len(records)

    @contextlib.contextmanager
    def awaiting_library(self) -> Generator[None]:
        """While handlers drain."""
        yield


def batches(records: int) -> list[PollResult]:
    """Batches of one partition each, keys by chance."""
    chance = random.Random(1)
    keys = [b"key-%d" % number for number in range(KEYS)]
    offsets = [0] * PARTITIONS
    found: list[PollResult] = []
    for _ in range(records // POLL):
        partition = chance.randrange(PARTITIONS)
        first = offsets[partition]
        offsets[partition] += POLL
        values = [
            Record("plain", partition, offset, 0, 0, chance.choice(keys), bytes(100))
            for offset in range(first, first + POLL)
        ]
        found.append(PollResult({TopicPartition("plain", partition): values}))
    return found


def _unread() -> ConsumerSnapshot:
    raise TimeoutError  # nobody reads gauges here


async def turn(variant: str, data: list[PollResult]) -> float:
    """Handle all of it; the CPU that it took, in microseconds a record."""
    router, log = Router(), EventLog()

    @router.handler("plain")
    async def each(value: bytes) -> None: ...

    observers = None
    if VARIANTS[variant]:
        made = [make() for make in VARIANTS[variant]]
        observers = Observers(made, log, Observed(_unread, group_id="g", client_id="observer"))
        observers.on_open()
    source = cast("RecordSource", InMemory(data, observers))
    runner = HandlerRunner(
        source, router, RunnerContext(concurrency=64, log=log, observers=observers)
    )
    gc.collect()
    began = time.process_time()
    await runner.run()
    return (time.process_time() - began) / (len(data) * POLL) * 1e6


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What looking on costs a record, in CPU.")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--records", type=int, default=20_000)
    options = parser.parse_args()
    data = batches(options.records)
    best = dict.fromkeys(VARIANTS, float("inf"))
    for _ in range(options.turns):
        for variant in VARIANTS:
            best[variant] = min(best[variant], asyncio.run(turn(variant, data)))
    rows = [
        [variant, f"{micros:.3f}", f"{micros - best['nothing']:+.3f}"]
        for variant, micros in best.items()
    ]
    print(table(["who looks on", "µs of CPU a record", "more than nothing"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
