"""Share groups (KIP-932) beside the Java client, confluent-kafka's, and raw requests.

    python -m benchmarks.share [--scenario NAME ...] [--rounds R] [--only NAME ...] [--json]

The clients take turns on one broker, each in a new process, as the only member of a new group that
begins at the start of a topic of 8 partitions. Measured from the first record to the last one.
``noop``: handlers that await nothing, batches of 1,000 records of 100 bytes. ``exact-100`` and
``exact-1000``: no more than 128 records are acquired at once. ``slow-100`` and ``slow-1000``:
handlers that await 20 ms, 256 at once. ``latency``: 20 records/s, from sending to the handler, and
from its end until the acknowledgement is confirmed. ``renewal``: handlers of twice the lock time.

After each turn the group's lag must be 0.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import statistics
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.configs import set_group_options
from asyncrevoke.client.groups.share_groups import share_group_offsets
from benchmarks.report.printing import (
    MeasurementError,
    Options,
    last_line,
    options_parser,
    spread,
    tell,
)
from benchmarks.report.surroundings import table
from benchmarks.share.clients import (
    CLIENTS,
    CONFLUENT,
    CONFLUENT_BEST,
    CONFLUENT_IMPLICIT,
    JAVA,
    JAVA_BEST,
    OURS,
    OURS_BEST,
    RAW,
    TIMED,
    run_client,
)
from benchmarks.share.turn import Measured, Task
from benchmarks.workload.broker import measured_broker, topic_name
from benchmarks.workload.client_process import client_process, received, sending_process
from benchmarks.workload.load import fill_batches, stream_stamped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.broker.running import RunningBroker

PARTITIONS = 8
SIZE = 100
DEADLINE = 90.0  # seconds of one turn
RATE = 20.0  # records/s of the latency
LOCK = 2.0  # seconds, of ``renewal``
# Only medians of these are told.
_TIMES = ("delays", "acknowledged")


class Scenario(NamedTuple):
    """Who takes part. ``fractions`` of the records are enough for slower ones."""

    clients: tuple[str, ...]
    records: int
    batch: int
    at_once: int
    acquire: Literal["exact", "batches"] = "exact"
    handler_time: float = 0.0
    fractions: dict[str, int] = {}  # noqa: RUF012 - nothing changes it


NOOP = (OURS, JAVA, CONFLUENT, CONFLUENT_IMPLICIT, RAW, OURS_BEST, JAVA_BEST, CONFLUENT_BEST)
EXACT = (OURS, JAVA, RAW)
SCENARIOS = {
    "noop": Scenario(NOOP, 300_000, 1_000, 500, "batches", fractions={JAVA: 3, JAVA_BEST: 3}),
    "exact-100": Scenario(EXACT, 60_000, 100, 128),
    "exact-1000": Scenario(EXACT, 60_000, 1_000, 128),
    "slow-100": Scenario((OURS,), 60_000, 100, 256, handler_time=0.02),
    "slow-1000": Scenario((OURS,), 60_000, 1_000, 256, handler_time=0.02),
    "latency": Scenario((OURS, RAW), 200, 1, 128),
    "renewal": Scenario((OURS,), 1_000, 100, 1_000, handler_time=2 * LOCK),
}


class Bench:
    """The scenarios on one running broker."""

    def __init__(self, broker: RunningBroker, records: int | None) -> None:
        self._broker = broker
        self._records = records
        self._context = multiprocessing.get_context("spawn")
        self._numbers = itertools.count()
        self._filled: dict[int, str] = {}

    def measure(self, name: str, client: str) -> Measured:
        """One client's turn. Raises MeasurementError."""
        scenario = SCENARIOS[name]
        total = self._records or scenario.records
        total = max(1, total // scenario.fractions.get(client, 1))
        group = f"{topic_name(name)}-{next(self._numbers)}"
        streams = name == "latency"
        options = {"share.auto.offset.reset": "latest" if streams else "earliest"}
        if name == "renewal":
            options["share.record.lock.duration.ms"] = str(int(LOCK * 1000))
        with ExitStack() as stack:
            topic = group
            if streams:
                self._broker.create_topic(topic, PARTITIONS)
            else:
                topic = self._topic(scenario)
            asyncio.run(self._set_options(group, options))
            task = Task(
                self._broker.bootstrap_servers,
                topic,
                group,
                total,
                scenario.at_once,
                scenario.acquire,
                scenario.handler_time,
            )
            if streams:
                where = (task.bootstrap, topic, PARTITIONS, RATE, SIZE)
                stack.enter_context(sending_process(self._context, stream_stamped, *where))
            member = (TIMED if streams else CLIENTS)[client]
            _, pipe = stack.enter_context(client_process(self._context, run_client, member, task))
            measured = cast("Measured", received([pipe], client, Measured, DEADLINE))
        if not streams and not scenario.fractions.get(client) and client == OURS:
            left = asyncio.run(self._lag(group))
            written = self._written(scenario)
            if left != written - measured.records:
                raise MeasurementError(
                    f"{client} handled {measured.records:,} of {written:,} records, and the"
                    f" group's lag is {left:,}"
                )
        return measured

    def _written(self, scenario: Scenario) -> int:
        return self._records or max(
            other.records for other in SCENARIOS.values() if other.batch == scenario.batch
        )

    def _topic(self, scenario: Scenario) -> str:
        """A topic with batches of this size, which is filled once."""
        batch = scenario.batch
        if batch not in self._filled:
            topic = self._filled[batch] = topic_name(f"batches-of-{batch}")
            self._broker.create_topic(topic, PARTITIONS)
            count = self._written(scenario)
            bootstrap = self._broker.bootstrap_servers
            asyncio.run(fill_batches(bootstrap, topic, PARTITIONS, count, SIZE, batch))
        return self._filled[batch]

    def _groups(self) -> GroupsClient:
        return GroupsClient(ConsumerConfig(bootstrap_servers=self._broker.bootstrap_servers))

    async def _set_options(self, group: str, options: dict[str, str]) -> None:
        async with self._groups() as groups:
            await set_group_options(groups, group, options)

    async def _lag(self, group: str) -> int:
        async with self._groups() as groups:
            node = await groups.coordinator(group)
            offsets = await share_group_offsets(groups, node, group)
        return sum(lag for _, lag in offsets.values())


class Report:
    """All measurements of one scenario."""

    def __init__(self, name: str, clients: Sequence[str]) -> None:
        self.name = name
        self.measured: dict[str, list[Measured]] = {client: [] for client in clients}
        # Clients that did not do what they should, and why.
        self.failed: dict[str, str] = {}

    def text(self) -> str:
        """A table in Markdown; ratios are of ours in the same round."""
        return table(
            [
                f"{self.name}: median (lowest to highest)",
                *("records/s", "ours ÷ this", "records per second of CPU", "first record, s"),
                *("bytes a record", "requests a record", "again", "locks lost"),
                *("produce → handler p50, ms", "acknowledgement p50, ms"),
            ],
            [[client, *self._cells(every)] for client, every in self.measured.items()],
        )

    def _cells(self, every: list[Measured]) -> list[str]:
        ours = next(iter(self.measured.values()))
        pairs = [(o, m) for o, m in zip(ours, every, strict=False) if m.rate]
        delays = [[m.delays, m.acknowledged] for m in every if m.delays]
        return [
            spread([m.rate for m in every]),
            spread([o.rate / m.rate for o, m in pairs], 2),
            spread([m.records / m.cpu for m in every if m.cpu]),
            spread([m.first for m in every], 2),
            spread([m.received / m.records for m in every]),
            spread([m.requests / m.records for m in every], 4),
            f"{sum(m.again for m in every)}",
            f"{sum(m.lost for m in every)}",
            *(
                spread([1e3 * statistics.median(both[kind]) for both in delays], 2, "")
                for kind in (0, 1)
            ),
        ]

    def for_machines(self) -> dict[str, object]:
        """The same as JSON has it."""
        return {
            client: [
                {
                    **{k: v for k, v in measured._asdict().items() if k not in _TIMES},
                    "rate": measured.rate,
                    "cpu_rate": measured.records / measured.cpu if measured.cpu else 0.0,
                    "bytes_a_record": measured.received / measured.records,
                    "requests_a_record": measured.requests / measured.records,
                    "delay_p50": _median(measured.delays),
                    "acknowledged_p50": _median(measured.acknowledged),
                }
                for measured in every
            ]
            for client, every in self.measured.items()
        }


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def main() -> int:
    """Measure and print."""
    options = _options()
    reports: list[Report] = []
    with measured_broker() as broker:
        bench = Bench(broker, options.records)
        for name in options.scenario or SCENARIOS:
            report = Report(name, options.chosen(SCENARIOS[name].clients, OURS))
            reports.append(report)
            _measure(bench, report, options)
    return tell(
        {report.name: report.for_machines() for report in reports},
        {report.name: report.failed for report in reports if report.failed},
        (report.text() for report in reports),
        f"records of {SIZE} bytes, {PARTITIONS} partitions, {options.rounds} rounds",
        as_json=options.json,
    )


def _measure(bench: Bench, report: Report, options: _Options) -> None:
    clients = list(report.measured)
    for turn in range(1 if options.cold else 0, options.rounds + 1):
        # Each begins a round in its turn. All warm the broker up before the first one: its JVM
        # compiles for several turns.
        first = turn % len(clients)
        for client in clients[first:] + clients[:first]:
            try:
                measured = bench.measure(report.name, client)
            except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                report.failed[client] = last_line(error)
                sys.stderr.write(f"{report.name}, {client}: {error}\n")
                continue
            sys.stderr.write(
                f"{report.name}, round {turn or 'to warm up'}, {client}: {measured.rate:,.0f}/s,"
                f" first record after {measured.first:.2f} s\n"
            )
            if turn:
                report.measured[client].append(measured)


class _Options(Options):
    scenario: list[str] | None
    records: int | None


def _options() -> _Options:
    parser = options_parser("Share groups: rates, delays, and what they cost.", 2)
    parser.add_argument("--scenario", nargs="+", choices=list(SCENARIOS), help="all by default")
    parser.add_argument("--records", type=int, help="of each scenario, instead of its own number")
    return parser.parse_args(namespace=_Options())


if __name__ == "__main__":
    sys.exit(main())
