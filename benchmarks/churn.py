"""The demo's churn many times over, EAGER and COOPERATIVE in turn: every run must be clean.

    python -m benchmarks.churn [--runs 20] [--seconds 30]

Each run is `asyncrevoke demo --json` in a process of its own, with a broker of its own; its judge
reads what the handlers wrote down and what the group committed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypedDict, cast

from asyncrevoke.broker.jars import KAFKA_VERSION
from benchmarks.surroundings import surroundings

COMMAND_LINE = "import sys; from asyncrevoke.cli import main; sys.exit(main())"
PROTOCOLS = ("cooperative", "eager")
COLUMNS = ("handled", "lost", "repeated", "order_violations", "longest_stall")
GRACE = 240.0


class Report(TypedDict):
    """What the demo prints with ``--json``, as far as it is used here."""

    ok: bool
    faults: list[str]
    asyncrevoke: dict[str, float | None]


def churn(protocol: str, seconds: float, folder: Path) -> Report | None:
    """One run; None if the demo did not come to a verdict, after printing why."""
    command = [sys.executable, "-c", COMMAND_LINE, "demo", "--json", "--seconds", str(seconds)]
    command += ["--protocol", protocol, "--picture", str(folder / "churn.svg")]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds + GRACE, check=False
    )
    if not result.stdout.strip():
        print(result.stderr, file=sys.stderr)
        return None
    return cast("Report", json.loads(result.stdout))


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description="The demo's churn many times over.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run")
    return parser.parse_args()


def main() -> int:
    """Exit code 1 unless every run was clean."""
    args = arguments()
    for name, value in surroundings(KAFKA_VERSION).items():
        print(f"{name}: {value}")
    print(f"{'':4}{'protocol':13}" + "".join(f"{name:>18}" for name in COLUMNS))
    clean = 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for run in range(args.runs):
            protocol = PROTOCOLS[run % len(PROTOCOLS)]
            report = churn(protocol, args.seconds, Path(folder))
            if report is None:
                print(f"{run + 1:<4}{protocol:13}  no verdict", flush=True)
                continue
            cells = "".join(f"{report['asyncrevoke'][name]!s:>18}" for name in COLUMNS)
            why = "  " + "; ".join(report["faults"]) if report["faults"] else ""
            print(f"{run + 1:<4}{protocol:13}{cells}{why}", flush=True)
            clean += report["ok"]
    print(f"{clean} of {args.runs} clean, {time.monotonic() - started:.0f} s")
    return 0 if clean == args.runs else 1


if __name__ == "__main__":
    sys.exit(main())
