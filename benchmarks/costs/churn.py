"""The demo's churn many times over, by each protocol in turn: every run must be clean.

    python -m benchmarks.costs.churn [--runs 20] [--seconds 30] [--protocol cooperative ...]

Each run is `asyncrevoke demo --json` in a process of its own, with a broker of its own; its judge
reads what the handlers wrote down and what the group committed. Of all runs together: how long
after they had drained moved partitions began at their new members (``take_overs.py``).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypedDict, cast

from asyncrevoke.broker.installation.jars import KAFKA_VERSION
from asyncrevoke.cli.demo.member.handler_log import Abandoned, Ended, LogReader, Started
from benchmarks.report.surroundings import surroundings, table
from benchmarks.workload.take_overs import TakeOver, beyond_rounds, take_overs

COMMAND_LINE = "import sys; from asyncrevoke.cli import main; sys.exit(main())"
PROTOCOLS = ("cooperative", "eager", "consumer")
COLUMNS = ("handled", "lost", "repeated", "order_violations", "longest_stall")
GRACE = 240.0


class Report(TypedDict):
    """What the demo prints with ``--json``, as far as it is used here."""

    ok: bool
    faults: list[str]
    asyncrevoke: dict[str, float | None]


def churn(protocol: str, seconds: float, folder: Path) -> Report | None:
    """One run; None if the demo has no result, after printing why."""
    command = [sys.executable, "-c", COMMAND_LINE, "demo", "--json", "--seconds", str(seconds)]
    command += ["--protocol", protocol, "--picture", str(folder / "churn.svg")]
    command += ["--logs", str(folder)]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds + GRACE, check=False
    )
    if not result.stdout.strip():
        print(result.stderr, file=sys.stderr)
        return None
    return cast("Report", json.loads(result.stdout))


def moves(folder: Path) -> list[TakeOver]:
    """What the members of one run have taken over from each other, by what they wrote down."""
    events = [event for log in sorted(folder.glob("*.log")) for event in LogReader(log).read()]
    return take_overs(e for e in events if isinstance(e, (Started, Ended, Abandoned)))


def spread(values: list[float]) -> list[str]:
    """Cells for the median and the extremes."""
    if not values:
        return ["", "", ""]
    ordered = sorted(values)
    return [
        f"{statistics.median(ordered):.2f}",
        f"{ordered[int(len(ordered) * 0.9)]:.2f}",
        f"{ordered[-1]:.2f}",
    ]


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description="The demo's churn many times over.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run")
    parser.add_argument("--protocol", nargs="+", choices=PROTOCOLS, default=PROTOCOLS)
    return parser.parse_args()


def main() -> int:
    """Exit code 1 unless every run was clean."""
    args = arguments()
    for name, value in surroundings(KAFKA_VERSION).items():
        print(f"{name}: {value}")
    print(f"{'':4}{'protocol':13}" + "".join(f"{name:>18}" for name in COLUMNS))
    clean = 0
    started = time.monotonic()
    taken: dict[str, list[TakeOver]] = {protocol: [] for protocol in args.protocol}
    of_rounds: dict[str, list[float]] = {protocol: [] for protocol in args.protocol}
    for run in range(args.runs):
        protocol = args.protocol[run % len(args.protocol)]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            report = churn(protocol, args.seconds, folder)
            of_run = moves(folder)
        if report is None:
            print(f"{run + 1:<4}{protocol:13}  no result", flush=True)
            continue
        taken[protocol] += of_run
        of_rounds[protocol] += beyond_rounds(of_run)
        cells = "".join(f"{report['asyncrevoke'][name]!s:>18}" for name in COLUMNS)
        why = "  " + "; ".join(report["faults"]) if report["faults"] else ""
        print(f"{run + 1:<4}{protocol:13}{cells}{why}", flush=True)
        clean += report["ok"]
    header = ["moved partitions begin, s", "moves", "after their own drain, median", "90 %"]
    header += ["longest", "after their round's drain, median", "90 %", "longest"]
    rows = [
        [
            protocol,
            str(len(found)),
            *spread([m.seconds for m in found]),
            *spread(of_rounds[protocol]),
        ]
        for protocol, found in taken.items()
    ]
    print(table(header, rows))
    print(f"{clean} of {args.runs} clean, {time.monotonic() - started:.0f} s")
    return 0 if clean == args.runs else 1


if __name__ == "__main__":
    sys.exit(main())
