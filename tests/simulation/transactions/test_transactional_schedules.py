"""Seeded schedules of members that process exactly once keep every invariant."""

from __future__ import annotations

from collections import Counter

import pytest
from simulation.runner import run
from simulation.schedules.schedule import Disturbance, GroupMode
from simulation.schedules.transactional_schedules import draw_with_transactions


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", GroupMode)
def test_each_result_is_visible_once_whatever_befalls_the_group(mode: GroupMode) -> None:
    counts: Counter[str] = Counter()
    for seed in range(12):
        outcome = run(draw_with_transactions(seed, mode))
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        counts += outcome.counts
    # It would prove nothing if little happened.
    assert counts["results"] > 500
    assert counts["transactions committed: requested"] > 200
    assert counts["transactions aborted: requested"] > 0
    assert counts["blocks committed"] > 50
    assert counts["blocks failed: BlockError"] > 5


def test_without_faults_no_transaction_takes_too_long_and_no_producer_is_fenced() -> None:
    for seed in range(15):
        outcome = run(draw_with_transactions(seed, disturbance=Disturbance.CALM))
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        assert not outcome.counts["transactions aborted: timeout"]
        assert not outcome.counts["transactions aborted: fenced"]
