"""All benchmarks beside all other clients, on one broker: tables and pictures of one run.

    python -m benchmarks [--quick] [--only STEP ...] [--folder docs/benchmarks] [--render]

Each step is a command of its own, in which the clients take turns. What it measures, in full, goes
into ``results.json``; ``results.md`` and the pictures are drawn from that, and ``--render`` draws
them anew. With ``--only`` the other steps keep what they found before. A client that is not
installed, or fails, is left out with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

from asyncrevoke.broker.choice import VARIABLE
from benchmarks.broker import measured_broker
from benchmarks.report import write_report

Results: TypeAlias = "dict[str, dict[str, object]]"

FOLDER = Path("docs/benchmarks")
DEADLINE = 3600.0  # seconds of one step


class Step(NamedTuple):
    """A module, and what it is told for a whole run and for a quick one."""

    module: str
    full: str
    quick: str


STEPS = {
    "raw": Step("raw_iteration", "--rounds 5", "--cold --rounds 1 --records 300000"),
    "large": Step(
        "raw_iteration",
        "--rounds 3 --size 1000000 --records 500",
        "--cold --rounds 1 --size 1000000 --records 60",
    ),
    "handlers": Step(
        "handlers", "--rounds 3 --seconds 120", "--cold --rounds 1 --records 5000 --seconds 12"
    ),
    "stall": Step("rebalance_stall", "--rounds 3", "--rounds 1 --drain 1"),
    "join": Step("join_latency", "--rounds 3 --joins 3", "--rounds 1 --joins 1"),
    "many": Step(
        "many_partitions",
        "--rounds 3",
        "--cold --rounds 1 --partitions 200 --records 500000 --idle 3",
    ),
}


def measure(step: Step, arguments: str, broker: str) -> dict[str, object] | None:
    """Run one step, whose clients' failures are in what it found; None if it found nothing."""
    command = [sys.executable, "-m", f"benchmarks.{step.module}", "--json", *arguments.split()]
    started = time.monotonic()
    result = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE,
        check=False,
        env=os.environ | {VARIABLE: broker},
    )
    if not result.stdout.strip():
        sys.stderr.write(f"{' '.join(command[1:])} has found nothing; see above\n")
        return None
    found = cast("dict[str, object]", json.loads(result.stdout))
    found["command"] = f"python -m benchmarks.{step.module} {arguments}"
    found["minutes"] = (time.monotonic() - started) / 60
    return found


def main() -> int:
    """Measure, and write what was found."""
    options = _options()
    file = options.folder / "results.json"
    results: Results = {}
    if options.render or (options.only and file.exists()):
        results = cast("Results", json.loads(file.read_text(encoding="utf-8")))
    failed = False
    if not options.render:
        with measured_broker() as broker:
            for name, step in STEPS.items():
                if options.only and name not in options.only:
                    continue
                sys.stderr.write(f"--- {name}\n")
                arguments = step.quick if options.quick else step.full
                found = measure(step, arguments, broker.bootstrap_servers)
                if found is None:
                    failed = True
                    continue
                results[name] = found
                # What there is so far can be looked at.
                options.folder.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_report({name: results[name] for name in STEPS if name in results}, options.folder)
    print(f"see {options.folder / 'results.md'}")
    return 1 if failed else 0


class _Options(argparse.Namespace):
    quick: bool
    render: bool
    only: list[str] | None
    folder: Path


def _options() -> _Options:
    parser = argparse.ArgumentParser(
        description="All benchmarks beside all other clients, on one broker."
    )
    parser.add_argument("--quick", action="store_true", help="small, to see whether all of it runs")
    parser.add_argument("--only", nargs="+", choices=list(STEPS), metavar="STEP")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the report goes")
    parser.add_argument("--render", action="store_true", help="from the results of the last run")
    return parser.parse_args(namespace=_Options())


if __name__ == "__main__":
    sys.exit(main())
