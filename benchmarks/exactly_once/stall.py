"""How long results of kept partitions stand still while others of the member are revoked.

    python -m benchmarks.exactly_once.stall [--rounds R] [--only NAME ...] [--json]

One member publishes a result of each record of a topic with six partitions, exactly once, into each
of which records flow steadily. Then a second member joins. What the first has in work of the
partitions that it gives up takes 2 s more (``--drain``). Measured on the partitions that it keeps:
the longest gap between two handler calls, less the longest one before; and the longest gap between
two visible results, for a reader with ``read_committed``.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from benchmarks.clients.stall_clients import Group
from benchmarks.exactly_once.stall_members import CLIENTS, StallTask, run_member
from benchmarks.exactly_once.visible import collect
from benchmarks.rebalance_stall import (
    AFTER,
    BEFORE,
    DEADLINE,
    PARTITIONS,
    longest_gap,
    streaming,
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
from benchmarks.workload.client_process import client_process, received

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from asyncrevoke.broker.running import RunningBroker

# Times by member and partition.
Times: TypeAlias = "dict[tuple[str, int], list[float]]"

FIRST, SECOND = "first", "second"


@dataclass(frozen=True)
class Measured:
    """One measurement on kept partitions, in seconds; ``before``: in the seconds before."""

    client: str
    handler_gap: float
    handler_gap_before: float
    visible_gap: float
    visible_gap_before: float
    first_result: float  # from the newcomer's start to its first visible result
    kept: int
    moved: int

    @property
    def stall(self) -> float:
        """How much longer the rebalance made the longest gap between handler calls."""
        return max(0.0, self.handler_gap - self.handler_gap_before)


def measure(
    broker: RunningBroker, client: str, interval: float, drain: float, rate: float, name: str
) -> Measured:
    """Let a second member join a first one that has ``drain`` seconds of work left."""
    context = multiprocessing.get_context("spawn")
    bootstrap, results = broker.bootstrap_servers, f"{name}-results"
    for topic in (name, results):
        broker.create_topic(topic, PARTITIONS)
    task = StallTask(bootstrap, name, results, name, FIRST, interval, drain)
    with contextlib.ExitStack() as stack:
        stack.enter_context(streaming(context, Group(bootstrap, name, name), rate))
        end = context.Event()
        collecting = client_process(context, collect, bootstrap, results, PARTITIONS, end)
        _, seen = stack.enter_context(collecting)
        _, first = stack.enter_context(client_process(context, run_member, client, task))
        failed = [first]
        _wait_reading(seen, failed, FIRST, PARTITIONS)
        time.sleep(BEFORE)
        start = time.monotonic()
        task = task._replace(member=SECOND, drain=0.0)
        _, second = stack.enter_context(client_process(context, run_member, client, task))
        failed.append(second)
        _wait_reading(seen, failed, SECOND, PARTITIONS // 2)
        time.sleep(AFTER)
        until = time.monotonic()
        end.set()
        handled, visible = cast(
            "tuple[Times, Times]", received([seen, *failed], client, tuple, DEADLINE)
        )
    return judged(client, handled, visible, start, until)


def judged(client: str, handled: Times, visible: Times, start: float, until: float) -> Measured:
    """The gaps of kept partitions between these two times."""
    moved = {partition for member, partition in handled if member == SECOND}
    kept = sorted({partition for member, partition in handled if member == FIRST} - moved)
    if not kept or not moved:
        raise MeasurementError(f"{len(kept)} partitions were kept and {len(moved)} moved")

    def longest(times: Times, begin: float, end: float) -> float:
        return max(longest_gap(times[FIRST, partition], begin, end) for partition in kept)

    # What is handled last is not visible yet.
    handled_until = min(times[-1] for (_, partition), times in handled.items() if partition in kept)
    return Measured(
        client,
        longest(handled, start, handled_until),
        longest(handled, start - BEFORE, start),
        longest(visible, start, until),
        longest(visible, start - BEFORE, start),
        min(visible[SECOND, partition][0] for partition in moved) - start,
        len(kept),
        len(moved),
    )


def _wait_reading(seen: Connection, failed: list[Connection], member: str, partitions: int) -> None:
    """Until results of so many partitions of a member are visible."""
    reading: dict[str, set[int]] = defaultdict(set)
    while len(reading[member]) < partitions:
        who, partition = cast("list[object]", received([seen, *failed], member, list, DEADLINE))
        reading[cast("str", who)].add(cast("int", partition))


def main() -> int:
    """Measure and print."""
    options = _options()
    clients = options.chosen(CLIENTS)
    results: list[Measured] = []
    failures: dict[str, str] = {}
    say = sys.stderr.write
    with measured_broker() as broker:
        for number, (turn, client) in enumerate(itertools.product(range(options.rounds), clients)):
            say(f"round {turn + 1}, {client}: ")
            try:
                measured = measure(
                    broker,
                    client,
                    options.interval,
                    options.drain,
                    options.rate,
                    topic_name(f"stall-{number}"),
                )
            except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                say(f"failed: {error}\n")
                failures[client] = last_line(error)
            else:
                say(f"{measured.stall:.3f} s, visible {measured.visible_gap:.3f} s\n")
                results.append(measured)
    rows = [asdict(result) | {"stall": result.stall} for result in results]
    return tell(
        {"interval": options.interval, "drain": options.drain, "measured": rows},
        failures,
        [_report(clients, results)],
        "",
        as_json=options.json,
    )


def _report(clients: list[str], results: list[Measured]) -> str:
    header = ["median (lowest to highest), s", "stall of handlers", "gap of visible results"]
    header += ["the same before", "newcomer's first result"]
    rows: list[list[str]] = []
    for client in clients:
        mine = [result for result in results if result.client == client]
        columns = [
            [result.stall for result in mine],
            [result.visible_gap for result in mine],
            [result.visible_gap_before for result in mine],
            [result.first_result for result in mine],
        ]
        rows.append([client, *(spread(column, 3) for column in columns)])
    return table(header, rows)


class _Options(Options):
    drain: float
    interval: float
    rate: float


def _options() -> _Options:
    parser = options_parser(
        "How long results of kept partitions stand still while others are revoked.",
        clients=CLIENTS,
        warms_up=False,
    )
    parser.add_argument("--drain", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--interval", type=float, default=0.1, help="between transactions")
    parser.add_argument("--rate", type=float, default=200.0, help="records/s of each partition")
    return parser.parse_args(namespace=_Options())


if __name__ == "__main__":
    sys.exit(main())
