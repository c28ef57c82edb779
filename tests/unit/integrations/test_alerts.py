"""The alert rules for Prometheus name metrics that exist, and fire when they should."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.integrations.queried_metrics import metrics_of

FOLDER = Path(__file__).parents[3] / "docs" / "how-to" / "operating"


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def test_the_alert_rules_ask_for_nothing_that_does_not_exist() -> None:
    found = metrics_of(rule["expr"] for rule in rules())
    assert found.unknown == set()
    assert len(found.metrics) >= 9


def test_each_alert_has_a_test_in_which_it_fires() -> None:
    loaded = yaml.safe_load((FOLDER / "alerts.test.yaml").read_text("utf-8"))
    tests = [test for run in loaded["tests"] for test in run["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert {test["alertname"] for test in tests if test.get("exp_alerts")} == names
    assert {test["alertname"] for test in tests if not test.get("exp_alerts")} == names


def test_each_alert_tells_what_to_do_on_the_page() -> None:
    page = (FOLDER / "metrics.md").read_text("utf-8")
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "action"}
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert f"| `{rule['alert']}` |" in page


@pytest.mark.parametrize("command", [("check", "alerts.yaml"), ("test", "alerts.test.yaml")])
def test_prometheus_accepts_the_rules_and_their_tests_pass(command: tuple[str, str]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool, which Debian's package prometheus has")
    verb, file = command
    result = subprocess.run(
        [promtool, verb, "rules", file],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
