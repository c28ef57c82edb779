"""How many runs of schedules that are not made for a mutant it takes until an invariant objects.

``python -m simulation.mutants.untailored_runs``, with ``tests`` on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

import pytest
from simulation.explorer import explored_mutants
from simulation.mutants import lifespan_mutants, transaction_mutants
from simulation.mutants.all_mutants import MUTANTS
from simulation.runner import run
from simulation.schedules.partition_states import draw_with_lifespans
from simulation.schedules.schedule import draw
from simulation.schedules.transactional_schedules import draw_with_transactions

if TYPE_CHECKING:
    from simulation.mutants.mutant import Mutant
    from simulation.schedules.schedule import Schedule

# No test uses seeds from here on.
_FIRST_SEED = 70_000_000


def _draw(mutant: Mutant, seed: int) -> Schedule:
    if mutant in (*transaction_mutants.MUTANTS, *explored_mutants.OF_TRANSACTIONS):
        return draw_with_transactions(seed)
    return draw_with_lifespans(seed) if mutant in lifespan_mutants.MUTANTS else draw(seed)


def runs_until_caught(mutant: Mutant, first_seed: int, most: int) -> tuple[int, str] | None:
    """The number of the first run that fails, and the invariant; None if none does. A run that also
    fails without the mutant does not count."""
    for number in range(most):
        schedule = _draw(mutant, first_seed + number)
        with pytest.MonkeyPatch.context() as patch:
            mutant.patch(patch)
            invariant = run(schedule).invariant
        if invariant and not run(schedule).invariant:
            return number + 1, invariant
    return None


def main() -> int:
    """Print a table, a line for each mutant."""
    parser = argparse.ArgumentParser(
        prog="python -m simulation.mutants.untailored_runs",
        description="Print how many runs of schedules that are not made for it find each mutant.",
    )
    parser.add_argument("--first-seed", type=int, default=_FIRST_SEED)
    parser.add_argument("--most", type=int, default=2000, help="runs of a mutant, 2000 by default")
    parser.add_argument("names", nargs="*", help="parts of names; all mutants if left out")
    options = parser.parse_args()
    print("| mutant | runs until it is caught | by | s |")
    print("|---|---|---|---|")
    for mutant in [*MUTANTS, *explored_mutants.MUTANTS, *explored_mutants.OF_TRANSACTIONS]:
        if options.names and not any(part in mutant.name for part in options.names):
            continue
        started = time.perf_counter()
        found = runs_until_caught(mutant, options.first_seed, options.most)
        runs, by = found or (f"not in {options.most:,}", "")
        took = time.perf_counter() - started
        print(f"| {mutant.name} | {runs} | {by} | {took:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
