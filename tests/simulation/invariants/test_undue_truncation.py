"""Logs are not truncated in schedules: a member that reports it is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from simulation.runner import run
from simulation.schedules.schedule import Disturbance, GroupMode, draw

from asyncrevoke.client.core.fetch.fetcher import Fetcher

if TYPE_CHECKING:
    from asyncrevoke.client.core.fetch.cursor import PartitionCursor


def test_a_member_that_takes_a_new_leader_for_a_truncation_violates_the_invariant() -> None:
    def position_checked(self: Fetcher, now: float, cursor: PartitionCursor) -> None:
        self.position_diverged(now, cursor, 0, 0)

    schedules = [draw(seed, GroupMode.COOPERATIVE, Disturbance.FAULTS) for seed in range(30)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fetcher, "position_checked", position_checked)
        schedule = next(s for s in schedules if run(s).invariant == "undue truncation")
    assert run(schedule).failure is None
