"""Logs are not truncated in schedules: a member that reports it is wrong."""

from __future__ import annotations

import pytest
from simulation.runner import run
from simulation.schedules.schedule import Disturbance, GroupMode, draw

from asyncrevoke.client.core.partition.record_buffer import RecordBuffer


def test_a_member_that_takes_a_new_leader_for_a_truncation_violates_the_invariant() -> None:
    def diverges_at(_self: RecordBuffer, _epoch: int, _end: int) -> int:
        return 0

    schedules = [draw(seed, GroupMode.COOPERATIVE, Disturbance.FAULTS) for seed in range(30)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordBuffer, "diverges_at", diverges_at)
        schedule = next(s for s in schedules if run(s).invariant == "undue truncation")
    assert run(schedule).failure is None
