"""What a group pays when its members are scaled from 2 to 8 and back, and when all are replaced.

    python -m benchmarks.costs.scaling [--runs 3] [--protocol cooperative ...] [--json]

Members are processes with handlers that take 50 ms on average and sometimes 3 s, as in
`asyncrevoke demo`; records are produced at a steady rate all the time. Schedules:

- ``scale``: 2 members, then 8 at once, then 2 again: an autoscaler's largest steps. The members
  that leave get SIGTERM at the same time, the one that joined first among them.
- ``surge-1``: 4 members are replaced one after the other, the new one first (``maxSurge: 1``).
- ``surge-all``: 4 new members join, then the 4 old ones leave (``maxSurge: 100%``).

Printed for each run: records lost, repeated and out of order, the longest stall of a kept
partition, and how often partitions moved after the first members had their shares, from what the
handlers wrote down (``asyncrevoke.cli.demo.group_result``). Beside the stall: for how much of it
the member, or a thread of the broker that serves clients, waited for a CPU
(``benchmarks.workload.cpu_waits``), because members that start at once need more CPUs than there
are. Where hypothesis is installed, each of them takes a third of a second of CPU more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from asyncrevoke.broker.installation.jars import KAFKA_VERSION
from asyncrevoke.cli.demo.group import DemoGroup
from asyncrevoke.cli.demo.member.handler_log import Client, MemberConfig
from asyncrevoke.cli.demo.run import DemoRun
from asyncrevoke.cli.demo.workload import Action, ScheduleStep
from benchmarks.report.surroundings import surroundings, table
from benchmarks.workload.broker import measured_broker, topic_name
from benchmarks.workload.cpu_waits import CpuWaits, main_thread, request_threads
from benchmarks.workload.take_overs import take_overs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.cli.demo.group_result import GroupResult

PARTITIONS = 24
CONCURRENCY = 64
PAUSE = 8.0  # seconds between two steps of a schedule
PROTOCOLS = ("cooperative", "consumer")
Protocol = Literal["cooperative", "consumer"]


def scale(pause: float) -> list[ScheduleStep]:
    """2 members, 8, and 2 again."""
    names = [f"m{number}" for number in range(1, 9)]
    joins = [ScheduleStep(0, Action.JOIN, name) for name in names[:2]]
    joins += [ScheduleStep(pause, Action.JOIN, name) for name in names[2:]]
    return joins + [ScheduleStep(3 * pause, Action.STOP, name) for name in names[:6]]


def surge_one(pause: float) -> list[ScheduleStep]:
    """4 members are replaced one after the other; each new one joins before an old one leaves."""
    steps = [ScheduleStep(0, Action.JOIN, f"old{number}") for number in range(1, 5)]
    for number in range(1, 5):
        at = 2 * number * pause
        steps.append(ScheduleStep(at, Action.JOIN, f"new{number}"))
        steps.append(ScheduleStep(at + pause, Action.STOP, f"old{number}"))
    return steps


def surge_all(pause: float) -> list[ScheduleStep]:
    """4 new members join before the 4 old ones leave."""
    steps = [ScheduleStep(0, Action.JOIN, f"old{number}") for number in range(1, 5)]
    steps += [ScheduleStep(2 * pause, Action.JOIN, f"new{number}") for number in range(1, 5)]
    return steps + [ScheduleStep(4 * pause, Action.STOP, f"old{n}") for n in range(1, 5)]


SCHEDULES = {"scale": scale, "surge-1": surge_one, "surge-all": surge_all}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run; times are seconds. ``moved_again``: partitions that moved more than once.
    ``member_waited`` and ``broker_waited``: the part of the stall in which the member, or a thread
    of the broker, waited for a CPU, at most; None if that is not known."""

    schedule: str
    protocol: str
    handled: int
    lost: int
    repeated: int
    out_of_order: int
    kept_stall: float
    member_waited: float | None
    broker_waited: float | None
    hand_over: float
    moves: int
    moved_again: int

    @property
    def clean(self) -> bool:
        """Whether each record was handled once and in order."""
        return not (self.lost or self.repeated or self.out_of_order)


