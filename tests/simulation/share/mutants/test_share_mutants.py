"""The oracles see what they are for: each mutant is caught, and the core itself passes."""

import pytest
from simulation.share.mutants.share_mutants import MUTANTS, ShareMutant
from simulation.share.share_run import run_share

# At most so many schedules may pass before a mutant is caught.
SCHEDULES = 25


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_is_caught_where_the_core_passes(mutant: ShareMutant) -> None:
    found: set[str] = set()
    for seed in range(SCHEDULES):
        with pytest.MonkeyPatch.context() as patch:
            mutant.patch(patch)
            invariant = run_share(mutant.schedule(seed)).invariant
        if invariant in mutant.caught_by:
            assert run_share(mutant.schedule(seed)).failure is None
            return
        found.add(invariant)
    pytest.fail(f"not caught in {SCHEDULES} schedules, which found {found}")
