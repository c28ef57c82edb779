"""The explorer finds bugs that the seeded schedules rarely or never meet."""

from dataclasses import dataclass

import pytest
from simulation.explorer.exploration import explore, run_path
from simulation.explorer.small_worlds import WORLDS
from simulation.mutants.all_mutants import MUTANTS
from simulation.mutants.mutant import Mutant


@dataclass(frozen=True)
class ExploredMutant:
    """A mutant, and the world in which a path with one deviation has to find it."""

    mutant: Mutant
    world: str


def _named(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


EXPLORED = [
    ExploredMutant(
        _named("a heartbeat without a response that is not followed by a full one"), "kip848"
    ),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("explored", EXPLORED, ids=lambda each: each.mutant.name)
def test_the_explorer_finds_a_mutant_on_a_path_on_which_the_core_passes(
    explored: ExploredMutant,
) -> None:
    world = WORLDS[explored.world]
    with pytest.MonkeyPatch.context() as patch:
        explored.mutant.patch(patch)
        *_, last = explore(world, 1)
    assert last.failed is not None, f"not found on {last.paths} paths"
    assert last.failed.run.invariant in explored.mutant.caught_by, last.failed.run.failure
    unchanged = run_path(world, last.failed.path)
    assert unchanged.run.failure is None, unchanged.run.failure
