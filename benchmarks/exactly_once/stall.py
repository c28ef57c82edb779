"""How long results of kept partitions stand still while others of the member are revoked.

    python -m benchmarks.exactly_once.stall [--rounds R] [--only NAME ...] [--json]

One member publishes a result of each record of a topic with six partitions, exactly once, into each
of which records flow steadily. Then a second member joins. What the first has in work of the
partitions that it gives up takes 2 s more (``--drain``). Measured on the partitions that it keeps:
the longest gap between two handler calls, less the longest one before; and the longest gap between
two visible results, for a reader with ``read_committed``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, TypeAlias, cast

from asyncrevoke.broker.installation.jars import KAFKA_VERSION
from benchmarks.clients.stall_clients import Group
from benchmarks.exactly_once.stall_members import CLIENTS, StallTask, run_member
from benchmarks.exactly_once.visible import collect
from benchmarks.rebalance_stall import (
    AFTER,
    BEFORE,
    DEADLINE,
    PARTITIONS,
    MeasurementError,
    last_line,
    longest_gap,
    streaming,
)
from benchmarks.report.surroundings import surroundings, table
from benchmarks.workload.broker import measured_broker, topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnContext

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
        seen = stack.enter_context(_process(context, collect, bootstrap, results, PARTITIONS, end))
        failed = [stack.enter_context(_process(context, run_member, client, task))]
        _wait_reading(seen, failed, FIRST, PARTITIONS)
        time.sleep(BEFORE)
        start = time.monotonic()
        task = task._replace(member=SECOND, drain=0.0)
        failed.append(stack.enter_context(_process(context, run_member, client, task)))
        _wait_reading(seen, failed, SECOND, PARTITIONS // 2)
        time.sleep(AFTER)
        until = time.monotonic()
        end.set()
        handled, visible = cast("tuple[Times, Times]", _received(seen, failed, tuple))
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
        who, partition = cast("list[object]", _received(seen, failed, list))
        reading[cast("str", who)].add(cast("int", partition))


def _received(seen: Connection, failed: list[Connection], wanted: type[object]) -> object:
    ready = wait([seen, *failed], DEADLINE)
    if not ready:
        raise MeasurementError(f"nothing within {DEADLINE:.0f} s")
    try:
        received: object = cast("Connection", ready[0]).recv()
    except EOFError:
        raise MeasurementError("a process died; see above") from None
    if not isinstance(received, wanted):
        raise MeasurementError(str(received))
    return received


@contextlib.contextmanager
def _process(
    context: SpawnContext, target: Callable[..., None], *arguments: object
) -> Generator[Connection]:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        # On Windows, it has another type.
        yield cast("Connection", cast("object", ours))
    finally:
        process.kill()
        process.join()


def main() -> int:
    """Measure and print."""
    options = _options()
    clients = [c for c in CLIENTS if not options.only or any(o in c for o in options.only)]
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
    facts = surroundings(os.environ.get("KAFKA_HOME", KAFKA_VERSION))
    if options.json:
        rows = [asdict(result) | {"stall": result.stall} for result in results]
        found = {"interval": options.interval, "drain": options.drain, "measured": rows}
        print(json.dumps({"surroundings": facts, **found, "failed": failures}, indent=2))
    else:
        print(_report(clients, results))
        print()
        print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    return 1 if failures else 0


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
        rows.append([client, *map(_spread, columns)])
    return table(header, rows)


def _spread(values: list[float]) -> str:
    if not values:
        return "failed"
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="How long results of kept partitions stand still while others are revoked."
    )
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(CLIENTS)}")
    parser.add_argument("--drain", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--interval", type=float, default=0.1, help="between transactions")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=200.0, help="records/s of each partition")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
