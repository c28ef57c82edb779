"""Async handlers on every record: how fast, how late, and in how much memory.

    python -m benchmarks.handlers [--scenario NAME ...] [--records N] [--rounds R] [--json]

Each scenario runs on one broker; the clients take turns, each time in a new process and with a new
group, and each round gives a ratio of ours to each other one. ``noop``: handlers that await
nothing. ``noop-results``: each of these publishes one result. ``slow``: they await 5 ms, 512 at
once, keys are uniform. ``zipf``: the same where every tenth record is of one key, compared with
that key's handlers in a row. ``latency``: from sending to handling, at 1,000 records/s, by handlers
and in plain loops. ``memory``: ours alone under a steady stream of new keys.

Ours keeps the order of keys and commits contiguously (what was committed is checked); the others
do what ``handler_clients.py`` says of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import multiprocessing
import random
import sys
import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING, cast

import psutil
import uvloop
from aiokafka.admin import AIOKafkaAdminClient

from benchmarks.clients.handler_clients import (
    CLIENTS,
    HOTTEST_ALONE,
    OURS,
    OURS_ON_UVLOOP,
    Client,
    Group,
)
from benchmarks.clients.publishing_clients import (
    PUBLISHING,
    results_topic,
)
from benchmarks.report.printing import (
    MeasurementError,
    Options,
    last_line,
    options_parser,
    spread,
    tell,
)
from benchmarks.report.surroundings import table
from benchmarks.workload.broker import measured_broker, topic_name
from benchmarks.workload.client_process import client_process, received, sending_process
from benchmarks.workload.handler_work import HANDLER_TIME, WORK, Measured
from benchmarks.workload.load import fill_keyed, stream_stamped
from benchmarks.workload.scenarios import FRACTIONS, SCENARIOS

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from asyncrevoke.broker.running import RunningBroker
    from benchmarks.clients.aiokafka_types import Groups
    from benchmarks.workload.stall_member import Pipe

PARTITIONS = 8
SIZE = 100
KEYS = 10_000
DEADLINE = 90.0  # seconds of one turn
RATE = 1_000.0  # records/s of the latency
STREAM = 5_000.0  # records/s of the memory
SEED = 20_260_101


def run_client(name: str, client: str, group: Group, total: int, pipe: Pipe) -> None:
    """Handle so many records and send what was measured; blocks."""
    try:
        loop_factory = uvloop.new_event_loop if client == OURS_ON_UVLOOP else None
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            pipe.send(runner.run(_run_client(name, client, group, total)))
    except Exception:  # noqa: BLE001 - it is told in the other process
        pipe.send(traceback.format_exc())


def clients_of(scenario: str) -> dict[str, Client]:
    """The clients that a scenario can measure, by name."""
    return PUBLISHING if scenario == "noop-results" else CLIENTS


async def _run_client(name: str, client: str, group: Group, total: int) -> Measured:
    work = WORK[name](total)
    # The first full collection takes 50 ms, because the clients of all libraries are imported.
    # Without this, it is by chance that a client has it while it is measured.
    gc.collect()
    await clients_of(name)[client](group, work)
    return work.measured()


class Bench:
    """The scenarios on one running broker."""

    def __init__(self, broker: RunningBroker, records: int | None, seconds: float) -> None:
        self._broker = broker
        self._bootstrap = broker.bootstrap_servers
        self._records = records
        self._seconds = seconds
        self._context = multiprocessing.get_context("spawn")
        self._numbers = itertools.count()

    def records_of(self, name: str) -> int:
        """How many records a scenario has."""
        return self._records or SCENARIOS[name].records

    def fill(self, name: str) -> int:
        """Write a scenario's records; returns how many those of the most frequent key are."""
        topic = topic_name(name)
        self._broker.create_topic(topic, PARTITIONS)
        if name == "noop-results":
            self._broker.create_topic(results_topic(topic), PARTITIONS)
        keys = keys_of(name, self.records_of(name))
        asyncio.run(fill_keyed(self._bootstrap, topic, PARTITIONS, keys, SIZE))
        return max(Counter(keys).values())

    def measure(self, name: str, client: str, hottest: int) -> Measured:
        """One client's turn."""
        scenario = SCENARIOS[name]
        total = self.records_of(name) // FRACTIONS.get((name, client), 1)
        if client == HOTTEST_ALONE:
            total = hottest
        group = self._group(name, total)
        with contextlib.ExitStack() as stack:
            if not scenario.filled:
                stack.enter_context(self._streaming(group.topic, RATE))
            process, pipe = stack.enter_context(
                client_process(self._context, run_client, name, client, group, total)
            )
            measured = cast("Measured", received([pipe], client, Measured, DEADLINE))
            process.join(30)
        if scenario.filled and client == OURS:
            committed = asyncio.run(_committed(self._bootstrap, group.name))
            if committed != total:
                raise MeasurementError(f"{client} handled {total} and committed {committed}")
        if client == HOTTEST_ALONE:
            # The rate of all records that its records allow.
            return measured._replace(records=self.records_of(name))
        return measured

    def memory(self, say: bool) -> list[tuple[float, float]]:
        """Seconds since the start, and MiB of the client's process."""
        samples: list[tuple[float, float]] = []
        group = self._group("memory", 0)
        with (
            self._streaming(group.topic, STREAM),
            client_process(self._context, run_client, "memory", OURS, group, sys.maxsize) as (
                process,
                pipe,
            ),
        ):
            start = time.monotonic()
            assert process.pid is not None
            seen = psutil.Process(process.pid)
            while (at := time.monotonic() - start) < self._seconds:
                if pipe.poll(1.0):
                    received([pipe], OURS, Measured, 0.0)
                    raise MeasurementError(f"{OURS} ended")
                samples.append((at, seen.memory_info().rss / 2**20))
                if say and len(samples) % 10 == 0:
                    sys.stderr.write(f"memory, {at:.0f} s: {samples[-1][1]:.1f} MiB\n")
            process.terminate()
        return samples

    def _streaming(self, topic: str, rate: float) -> AbstractContextManager[None]:
        self._broker.create_topic(topic, PARTITIONS)
        return sending_process(
            self._context, stream_stamped, self._bootstrap, topic, PARTITIONS, rate, SIZE
        )

    def _group(self, name: str, total: int) -> Group:
        scenario = SCENARIOS[name]
        group = f"{topic_name(name)}-{next(self._numbers)}"
        # Of what is sent meanwhile, each client reads its own.
        topic = topic_name(name) if scenario.filled else group
        sleeps = 0.0 if name.startswith("noop") else HANDLER_TIME
        return Group(self._bootstrap, topic, group, scenario.concurrency, total, sleeps, PARTITIONS)


