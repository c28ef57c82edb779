"""The oracles see what they are for: each mutant is caught, and the core itself passes."""

import pytest
from simulation.mutants.all_mutants import MUTANTS
from simulation.mutants.mutant import Mutant
from simulation.runner import run

# At most so many schedules may pass before a mutant is caught.
SEEDS = range(40)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_is_caught_where_the_core_passes(mutant: Mutant) -> None:
    missed: list[str] = []
    for seed in SEEDS:
        schedule = mutant.schedule(seed)
        with pytest.MonkeyPatch.context() as patch:
            mutant.patch(patch)
            outcome = run(schedule)
        if outcome.invariant in mutant.caught_by:
            break
        missed.append(outcome.invariant)
    else:
        pytest.fail(f"not caught in {len(SEEDS)} schedules, which found {set(missed)}")
    outcome = run(schedule)
    assert outcome.failure is None, f"seed {seed}, without the mutation: {outcome.failure}"