async def run(
    servers: str,
    topic: str,
    schedule: str,
    protocol: Protocol,
    folder: Path,
    *,
    rate: float,
    pause: float = PAUSE,
    broker: int | None = None,
) -> Measured:
    """One run of a schedule. Raises AsyncRevokeError if a member fails.

    ``broker`` is the id of the broker's process, if it runs on this machine.
    """
    template = MemberConfig(
        client=Client.ASYNCREVOKE,
        name="",
        bootstrap_servers=servers,
        topic=topic,
        group=topic,
        log="",
        protocol=protocol,
        concurrency=CONCURRENCY,
        session_timeout=10.0,
    )
    steps = SCHEDULES[schedule](pause)
    group = DemoGroup(template, folder, PARTITIONS)
    seconds = steps[-1].at + pause
    demo = DemoRun(servers, [group], steps, seconds=seconds, rate=rate, show=lambda _: None)
    serving = {account.parent.name: account for account in request_threads(broker or 0)}
    waits = CpuWaits(lambda: {n: main_thread(p) for n, p in group.processes.items()} | serving)
    with waits.noted():
        await demo.run()
    result = await demo.result(group, CONCURRENCY)
    changed = demo.begin + min(step.at for step in steps if step.at > 0)
    stall = result.stall
    times = (stall.begin, stall.begin + stall.seconds) if stall else (0.0, 0.0)
    waited = (
        waits.longest([stall.member] if stall else [], *times),
        waits.longest(serving, *times),
    )
    return measured(schedule, protocol, group, result, changed, waited)


def measured(
    schedule: str,
    protocol: str,
    group: DemoGroup,
    result: GroupResult,
    changed: float,
    waited: tuple[float | None, float | None],
) -> Measured:
    """What is reported of a run. Moves count from ``changed`` on, when the first members have
    their shares."""
    member_waited, broker_waited = waited
    moves = Counter(m.partition for m in take_overs(group.handled) if m.began >= changed)
    return Measured(
        schedule=schedule,
        protocol=protocol,
        handled=result.handled,
        lost=len(result.lost) + len(result.unfinished),
        repeated=len(result.repeated) + len(result.uncommitted),
        out_of_order=len(result.disorder),
        kept_stall=round(result.longest_stall, 3),
        member_waited=_rounded(member_waited),
        broker_waited=_rounded(broker_waited),
        hand_over=round(result.hand_over.seconds if result.hand_over else 0.0, 3),
        moves=moves.total(),
        moved_again=sum(count > 1 for count in moves.values()),
    )


def main() -> int:
    """Exit code 1 unless each run handled every record once and in order."""
    options = _options()
    results: list[Measured] = []
    with measured_broker() as broker:
        for number in range(options.runs):
            for schedule in options.schedule:
                for protocol in options.protocol:
                    topic = topic_name(f"scaling-{schedule}-{protocol}-{number}")
                    broker.create_topic(topic, PARTITIONS)
                    with tempfile.TemporaryDirectory() as folder:
                        results.append(
                            asyncio.run(
                                run(
                                    broker.bootstrap_servers,
                                    topic,
                                    schedule,
                                    cast("Protocol", protocol),
                                    Path(folder),
                                    rate=options.rate,
                                    broker=getattr(broker, "pid", None),
                                )
                            )
                        )
                    print(results[-1], file=sys.stderr, flush=True)
    facts = surroundings(os.environ.get("KAFKA_HOME", KAFKA_VERSION))
    if options.json:
        rows = [asdict(result) for result in results]
        print(json.dumps({"surroundings": facts, "measured": rows}, indent=2))
    else:
        print(_report(results))
        print()
        print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    return 0 if all(result.clean for result in results) else 1


def _report(results: Sequence[Measured]) -> str:
    header = ["schedule", "protocol", "records", "lost", "repeated", "out of order"]
    header += [
        "kept partition's stall, s",
        "of it the member waited for a CPU, s",
        "of it the broker waited for a CPU, s",
        "hand-over, s",
        "moves",
        "moved again",
    ]
    rows = [
        [
            *(result.schedule, result.protocol, f"{result.handled:,}", str(result.lost)),
            *(str(result.repeated), str(result.out_of_order), f"{result.kept_stall:.3f}"),
            *(
                *_seconds(result.member_waited, result.broker_waited),
                f"{result.hand_over:.1f}",
                str(result.moves),
                f"{result.moved_again} of {PARTITIONS}",
            ),
        ]
        for result in results
    ]
    return table(header, rows)


def _rounded(time: float | None) -> float | None:
    return None if time is None else round(time, 3)


def _seconds(*times: float | None) -> list[str]:
    return ["unknown" if time is None else f"{time:.3f}" for time in times]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Scaling a group, and replacing its members.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=400.0, help="records per second")
    parser.add_argument("--schedule", nargs="+", choices=SCHEDULES, default=list(SCHEDULES))
    parser.add_argument("--protocol", nargs="+", choices=PROTOCOLS, default=PROTOCOLS)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
