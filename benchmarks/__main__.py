"""All benchmarks beside all other clients, on one broker: tables and pictures of one run.

    python -m benchmarks [--quick] [--only STEP ...] [--minutes M] [--folder FOLDER] [--render]

Each step is a command of its own, in which the clients take turns. What it measures, in full, goes
into ``results.json`` of the folder (``docs/benchmarks``); ``results.md`` and the pictures are drawn
from that after each step, and ``--render`` draws them anew. With ``--only`` the other steps keep
what they found before. A client that is not installed, or fails, is left out with the reason, and
so is a step that fails, or for which the ``--minutes`` are not enough.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias, cast

from asyncrevoke.broker.choice import VARIABLE
from benchmarks.report.results import write_report
from benchmarks.workload.broker import measured_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Say: TypeAlias = Callable[[str], object]

Results: TypeAlias = "dict[str, dict[str, object]]"

FOLDER = Path("docs/benchmarks")


class Step(NamedTuple):
    """A module, and what it is told for a whole run and for a quick one.

    ``minutes`` is what the whole of it takes on two cores; one that takes thrice as long, and a
    few minutes more, is ended.
    """

    module: str
    full: str
    quick: str
    minutes: float

    @property
    def deadline(self) -> float:
        """Seconds after which it is ended."""
        return 60 * (3 * self.minutes + 3)


def _handlers(name: str, minutes: float, full: str = "", quick: str = "") -> Step:
    return Step(
        "handlers",
        f"--scenario {name} --rounds 3{full}",
        f"--scenario {name} --cold --rounds 1 --records 5000{quick}",
        minutes,
    )


def _share(scenarios: str, minutes: float, rounds: int = 2) -> Step:
    return Step(
        "share",
        f"--scenario {scenarios} --rounds {rounds}",
        f"--scenario {scenarios} --cold --rounds 1 --records 5000",
        minutes,
    )


STEPS = {
    "raw": Step("raw_iteration", "--rounds 5", "--cold --rounds 1 --records 300000", 4.5),
    "raw-1k": Step(
        "raw_iteration",
        "--rounds 3 --size 1000 --records 800000 --only asyncrevoke Java",
        "--cold --rounds 1 --size 1000 --records 60000 --only asyncrevoke Java",
        1.5,
    ),
    "large": Step(
        "raw_iteration",
        "--rounds 3 --size 1000000 --records 500",
        "--cold --rounds 1 --size 1000000 --records 60",
        1.0,
    ),
    "large-100k": Step(
        "raw_iteration",
        "--rounds 3 --size 100000 --records 8000 --only asyncrevoke tuned",
        "--cold --rounds 1 --size 100000 --records 600 --only asyncrevoke tuned",
        0.5,
    ),
    "large-10k": Step(
        "raw_iteration",
        "--rounds 3 --size 10000 --records 80000 --only asyncrevoke tuned",
        "--cold --rounds 1 --size 10000 --records 6000 --only asyncrevoke tuned",
        0.5,
    ),
    "noop": _handlers("noop", 5.0),
    "noop-zipf": _handlers("noop-zipf", 2.0),
    "noop-results": _handlers("noop-results", 1.3),
    "slow": _handlers("slow", 4.0),
    "zipf": _handlers("zipf", 3.5),
    "latency": _handlers("latency", 5.0),
    "stall": Step("rebalance_stall", "--rounds 3", "--rounds 1 --drain 1", 8.5),
    "join": Step("groups.join_latency", "--rounds 3 --joins 2", "--rounds 1 --joins 1", 7.5),
    "many": Step(
        "groups.many_partitions",
        "--rounds 3",
        "--cold --rounds 1 --partitions 200 --records 500000 --idle 3",
        4.5,
    ),
    "exactly-once": Step(
        "exactly_once",
        "--scenario noop slow --rounds 3",
        "--scenario noop slow --cold --rounds 1 --records 5000",
        5.0,
    ),
    "exactly-once-latency": Step(
        "exactly_once",
        "--scenario latency --rounds 2",
        "--scenario latency --cold --rounds 1 --delays 500",
        2.0,
    ),
    "exactly-once-intervals": Step(
        "exactly_once",
        "--scenario intervals --rounds 1 --delays 3000",
        "--scenario intervals --cold --rounds 1 --records 5000 --delays 500",
        3.0,
    ),
    "exactly-once-stall": Step("exactly_once.stall", "--rounds 2", "--rounds 1 --drain 1", 2.0),
    "share": _share("noop", 2.2),
    "share-exact": _share("exact-100 exact-1000", 2.0),
    "share-slow": _share("slow-100 slow-1000", 0.6, 1),
    "share-latency": _share("latency renewal", 0.8, 1),
    "memory": _handlers("memory", 2.2, " --seconds 120", " --seconds 12"),
}


def measure(
    step: Step, arguments: str, broker: str, deadline: float
) -> tuple[dict[str, object] | None, str]:
    """Run one step, whose clients' failures are in what it found. None if it found nothing, and
    why."""
    command = [sys.executable, "-m", f"benchmarks.{step.module}", "--json", *arguments.split()]
    started = time.monotonic()
    # In a session of its own: a step that is ended takes its clients with it.
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {VARIABLE: broker},
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            _end(process)
            return None, f"it was not done within {deadline / 60:.2g} min"
        except BaseException:
            _end(process)
            raise
    if not output.strip():
        return None, "it has found nothing; see what it printed"
    try:
        found = cast("dict[str, object]", json.loads(output))
    except ValueError:
        return None, "what it has found cannot be read; see what it printed"
    found["command"] = f"python -m benchmarks.{step.module} {arguments}"
    found["minutes"] = (time.monotonic() - started) / 60
    return found, ""


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _terminated(_signal: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


def announce(names: Iterable[str], say: Say) -> None:
    """Print how long each step takes, and all of them."""
    total = 0.0
    for name in names:
        total += STEPS[name].minutes
        say(f"{name}: about {STEPS[name].minutes:.1f} min\n")
    say(f"all: about {total:.0f} min on two cores that do nothing else\n")


def main() -> int:
    """Measure, and write what was found."""
    options = _options()
    # Steps are in sessions of their own, and are to end with this.
    signal.signal(signal.SIGTERM, _terminated)
    file = options.folder / "results.json"
    results: Results = {}
    if options.render or (options.only and file.exists()):
        results = cast("Results", json.loads(file.read_text(encoding="utf-8")))
    failed: list[str] = []
    if not options.render:
        names = [name for name in STEPS if not options.only or name in options.only]
        say = sys.stderr.write
        if not options.quick:
            announce(names, say)
        ends = time.monotonic() + 60 * options.minutes
        with measured_broker() as broker:
            for name in names:
                step = STEPS[name]
                left = ends - time.monotonic()
                if not options.quick and left < 60 * step.minutes:
                    need = f"{step.minutes:.1f} min, {max(left, 0.0) / 60:.1f} are left"
                    failed.append(f"{name}: it takes {need}")
                    continue
                say(f"--- {name}\n")
                arguments = step.quick if options.quick else step.full
                deadline = min(step.deadline, left)
                found, why = measure(step, arguments, broker.bootstrap_servers, deadline)
                if found is None:
                    failed.append(f"{name}: {why}")
                    say(f"{failed[-1]}\n")
                    continue
                say(f"--- {name} took {cast('float', found['minutes']):.1f} min\n")
                results[name] = found
                # What there is so far can be looked at.
                _write(results, options.folder)
    _write(results, options.folder)
    if results:
        print(f"see {options.folder / 'results.md'}")
    for why in failed:
        print(f"not measured: {why}")
    return 1 if failed else 0


def _write(results: Results, folder: Path) -> None:
    if not results:
        return
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1) + "\n"
    (folder / "results.json").write_text(text, encoding="utf-8")
    write_report({name: results[name] for name in STEPS if name in results}, folder)


class _Options(argparse.Namespace):
    quick: bool
    render: bool
    only: list[str] | None
    minutes: float
    folder: Path


def _options() -> _Options:
    parser = argparse.ArgumentParser(
        description="All benchmarks beside all other clients, on one broker."
    )
    parser.add_argument("--quick", action="store_true", help="small, to see whether all of it runs")
    parser.add_argument("--only", nargs="+", choices=list(STEPS), metavar="STEP")
    parser.add_argument("--minutes", type=float, default=120.0, help="what the run may take")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the report goes")
    parser.add_argument("--render", action="store_true", help="from the results of the last run")
    return parser.parse_args(namespace=_Options())


if __name__ == "__main__":
    sys.exit(main())
