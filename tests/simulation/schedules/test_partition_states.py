"""Seeded schedules whose members keep a state for each partition, in lifespans (I21)."""

from collections import Counter
from itertools import product

import pytest
from simulation.runner import run
from simulation.schedules.partition_states import draw_with_lifespans
from simulation.schedules.schedule import Disturbance, GroupMode

# While a group is converted, two members may have a partition: then records are repeated.
_WITHOUT_REPEATS = [mode for mode in GroupMode if mode is not GroupMode.CONVERTED]


@pytest.mark.timeout(300)
def test_what_a_lifespan_has_stored_and_what_is_handled_again_are_the_same_set() -> None:
    counts = Counter[str]()
    for mode, disturbance in product(GroupMode, (Disturbance.NONE, Disturbance.FAULTS)):
        for seed in range(4):
            outcome = run(draw_with_lifespans(seed, mode, disturbance))
            assert outcome.failure is None, f"{mode.value}, seed {seed}: {outcome.failure}"
            counts += outcome.counts
    # It would prove nothing if little was stored, or if nothing was lost.
    assert counts["states loaded"] > 200
    assert counts["states stored with a map"] > 5
    assert counts["skipped by states"] > 10
    assert counts["lost partitions"] > 0


@pytest.mark.parametrize("mode", _WITHOUT_REPEATS)
def test_in_a_calm_group_no_state_is_lost_and_no_record_handled_twice(mode: GroupMode) -> None:
    for seed in range(2):
        outcome = run(draw_with_lifespans(seed, mode, Disturbance.CALM))
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        assert not outcome.duplicates
        assert not outcome.counts["lost partitions"]
