"""How long a member that joins a running group waits for its first record.

    python -m benchmarks.groups.join_latency [--json] [--only NAME ...]

One member reads all partitions of a topic, into each of which records flow steadily, and has
nothing left to do when it is asked for some of them. Then a second member joins; measured is the
time from its start, its client being loaded, to its first record. It leaves, and after a while,
another one each time, the next one joins. The clients take turns (``stall_clients.py``).
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.clients.stall_clients import CLIENTS, Group
from benchmarks.rebalance_stall import (
    PARTITIONS,
    Member,
    streaming,
)
from benchmarks.report.printing import Options, last_line, options_parser, tell
from benchmarks.report.surroundings import table
from benchmarks.workload.broker import measured_broker, topic_name

if TYPE_CHECKING:
    from multiprocessing.context import SpawnContext

STABLE = 6.0  # seconds after a rebalance until members send heartbeats at their usual interval
SPREAD = 3.0  # up to so many more, for heartbeats beat


class Running:
    """A group with one member that reads everything."""

    def __init__(self, stack: ExitStack, context: SpawnContext, client: str, group: Group) -> None:
        self._context = context
        self._client = client
        self._group = group
        self._first = stack.enter_context(Member(context, client, group, 0.0))

    def begin(self) -> None:
        """Wait until it reads all partitions."""
        self._first.wait_reading(PARTITIONS)

    def join(self) -> float:
        """A second member joins and leaves: seconds from its start to its first record."""
        with Member(self._context, self._client, self._group, 0.0) as newcomer:
            newcomer.wait_reading(1)
            seen = newcomer.stop()
        return min(times[0] for times in seen.delivered.values()) - seen.began


def main() -> int:
    """Measure and print."""
    options = _options()
    clients = options.chosen(CLIENTS)
    seconds: dict[str, list[float]] = {client: [] for client in clients}
    failures: dict[str, str] = {}
    context = multiprocessing.get_context("spawn")
    draw = random.Random(options.seed)
    with measured_broker() as broker:
        for turn in range(options.rounds):
            for number, client in enumerate(clients):
                if client in failures:
                    continue
                name = topic_name(f"join-{turn}-{number}")
                broker.create_topic(name, PARTITIONS)
                group = Group(broker.bootstrap_servers, name, name)
                sys.stderr.write(f"round {turn + 1} of {options.rounds}, {client}:")
                with ExitStack() as stack:
                    stack.enter_context(streaming(context, group, options.rate))
                    try:
                        running = Running(stack, context, client, group)
                        running.begin()
                        for _ in range(options.joins):
                            time.sleep(STABLE + SPREAD * draw.random())
                            seconds[client].append(running.join())
                            sys.stderr.write(f" {seconds[client][-1]:.2f} s")
                    except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                        failures[client] = last_line(error)
                sys.stderr.write("\n")
    header = ["newcomer's first record, s", "median", "lowest", "highest", "joins"]
    return tell(
        {"measured": seconds},
        failures,
        [table(header, [_row(client, seconds[client]) for client in clients])],
        "",
        as_json=options.json,
    )


def _row(client: str, values: list[float]) -> list[str]:
    if not values:
        return [client, "failed", "", "", "0"]
    told = (statistics.median(values), min(values), max(values))
    return [client, *(f"{value:.2f}" for value in told), str(len(values))]


class _Options(Options):
    joins: int
    rate: float
    seed: int


def _options() -> _Options:
    parser = options_parser(
        "How long a member waits for its first record.", clients=CLIENTS, warms_up=False
    )
    parser.add_argument("--joins", type=int, default=3, help="in each round, by each client")
    parser.add_argument("--rate", type=float, default=50.0, help="records/s of each partition")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(namespace=_Options())


if __name__ == "__main__":
    sys.exit(main())
