"""``python -m simulation share``: run seeded schedules of share groups."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from simulation.share.share_run import run_many_share, run_share, shrink_share
from simulation.share.share_schedule import ShareDisturbance, draw_share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _parse(
    arguments: Sequence[str], seeds: Callable[[str], range], of_today: Callable[[str], range]
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m simulation share",
        description="Run seeded schedules of a simulated share group; see what breaks.",
        epilog="example: PYTHONPATH=.:tests python -m simulation share --seeds 0:1000",
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--seeds", type=seeds, default=range(200), metavar="FIRST:END", help="0:200 by default"
    )
    chosen.add_argument(
        "--fresh", type=of_today, dest="seeds", metavar="COUNT", help="so many seeds of today (UTC)"
    )
    faults = [disturbance.value for disturbance in ShareDisturbance]
    parser.add_argument("--faults", choices=faults, help="all, by the seed, if left out")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--stop-after", type=int, default=5, help="failures, 5 by default")
    parser.add_argument("--no-shrink", action="store_true", help="print failures as they are")
    parser.add_argument("--digest", action="store_true", help="print a digest of each seed")
    parser.add_argument("--trace", type=int, default=60, help="lines of trace per failure")
    return parser.parse_args(arguments)


def main(
    arguments: Sequence[str], seeds: Callable[[str], range], of_today: Callable[[str], range]
) -> int:
    """Run, print, and return the exit code: 1 if a schedule failed."""
    options = _parse(arguments, seeds, of_today)
    disturbance = ShareDisturbance(options.faults) if options.faults else None
    if options.digest:
        for seed in options.seeds:
            print(seed, run_share(draw_share(seed, disturbance), digest=True).digest)
        return 0
    print(f"seeds {options.seeds.start}:{options.seeds.stop}", flush=True)
    summary = run_many_share(
        options.seeds, disturbance, processes=options.processes, stop_after=options.stop_after
    )
    for outcome in summary.failures:
        schedule = draw_share(outcome.seed, disturbance)
        if not options.no_shrink:
            schedule = shrink_share(schedule)
            outcome = run_share(schedule)  # noqa: PLW2901 - what is printed is the small one
        lines = outcome.trace.splitlines()[-options.trace :] if options.trace else []
        print("\n".join([schedule.describe(), *lines, outcome.failure or "(passes when shrunk)"]))
        again = f"--seeds {outcome.seed}" + (f" --faults {options.faults}" if disturbance else "")
        print(f"again: PYTHONPATH=.:tests python -m simulation share {again}\n")
    print(summary.describe())
    return 1 if summary.failures else 0
