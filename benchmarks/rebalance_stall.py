"""How long kept partitions stand still while a member gives others up.

    python -m benchmarks.rebalance_stall [--json] [--only NAME ...] [--overlap]

One member reads all partitions of a topic, into each of which records flow steadily. In each a
record is in work. Then a second member joins. Asked to give some partitions up, the first needs
0 s, or 2 s, until what is in work of them is done; then it commits and gives them up. Measured is
the longest gap between deliveries on the partitions that it keeps, less the longest gap there was
before; and the time from the second member's start to its first record. With ``--overlap`` a third
member joins while the first still finishes what is in work for the second.

Every client does so by what its documentation tells (``stall_clients.py``), on one broker.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self, cast

from benchmarks.clients.stall_clients import CLIENTS, Group
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
from benchmarks.workload.client_process import sending_process
from benchmarks.workload.load import stream
from benchmarks.workload.stall_member import Pipe, Seen, run_member

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from multiprocessing.context import SpawnContext

    from asyncrevoke.broker.running import RunningBroker

PARTITIONS = 6
DEADLINE = 90.0
BEFORE = 3.0  # seconds of steady reading, to compare with
AFTER = 2.0  # seconds of reading after the newcomer's first record


@dataclass(frozen=True)
class Measured:
    """One measurement, in seconds."""

    client: str
    drain: float
    gap: float  # the longest on kept partitions, from the newcomer's start
    gap_before: float  # the longest on the same ones before that
    first_record: float  # from the newcomer's start to its first record
    kept: int
    moved: int

    @property
    def stall(self) -> float:
        """How much longer the rebalance made the longest gap."""
        return max(0.0, self.gap - self.gap_before)


class Member:
    """A group member in a process of its own; a context manager that ends it."""

    def __init__(self, context: SpawnContext, client: str, group: Group, drain: float) -> None:
        self.reading: dict[int, float] = {}
        ours, theirs = context.Pipe()
        self._pipe: Pipe = ours
        self._process = context.Process(
            target=run_member, args=(client, group, drain, theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.join(1)
        self._process.kill()
        self._process.join()

    def wait_reading(self, partitions: int) -> None:
        """Until a record of so many partitions has been delivered."""
        while len(self.reading) < partitions:
            self._expect("reading")

    def hold(self) -> None:
        """Let a record of each partition be in work; returns when they are."""
        self._pipe.send("hold")
        self._expect("held")

    def stop(self) -> Seen:
        """Let it leave the group."""
        self._pipe.send("stop")
        seen = self._expect("seen")
        if not isinstance(seen, Seen):
            raise MeasurementError(f"the member sent {seen!r}")
        return seen

    def _expect(self, wanted: str) -> object:
        deadline = time.monotonic() + DEADLINE
        while self._pipe.poll(max(0.0, deadline - time.monotonic())):
            try:
                kind, value = cast("tuple[str, object]", self._pipe.recv())
            except EOFError:
                raise MeasurementError(f"a member died before {wanted!r}") from None
            if kind == "failed":
                raise MeasurementError(str(value))
            if isinstance(value, int):
                self.reading[value] = time.monotonic()
            if kind == wanted:
                return value
        raise MeasurementError(f"no {wanted!r} within {DEADLINE:.0f} s")


def measure(
    broker: RunningBroker, client: str, drain: float, rate: float, name: str, *, overlap: bool
) -> Measured:
    """Let a second member join a first one that has ``drain`` seconds of work left; with
    ``overlap`` a third one when half of that has passed."""
    context = multiprocessing.get_context("spawn")
    group = Group(broker.bootstrap_servers, name, name)
    broker.create_topic(name, PARTITIONS)
    with contextlib.ExitStack() as stack:
        stack.enter_context(streaming(context, group, rate))
        first = stack.enter_context(Member(context, client, group, drain))
        first.wait_reading(PARTITIONS)
        time.sleep(BEFORE)
        first.hold()
        newcomers = [stack.enter_context(Member(context, client, group, 0.0))]
        if overlap:
            time.sleep(drain / 2)
            newcomers.append(stack.enter_context(Member(context, client, group, 0.0)))
        for newcomer in newcomers:
            # What is on its way until then must not be taken for kept.
            newcomer.wait_reading(PARTITIONS // (1 + len(newcomers)))
        time.sleep(AFTER)
        until = time.monotonic()
        seen = first.stop()
        theirs = [newcomer.stop() for newcomer in newcomers]
    began_at = [(p, times[0]) for their in theirs for p, times in their.delivered.items()]
    moved = {partition for partition, began in began_at if began < until}
    kept = sorted(seen.delivered.keys() - moved)
    if not kept or not moved:
        raise MeasurementError(f"{len(kept)} partitions were kept and {len(moved)} moved")
    start = theirs[0].began
    return Measured(
        client=client,
        drain=drain,
        gap=max(longest_gap(seen.delivered[p], start, until) for p in kept),
        gap_before=max(longest_gap(seen.delivered[p], start - BEFORE, start) for p in kept),
        first_record=min(times[0] for times in theirs[0].delivered.values()) - start,
        kept=len(kept),
        moved=len(moved),
    )


def longest_gap(times: Sequence[float], start: float, end: float) -> float:
    """The longest time without delivery between ``start`` and ``end``, both counted as one."""
    within = [start, *(when for when in times if start < when < end), end]
    return max(later - earlier for earlier, later in itertools.pairwise(within))


def main() -> int:
    """Measure and print."""
    options = _options()
    clients = options.chosen(CLIENTS)
    results: list[Measured] = []
    failures: dict[str, str] = {}
    say = sys.stderr.write
    with measured_broker() as broker:
        runs = [
            (number, client, drain)
            for number in range(options.rounds)
            for client in clients
            for drain in options.drain
        ]
        for number, (turn, client, drain) in enumerate(runs):
            name = f"{client}, drain {drain:g} s"
            # What has worked is tried again.
            if name in failures and (client, drain) not in {(r.client, r.drain) for r in results}:
                continue
            say(f"[{number + 1}/{len(runs)}] round {turn + 1}, {client}, drain {drain:g} s: ")
            try:
                measured = measure(
                    broker,
                    client,
                    drain,
                    options.rate,
                    topic_name(f"stall-{number}"),
                    overlap=options.overlap,
                )
            except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                say(f"failed: {error}\n")
                failures[name] = last_line(error)
            else:
                say(f"{measured.stall:.3f} s\n")
                results.append(measured)
    return tell(
        {"measured": [asdict(result) | {"stall": result.stall} for result in results]},
        failures,
        [_report(clients, options.drain, results)],
        "",
        as_json=options.json,
    )


def _report(clients: list[str], drains: list[float], results: list[Measured]) -> str:
    rows: list[list[str]] = []
    for client in clients:
        row = [client]
        for drain in drains:
            mine = [r for r in results if r.client == client and r.drain == drain]
            row += [
                spread([r.stall for r in mine]),
                spread([r.gap_before for r in mine]),
                spread([r.first_record for r in mine]),
            ]
        rows.append(row)
    header = ["median (lowest to highest), s"]
    for drain in drains:
        header += [f"stall, drain {drain:g} s", "gap before", "newcomer's first record"]
    return table(header, rows)


def streaming(context: SpawnContext, group: Group, rate: float) -> AbstractContextManager[None]:
    """Inside, records flow into the group's topic."""
    return sending_process(context, stream, group.bootstrap, group.topic, PARTITIONS, rate)


class _Options(Options):
    drain: list[float]
    overlap: bool
    rate: float


def _options() -> _Options:
    parser = options_parser(
        "How long kept partitions stand still while a member gives others up.",
        clients=CLIENTS,
        warms_up=False,
    )
    parser.add_argument("--drain", nargs="+", type=float, default=[0.0, 2.0], metavar="SECONDS")
    parser.add_argument("--overlap", action="store_true", help="two newcomers, one after another")
    parser.add_argument("--rate", type=float, default=200.0, help="records/s of each partition")
    return parser.parse_args(namespace=_Options())


if __name__ == "__main__":
    sys.exit(main())
