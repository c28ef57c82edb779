"""The explorer finds bugs that the seeded schedules meet in less than one of 1,000 runs.

Those of transactions need requests that arrive amid the next one."""

import pytest
from simulation.explorer import explored_mutants
from simulation.explorer.exploration import explore, run_path
from simulation.explorer.small_worlds import WORLDS
from simulation.mutants import kip848_mutants, topic_mutants, transaction_mutants
from simulation.mutants.mutant import Mutant

_NAMES = (
    "a heartbeat without a response that is not followed by a full one",
    "a thread that says that nothing is owned",
)
# The first ones, in how commits are verified, are found as "a commit without a response is not
# verified" is, on as many paths.
_REPEATED = (
    ("kip848", "a commit without a response is verified only at a revocation"),
    ("kip848", "an acknowledged repetition ends the doubt about a commit"),
    ("kip848", "offsets that went back count as right"),
    ("kip848-transactions", "a batch without a response counts as written"),
    # Found later than the other one of this kind.
    (
        "classic-transactions-1",
        "no epoch is begun after a TxnOffsetCommit without a response",
    ),
)
_WRITTEN = "a batch without a response counts as written"
EXPLORED = [
    *(
        ("kip848", mutant)
        for mutant in (*kip848_mutants.MUTANTS, *topic_mutants.MUTANTS)
        if mutant.name in _NAMES
    ),
    *(("kip848", mutant) for mutant in explored_mutants.MUTANTS),
    *(
        (f"{protocol}-transactions", mutant)
        for protocol in ("classic", "kip848")
        for mutant in transaction_mutants.MUTANTS
        if mutant.name == _WRITTEN
    ),
    *(("classic-transactions-1", mutant) for mutant in explored_mutants.OF_TRANSACTIONS),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        pytest.param(
            name,
            mutant,
            id=f"{mutant.name}-{name}",
            marks=[pytest.mark.variant] if (name, mutant.name) in _REPEATED else [],
        )
        for name, mutant in EXPLORED
    ],
)
def test_the_explorer_finds_a_mutant_on_a_path_on_which_the_core_passes(
    name: str, mutant: Mutant
) -> None:
    assert len(EXPLORED) == len(_NAMES) + len(explored_mutants.MUTANTS) + 4
    world = WORLDS[name]
    with pytest.MonkeyPatch.context() as patch:
        mutant.patch(patch)
        *_, last = explore(world, 1)
    assert last.failed is not None, f"not found on {last.paths} paths"
    assert last.failed.run.invariant in mutant.caught_by, last.failed.run.failure
    unchanged = run_path(world, last.failed.path)
    assert unchanged.run.failure is None, unchanged.run.failure
