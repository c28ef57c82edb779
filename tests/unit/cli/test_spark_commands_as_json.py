"""What `asyncrevoke replay --json` and `asyncrevoke handover --json` print; they need no Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from asyncrevoke import TopicPartition
from asyncrevoke.cli.app import app
from asyncrevoke.cli.spark import handover, replay
from asyncrevoke.spark.handovers import group_handover
from asyncrevoke.spark.handovers.group_handover import Handover, OffsetMove
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.replays.report import ReplayReport

if TYPE_CHECKING:
    import pytest

PLAN = Handover("billing", (OffsetMove(TopicPartition("orders", 3), 5, 9, 0, 20),), "Empty", (), 4)


def test_a_handover_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(*_given: object, **_options: object) -> Handover:
        return PLAN

    monkeypatch.setattr(group_handover, "plan_handover", plan)
    result = CliRunner().invoke(app, ["handover", "checkpoint", "--group", "billing", "--json"])
    assert result.exit_code == 0, result.output
    move = {
        "topic": "orders",
        "partition": 3,
        "from": 5,
        "to": 9,
        "skipped": 4,
        "repeated": 0,
        "new": False,
    }
    assert json.loads(result.stdout) == {
        "group": "billing",
        "state": "Empty",
        "moves": [move],
        "pending": 4,
        "committed": False,
    }
    assert json.loads(handover.as_json_text(PLAN, committed=True))["committed"]


def test_a_replay_is_one_object() -> None:
    report = ReplayReport(
        run_id="r1",
        results="replayed",
        ranges=(OffsetRange("orders", 0, 5, 9),),
        records=4,
        outcomes={"ok": 3, "error": 1},
        errors={"ValueError": 1},
        latency={0.5: 0.001, 1.0: 0.2},
        histogram={0.01: 4},
        seconds=2.5,
        resumed=False,
    )
    found = json.loads(replay.as_json_text(report, Path("report-r1.html")))
    assert found["outcomes"] == {"ok": 3, "error": 1}
    assert found["latency"] == {"0.5": 0.001, "1.0": 0.2}
    assert found["ranges"][0]["end"] == 9
    assert found["report"] == "report-r1.html"
