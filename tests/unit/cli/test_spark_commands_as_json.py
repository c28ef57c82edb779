"""What `asyncrevoke replay` and `asyncrevoke handover` pass on and print; they need no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from asyncrevoke import TopicPartition
from asyncrevoke.cli.app import app
from asyncrevoke.cli.spark import handover, replay
from asyncrevoke.client.config.inherit import INHERIT
from asyncrevoke.spark import session
from asyncrevoke.spark.handovers import group_handover
from asyncrevoke.spark.handovers.group_handover import Handover, OffsetMove
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.replays import run
from asyncrevoke.spark.replays.report import ReplayReport

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


@pytest.mark.parametrize(
    ("given", "order"),
    [
        (None, INHERIT),
        (replay.OrderName.KEY, "key"),
        (replay.OrderName.PARTITION, "partition"),
        (replay.OrderName.NONE, None),
    ],
)
def test_a_replay_has_the_order_of_its_option(
    monkeypatch: pytest.MonkeyPatch, given: replay.OrderName | None, order: object
) -> None:
    passed: dict[str, object] = {}

    class Session:
        def stop(self) -> None:
            pass

    def opened(_master: str | None) -> Session:
        return Session()

    def is_connected(_spark: object) -> bool:
        return True

    def recorded(*_given: object, **options: object) -> None:
        passed.update(options)

    monkeypatch.setattr(session, "open_session", opened)
    monkeypatch.setattr(session, "is_connected", is_connected)
    monkeypatch.setattr(run, "replay", recorded)
    options = replay.RunOptions(out="o", order_by=given)
    options.run("app:consumer", [], None, Console(quiet=True))
    assert passed["order_by"] == order
