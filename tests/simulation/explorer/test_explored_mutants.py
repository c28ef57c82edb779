"""The explorer finds bugs that the seeded schedules meet in less than one of 1,000 runs."""

import pytest
from simulation.explorer import explored_mutants
from simulation.explorer.exploration import explore, run_path
from simulation.explorer.small_worlds import WORLDS
from simulation.mutants import kip848_mutants, topic_mutants
from simulation.mutants.mutant import Mutant

_NAMES = (
    "a heartbeat without a response that is not followed by a full one",
    "a thread that says that nothing is owned",
)
EXPLORED = [
    *(each for each in kip848_mutants.MUTANTS + topic_mutants.MUTANTS if each.name in _NAMES),
    *explored_mutants.MUTANTS,
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", EXPLORED, ids=[mutant.name for mutant in EXPLORED])
def test_the_explorer_finds_a_mutant_on_a_path_on_which_the_core_passes(mutant: Mutant) -> None:
    assert len(EXPLORED) == len(_NAMES) + len(explored_mutants.MUTANTS)
    world = WORLDS["kip848"]
    with pytest.MonkeyPatch.context() as patch:
        mutant.patch(patch)
        *_, last = explore(world, 1)
    assert last.failed is not None, f"not found on {last.paths} paths"
    assert last.failed.run.invariant in mutant.caught_by, last.failed.run.failure
    unchanged = run_path(world, last.failed.path)
    assert unchanged.run.failure is None, unchanged.run.failure
