"""Results exactly once: how fast handlers publish in transactions, and how late results are.

    python -m benchmarks.exactly_once [--scenario NAME ...] [--rounds R] [--json]

Each client publishes the value of each record to another topic, and commits the offsets in the
same transactions. The clients take turns on one broker, each time in a new process, with a new
group and a new topic of results. ``noop``: handlers that await nothing. ``slow``: they await 5 ms,
512 at once; loops sleep 5 ms for each record. ``latency``: 1,000 records/s, from sending a record
until a reader with ``read_committed`` has its result. ``intervals``: rates and latencies over the
interval between transactions.

Rates are those from the first tenth of the records until all results are committed. After each
turn, a reader counts the visible results: one for each record.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import sys
from typing import TYPE_CHECKING, NamedTuple, cast

from benchmarks.exactly_once.clients import (
    AT_LEAST_ONCE,
    AT_LEAST_ONCE_KIP848,
    CONFLUENT_100,
    CONFLUENT_INTERVAL,
    OURS,
    OURS_KIP848,
    STREAMS,
    run_client,
)
from benchmarks.exactly_once.turn import Task
from benchmarks.exactly_once.visible import COUNTING, count_visible, percentiles, watch
from benchmarks.handlers import PARTITIONS, RATE, SIZE, keys_of
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
from benchmarks.workload.client_process import (
    client_process,
    cpu_seconds,
    received,
    sending_process,
)
from benchmarks.workload.handler_work import HANDLER_TIME, Measured
from benchmarks.workload.load import fill_keyed, stream_stamped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from asyncrevoke.broker.running import RunningBroker

DEADLINE = 90.0  # seconds of one turn
ENDLESS = 1 << 40


class Scenario(NamedTuple):
    """Who takes part. ``fractions`` of the records are enough for slower ones."""

    clients: tuple[str, ...]
    records: int
    concurrency: int = 64
    handler_time: float = 0.0
    intervals: tuple[float, ...] = (0.1,)
    has_latency: bool = False
    fractions: dict[str, int] = {}  # noqa: RUF012 - nothing changes it


SCENARIOS = {
    "noop": Scenario(
        (
            OURS,
            OURS_KIP848,
            AT_LEAST_ONCE,
            AT_LEAST_ONCE_KIP848,
            CONFLUENT_100,
            CONFLUENT_INTERVAL,
            STREAMS,
        ),
        240_000,
        fractions={CONFLUENT_100: 20},
    ),
    "slow": Scenario(
        (
            OURS,
            OURS_KIP848,
            AT_LEAST_ONCE,
            AT_LEAST_ONCE_KIP848,
            CONFLUENT_100,
            CONFLUENT_INTERVAL,
        ),
        120_000,
        512,
        HANDLER_TIME,
        fractions={CONFLUENT_100: 120, CONFLUENT_INTERVAL: 120},
    ),
    "latency": Scenario((OURS, OURS_KIP848, CONFLUENT_INTERVAL, STREAMS), 0, has_latency=True),
    "intervals": Scenario(
        (OURS, STREAMS), 120_000, intervals=(0.01, 0.03, 0.1, 0.3, 1.0), has_latency=True
    ),
}


class Bench:
    """The scenarios on one running broker."""

    def __init__(self, broker: RunningBroker, records: int | None, delays: int) -> None:
        self._broker = broker
        self._bootstrap = broker.bootstrap_servers
        self._records = records
        self._delays = delays
        self._context = multiprocessing.get_context("spawn")
        self._numbers = itertools.count()
        self._filled = ""

    def rate(self, scenario: Scenario, client: str, interval: float) -> Measured:
        """One client's turn with records that were written before."""
        records = self._records or scenario.records
        total = max(1_000, records // scenario.fractions.get(client, 1))
        task = self._task(self._topic(), scenario, total, interval)
        with client_process(self._context, run_client, client, task) as (_, pipe):
            found = received([pipe], client, tuple, DEADLINE)
        measured, handled = cast("tuple[Measured, int]", found)
        visible = count_visible(self._bootstrap, task.results, PARTITIONS)
        if visible != handled:
            raise MeasurementError(
                f"{client} handled {handled:,} records; {visible:,} results are visible"
            )
        self._broker.delete_topic(task.results)
        return measured

    def latency(self, scenario: Scenario, client: str, interval: float) -> Measured:
        """One client's turn with records that are sent meanwhile."""
        topic = f"{topic_name('sent')}-{next(self._numbers)}"
        self._broker.create_topic(topic, PARTITIONS)
        task = self._task(topic, scenario, ENDLESS, interval)
        where = (self._bootstrap, task.results, PARTITIONS)
        with (
            sending_process(
                self._context, stream_stamped, self._bootstrap, topic, PARTITIONS, RATE, SIZE
            ),
            client_process(self._context, run_client, client, task) as (process, failed),
            client_process(self._context, watch, *where, self._delays) as (_, seen),
        ):
            pipes = [seen, failed]
            counting = received(pipes, client, str, DEADLINE)
            if counting != COUNTING:
                raise MeasurementError(f"{client} failed: {counting}")
            before = cpu_seconds(process)
            delays = cast("list[float]", received(pipes, client, list, DEADLINE))
            cpu = cpu_seconds(process) - before
        p50, p99, highest = percentiles(delays)
        return Measured(len(delays), len(delays) / RATE, cpu, p50, p99, highest)

    def _topic(self) -> str:
        """The topic of the records, which is filled once."""
        if not self._filled:
            self._filled = topic_name("records")
            self._broker.create_topic(self._filled, PARTITIONS)
            count = self._records or max(scenario.records for scenario in SCENARIOS.values())
            keys = keys_of("noop", count)
            asyncio.run(fill_keyed(self._bootstrap, self._filled, PARTITIONS, keys, SIZE))
        return self._filled

    def _task(self, topic: str, scenario: Scenario, total: int, interval: float) -> Task:
        group = f"{topic_name('exactly-once')}-{next(self._numbers)}"
        results = f"{group}-results"
        self._broker.create_topic(results, PARTITIONS)
        return Task(
            self._bootstrap,
            topic,
            results,
            group,
            total,
            scenario.concurrency,
            interval,
            scenario.handler_time,
        )


class Row(NamedTuple):
    """What was measured of one client with one interval."""

    client: str
    interval: float
    rates: list[Measured]
    latencies: list[Measured]

    def for_machines(self) -> dict[str, object]:
        """The same as JSON has it."""
        return {
            "client": self.client,
            "interval": self.interval,
            "rates": [m._asdict() | {"rate": m.rate, "cpu_rate": m.cpu_rate} for m in self.rates],
            "latencies": [m._asdict() for m in self.latencies],
        }


class Report:
    """All measurements of one scenario."""

    def __init__(self, name: str, clients: Sequence[str]) -> None:
        self.name = name
        self.scenario = SCENARIOS[name]
        self.rows = [
            Row(client, interval, [], [])
            for interval in self.scenario.intervals
            for client in clients
        ]
        # Clients that did not do what they should, and why.
        self.failed: dict[str, str] = {}

    def text(self) -> str:
        """A table in Markdown; ratios are of ours in the same round."""
        header = [
            f"{self.name}: median (lowest to highest)",
            *("interval, s", "records/s", "ours ÷ this", "records per second of CPU"),
            *("ours ÷ this", "p50, ms", "p99, ms", "CPU, µs a record"),
        ]
        rows = [
            [
                row.client,
                f"{row.interval:g}",
                spread([m.rate for m in row.rates], nothing=""),
                spread([o.rate / m.rate for o, m in self._pairs(row)], 2, ""),
                spread([m.cpu_rate for m in row.rates], nothing=""),
                spread([o.cpu_rate / m.cpu_rate for o, m in self._pairs(row)], 2, ""),
                spread([m.delay_p50 * 1e3 for m in row.latencies], 1, ""),
                spread([m.delay_p99 * 1e3 for m in row.latencies], 1, ""),
                spread([1e6 / m.cpu_rate for m in row.latencies if m.cpu], nothing=""),
            ]
            for row in self.rows
        ]
        return table(header, rows)

    def _pairs(self, row: Row) -> Iterator[tuple[Measured, Measured]]:
        ours = next(r for r in self.rows if r.interval == row.interval)
        return zip(ours.rates, row.rates, strict=False)


def main() -> int:
    """Measure and print."""
    options = _options()
    reports: list[Report] = []
    with measured_broker() as broker:
        bench = Bench(broker, options.records, options.delays)
        for name in options.scenario or SCENARIOS:
            clients = options.chosen(SCENARIOS[name].clients, OURS)
            report = Report(name, clients)
            reports.append(report)
            _measure(bench, report, options)
    failures = {report.name: report.failed for report in reports if report.failed}
    return tell(
        {report.name: [row.for_machines() for row in report.rows] for report in reports},
        failures,
        (report.text() for report in reports),
        f"records of {SIZE} bytes, {PARTITIONS} partitions, {options.rounds} rounds",
        as_json=options.json,
    )


def _measure(bench: Bench, report: Report, options: _Options) -> None:
    scenario = report.scenario
    for turn in range(1 if options.cold else 0, options.rounds + 1):
        # Each begins a round in its turn. Ours warms the broker up before the first one.
        first = turn % len(report.rows)
        rows = report.rows[first:] + report.rows[:first] if turn else report.rows[:1]
        for row in rows:
            told: list[str] = []
            try:
                if scenario.records:
                    measured = bench.rate(scenario, row.client, row.interval)
                    told.append(f"{measured.rate:,.0f}/s, {measured.cpu_rate:,.0f}/s of CPU")
                    if turn:
                        row.rates.append(measured)
                if turn and scenario.has_latency:
                    measured = bench.latency(scenario, row.client, row.interval)
                    p50, p99 = measured.delay_p50 * 1e3, measured.delay_p99 * 1e3
                    told.append(f"p50 {p50:.1f} ms, p99 {p99:.1f} ms")
                    row.latencies.append(measured)
            except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                report.failed[row.client] = last_line(error)
                sys.stderr.write(f"{report.name}, {row.client}: {error}\n")
                continue
            sys.stderr.write(
                f"{report.name}, round {turn or 'to warm up'}, {row.client}, "
                f"{row.interval:g} s: {', '.join(told)}\n"
            )


class _Options(Options):
    scenario: list[str] | None
    records: int | None
    delays: int


def _options() -> _Options:
    parser = options_parser(
        "Results exactly once: how fast handlers publish, and how late results are."
    )
    parser.add_argument("--scenario", nargs="+", choices=list(SCENARIOS), help="all by default")
    parser.add_argument("--records", type=int, help="of each scenario, instead of its own number")
    parser.add_argument("--delays", type=int, default=6_000, help="results whose delay is taken")
    return parser.parse_args(namespace=_Options())


if __name__ == "__main__":
    sys.exit(main())
