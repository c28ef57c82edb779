"""Journals of chaotic and clean runs: the audit finds nothing that is not there.

``ASYNCREVOKE_AUDITED_RUNS`` says how many runs; `tox -e audits` has 50.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from simulation.journalled_world import JournalledWorld

from asyncrevoke.testing.simulation.schedule import Disturbance, GroupMode, draw

if TYPE_CHECKING:
    from pathlib import Path

RUNS = int(os.environ.get("ASYNCREVOKE_AUDITED_RUNS", "8"))
MODES = tuple(GroupMode)
# Requests and answers are lost in every second run; members join, leave and close in all.
DISTURBANCES = (Disturbance.NONE, Disturbance.LOSS)


@pytest.mark.parametrize("run", range(RUNS))
def test_a_chaotic_run_that_loses_nothing_does_not_fail(tmp_path: Path, run: int) -> None:
    mode = MODES[run % len(MODES)]
    world = JournalledWorld(draw(run, mode, DISTURBANCES[run // len(MODES) % 2]), tmp_path)
    world.run()
    audits = world.audited()
    assert sum(each.done for each in audits) > 0
    for each in audits:
        assert each.verdict != "FAIL", [str(anomaly) for anomaly in each.anomalies]