def keys_of(name: str, count: int) -> list[bytes]:
    """The keys of a scenario's records, the same ones in every run."""
    chance = random.Random(SEED)
    weights = [1.0 if not name.endswith("zipf") else 1 / rank for rank in range(1, KEYS + 1)]
    numbers = chance.choices(range(KEYS), cum_weights=list(itertools.accumulate(weights)), k=count)
    return [b"key-%d" % number for number in numbers]


async def _committed(bootstrap: str, group: str) -> int:
    admin = cast("Groups", AIOKafkaAdminClient(bootstrap_servers=bootstrap))
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(group)
    finally:
        await admin.close()
    return sum(committed.offset for committed in offsets.values())


class Report:
    """All measurements of one scenario."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.measured: dict[str, list[Measured]] = {c: [] for c in SCENARIOS[name].clients}
        self.memory: list[tuple[float, float]] = []
        # Clients that did not do what they should, and why.
        self.failed: dict[str, str] = {}

    def text(self) -> str:
        """A table in Markdown, and what it is about."""
        if self.name == "memory":
            return self._memory_text()
        header = [f"{self.name}: median (lowest to highest)", *self._columns()]
        rows = [[client, *self._cells(every)] for client, every in self.measured.items()]
        return table(header, rows)

    def for_machines(self) -> dict[str, object]:
        """The same as JSON has it."""
        if self.name == "memory":
            return {"seconds and MiB": self.memory}
        return {
            client: [m._asdict() | {"rate": m.rate, "cpu_rate": m.cpu_rate} for m in every]
            for client, every in self.measured.items()
        }

    def _columns(self) -> list[str]:
        if self.name == "latency":
            return ["p50, ms", "p99, ms", "highest, ms", "p99 of ours ÷ this", "CPU, µs a record"]
        return ["records/s", "ours ÷ this", "records per second of CPU", "ours ÷ this"]

    def _cells(self, every: list[Measured]) -> list[str]:
        """What was measured, and the ratio of ours to it in each round."""
        pairs = list(zip(self.measured[OURS], every, strict=False))
        if self.name == "latency":
            return [
                spread([m.delay_p50 * 1e3 for m in every], 2),
                spread([m.delay_p99 * 1e3 for m in every], 2),
                spread([m.delay_max * 1e3 for m in every], 1),
                spread([ours.delay_p99 / m.delay_p99 for ours, m in pairs], 2),
                spread([1e6 / m.cpu_rate for m in every]),
            ]
        return [
            spread([m.rate for m in every]),
            spread([ours.rate / m.rate for ours, m in pairs], 2),
            spread([m.cpu_rate for m in every]),
            spread([ours.cpu_rate / m.cpu_rate for ours, m in pairs], 2),
        ]

    def _memory_text(self) -> str:
        if not self.memory:
            return "memory: failed"
        end = self.memory[-1][0]
        header = ["memory", "MiB at the end of it (lowest to highest in it)"]
        rows: list[list[str]] = []
        for part in range(6):
            start, stop = end * part / 6, end * (part + 1) / 6
            sizes = [size for at, size in self.memory if start <= at <= stop]
            if sizes:
                cell = f"{sizes[-1]:.1f} ({min(sizes):.1f} to {max(sizes):.1f})"
                rows.append([f"{start:.0f} to {stop:.0f} s", cell])
        return table(header, rows)


def main() -> int:
    """Measure and print."""
    options = _options()
    reports: list[Report] = []
    with measured_broker() as broker:
        bench = Bench(broker, options.records, options.seconds)
        for name in options.scenario or SCENARIOS:
            report = Report(name)
            reports.append(report)
            _measure(bench, report, options)
    failures = {report.name: report.failed for report in reports if report.failed}
    return tell(
        {report.name: report.for_machines() for report in reports},
        failures,
        (report.text() for report in reports),
        f"records of {SIZE} bytes, {PARTITIONS} partitions, {options.rounds} rounds",
        as_json=options.json,
    )


def _measure(bench: Bench, report: Report, options: _Options) -> None:
    name = report.name
    scenario = SCENARIOS[name]
    if name == "memory":
        try:
            report.memory = bench.memory(say=True)
        except (MeasurementError, psutil.Error) as error:
            report.failed[OURS] = last_line(error)
        return
    hottest = bench.fill(name) if scenario.filled else 0
    rounds = options.rounds
    clients = options.chosen(scenario.clients, OURS)
    report.measured = {client: [] for client in clients}
    for turn in range(0 if scenario.warm_up and not options.cold else 1, rounds + 1):
        # Each begins a round in its turn: a broker is slower in its first minutes.
        first = turn % len(clients)
        for client in clients[first:] + clients[:first] if turn else clients[:1]:
            # What has worked is tried again.
            if client in report.failed and not report.measured[client]:
                continue
            try:
                measured = bench.measure(name, client, hottest)
            except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                report.failed[client] = last_line(error)
                sys.stderr.write(f"{name}, {client}: {error}\n")
                continue
            told = (
                f"p50 {measured.delay_p50 * 1e3:.2f} ms, p99 {measured.delay_p99 * 1e3:.2f} ms"
                if name == "latency"
                else f"{measured.rate:,.0f}/s"
            )
            sys.stderr.write(f"{name}, round {turn or 'to warm up'}, {client}: {told}\n")
            if turn:
                report.measured[client].append(measured)


class _Options(Options):
    scenario: list[str] | None
    records: int | None
    seconds: float


def _options() -> _Options:
    parser = options_parser(
        "Async handlers on every record: how fast, how late, in how much memory."
    )
    parser.add_argument("--scenario", nargs="+", choices=list(SCENARIOS), help="all by default")
    parser.add_argument("--records", type=int, help="of each scenario, instead of its own number")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the memory scenario")
    return parser.parse_args(namespace=_Options())


if __name__ == "__main__":
    sys.exit(main())
