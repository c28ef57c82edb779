"""Run schedules and print the failures: ``python -m simulation``, with ``tests`` on PYTHONPATH.

``python -m simulation explore`` runs all paths of small worlds instead, ``python -m simulation
share`` schedules of share groups.
"""

from __future__ import annotations

import argparse
import datetime
import sys

from simulation.explorer import command
from simulation.runner import run, run_many, shrink
from simulation.schedules.partition_states import draw_with_lifespans
from simulation.schedules.schedule import Disturbance, GroupMode, draw
from simulation.schedules.transactional_schedules import draw_with_transactions
from simulation.share import command as share_command

_SEEDS_A_DAY = 100_000


def _seeds(text: str) -> range:
    first, colon, end = text.partition(":")
    return range(int(first), int(end) if colon else int(first) + 1)


def _of_today(text: str) -> range:
    """As many seeds, another range each day: the date, and five digits more."""
    count = int(text)
    if not 0 < count <= _SEEDS_A_DAY:
        raise argparse.ArgumentTypeError(f"must be from 1 to {_SEEDS_A_DAY}, and is {count}")
    first = int(f"{datetime.datetime.now(datetime.UTC):%Y%m%d}") * _SEEDS_A_DAY
    return range(first, first + count)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m simulation",
        description="Run seeded schedules of a simulated cluster; see what breaks.",
        epilog="example: PYTHONPATH=.:tests python -m simulation --seeds 0:1000 --processes 2. "
        "With 'explore' as first argument, it runs all paths of small worlds, with 'share' "
        "schedules of share groups: see explore --help and share --help.",
    )
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument(
        "--seeds", type=_seeds, default=range(200), metavar="FIRST:END", help="0:200 by default"
    )
    seeds.add_argument(
        "--fresh",
        type=_of_today,
        dest="seeds",
        metavar="COUNT",
        help="so many seeds of today (UTC), others than yesterday's",
    )
    modes = [mode.value for mode in GroupMode]
    parser.add_argument("--protocol", choices=modes, help="all, by the seed, if left out")
    faults = [disturbance.value for disturbance in Disturbance]
    parser.add_argument("--faults", choices=faults, help="all, by the seed, if left out")
    parser.add_argument(
        "--lifespans", action="store_true", help="members keep a state for each partition"
    )
    parser.add_argument("--transactions", action="store_true", help="members process exactly once")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--stop-after", type=int, default=5, help="failures, 5 by default")
    parser.add_argument("--no-shrink", action="store_true", help="print failures as they are")
    parser.add_argument(
        "--digest", action="store_true", help="print a digest of all that left the cores, a seed"
    )
    parser.add_argument(
        "--json", action="store_true", help="print failing schedules, to be kept as tests"
    )
    parser.add_argument("--trace", type=int, default=60, help="lines of trace per failure")
    return parser.parse_args()


def main() -> int:
    """Run, print, and return the exit code: 1 if a schedule failed."""
    if sys.argv[1:2] == ["explore"]:
        return command.main(sys.argv[2:])
    if sys.argv[1:2] == ["share"]:
        return share_command.main(sys.argv[2:], _seeds, _of_today)
    options = _parse()
    mode = GroupMode(options.protocol) if options.protocol else None
    disturbance = Disturbance(options.faults) if options.faults else None
    draw_one = draw_with_lifespans if options.lifespans else draw
    if options.transactions:
        draw_one = draw_with_transactions
    if options.digest:
        for seed in options.seeds:
            print(seed, run(draw_one(seed, mode, disturbance), digest=True).digest)
        return 0
    # Said first, so that a run that is broken off can be repeated as well.
    print(f"seeds {options.seeds.start}:{options.seeds.stop}", flush=True)
    summary = run_many(
        options.seeds,
        mode,
        disturbance,
        processes=options.processes,
        stop_after=options.stop_after,
        draw_one=draw_one,
    )
    for outcome in summary.failures:
        schedule = draw_one(outcome.seed, mode, disturbance)
        if not options.no_shrink:
            schedule = shrink(schedule)
            outcome = run(schedule)  # noqa: PLW2901 - what is printed is the small one
        again = f"--seeds {outcome.seed}"
        again += f" --protocol {options.protocol}" if mode else ""
        again += f" --faults {options.faults}" if disturbance else ""
        again += " --lifespans" if options.lifespans else ""
        again += " --transactions" if options.transactions else ""
        lines = outcome.trace.splitlines()[-options.trace :] if options.trace else []
        print("\n".join([schedule.describe(), *lines, outcome.failure or "(passes when shrunk)"]))
        if options.json:
            print(schedule.as_json())
        print(f"again: PYTHONPATH=.:tests python -m simulation {again}\n")
    print(summary.describe())
    return 1 if summary.failures else 0


if __name__ == "__main__":
    sys.exit(main())
