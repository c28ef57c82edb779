"""Journals of chaotic and clean runs: the audit finds nothing that is not there.

``ASYNCREVOKE_AUDITED_RUNS`` says how many runs; `tox -e audits` has 100.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from simulation.journals.journalled_cluster import JournalledCluster
from simulation.schedules.scenario_run import ScenarioRun
from simulation.schedules.schedule import Disturbance, GroupMode, IncidentKind, draw

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.journal.format.schema import Content

RUNS = int(os.environ.get("ASYNCREVOKE_AUDITED_RUNS", "8"))
MODES = tuple(GroupMode)
CONTENTS: tuple[Content | None, ...] = ("batches", "records", None)
# Requests and responses are lost in every second run; members join, leave and close in all.
DISTURBANCES = (Disturbance.NONE, Disturbance.LOSS)


@pytest.mark.parametrize("run", range(RUNS))
def test_a_chaotic_run_that_loses_nothing_does_not_fail(tmp_path: Path, run: int) -> None:
    schedule = draw(run, MODES[run % len(MODES)], DISTURBANCES[run // len(MODES) % 2])
    # A topic that is created again is another one, of which the journal says nothing.
    incidents = tuple(
        incident for incident in schedule.incidents if incident.kind is not IncidentKind.RECREATE
    )
    schedule = replace(schedule, incidents=incidents)
    # Modes and disturbances repeat by an even number of runs.
    content = CONTENTS[run % len(CONTENTS)]
    world = JournalledCluster(schedule, tmp_path, content=content)
    ScenarioRun(world).run()
    audits = world.audited()
    assert sum(audit.done for audit in audits) > 0
    for audit in audits:
        assert audit.status != "FAIL", [str(anomaly) for anomaly in audit.anomalies]
        compared = all(a.kind != "content_not_compared" for a in audit.anomalies)
        assert compared == (content is not None)
        missing = [a for a in audit.anomalies if a.severity == "INCONCLUSIVE" and not a.sessions]
        assert missing == [], [str(anomaly) for anomaly in missing]
    # As if one of them had no journal, whichever it is: nothing that it has done is lost.
    missing_session = random.Random(run).choice(audits[0].sessions).name
    for each in world.audited(without=missing_session):
        assert each.status != "FAIL", [str(anomaly) for anomaly in each.anomalies]
