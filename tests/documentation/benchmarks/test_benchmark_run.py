"""The whole run of the benchmarks: what fails does not end it, and what there is is kept."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import psutil
import pytest

from asyncrevoke.broker.installation.java import Java
from benchmarks import __main__ as run
from benchmarks import handlers
from benchmarks.clients import java_clients
from benchmarks.report.results import HANDLERS, SECTIONS
from benchmarks.workload.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.report.results import Found

PRINTS = "import json; print(json.dumps({'failed': {}}))"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What steps run instead of modules, by the names of these."""
    started: dict[str, str] = {}
    popen = cast("Callable[..., object]", subprocess.Popen)

    def start(command: list[str], **settings: object) -> object:
        module = command[2].removeprefix("benchmarks.")
        return popen([sys.executable, "-c", started[module]], **settings)

    monkeypatch.setattr(subprocess, "Popen", start)
    return started


def test_each_step_has_a_section_of_the_report() -> None:
    assert run.STEPS.keys() <= SECTIONS.keys()


def test_a_step_reports_what_it_found_and_how_it_was_called(programs: dict[str, str]) -> None:
    programs["some"] = PRINTS
    found, why = run.measure(run.Step("some", "", "", 1.0), "--rounds 1", "b:1", 30.0)
    assert found is not None
    assert (found["failed"], why) == ({}, "")
    assert found["command"] == "python -m benchmarks.some --rounds 1"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("raise SystemExit(3)", "it has found nothing"),
        ("print('half a {')", "cannot be read"),
    ],
)
def test_a_failed_step_reports_its_error(
    programs: dict[str, str], program: str, reason: str
) -> None:
    programs["some"] = program
    found, why = run.measure(run.Step("some", "", "", 1.0), "", "b:1", 30.0)
    assert found is None
    assert reason in why


def test_a_step_that_hangs_is_ended(programs: dict[str, str]) -> None:
    programs["some"] = "import time; time.sleep(60)"
    found, why = run.measure(run.Step("some", "", "", 1.0), "", "b:1", 0.6)
    assert (found, why) == (None, "it was not done within 0.01 min")


@pytest.mark.skipif(sys.platform == "win32", reason="no process groups")
def test_a_step_that_is_ended_takes_what_it_has_started_with_it() -> None:
    program = (
        "import subprocess, sys, time\n"
        "sleeping = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        "print(subprocess.Popen(sleeping).pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        run._end(process)
    _, alive = psutil.wait_procs([child], timeout=10)
    assert all(left.status() == psutil.STATUS_ZOMBIE for left in alive)


def test_a_benchmark_run_continues_after_a_failed_step_and_keeps_results(
    programs: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept: list[set[str]] = []

    def keep(results: dict[str, Found], _folder: Path) -> None:
        kept.append(set(results))

    monkeypatch.setattr(run, "write_report", keep)
    broker = SimpleNamespace(bootstrap_servers="b:1")
    monkeypatch.setattr(run, "measured_broker", lambda: nullcontext(broker))
    before = signal.getsignal(signal.SIGTERM)
    steps = {name: run.Step(name, "", "", 0.1) for name in ("one", "two", "three")}
    steps["long"] = run.Step("long", "", "", 1000.0)
    monkeypatch.setattr(run, "STEPS", steps)
    programs |= {"one": PRINTS, "two": "raise SystemExit(1)", "three": PRINTS}
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--folder", str(tmp_path)])
    try:
        assert run.main() == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert kept[:2] == [{"one"}, {"one", "three"}]
    assert set(json.loads((tmp_path / "results.json").read_text())) == {"one", "three"}
    told = capsys.readouterr()
    assert "not measured: two: it has found nothing" in told.out
    assert "not measured: long: it takes 1000.0 min" in told.out
    assert "all: about 1000 min" in told.err


def test_the_steps_fit_in_70_minutes() -> None:
    assert sum(step.minutes for step in run.STEPS.values()) <= 70


def test_each_scenario_of_handlers_is_a_step_of_its_own() -> None:
    assert {name for name, step in run.STEPS.items() if step.module == "handlers"} == set(SCENARIOS)
    assert HANDLERS.keys() < SCENARIOS.keys()
    for name, scenario in SCENARIOS.items():
        assert set(scenario.clients) <= handlers.clients_of(name).keys()


def test_the_error_of_a_java_client_missing_in_maven_names_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(_artifact: str) -> str:
        raise RuntimeError("Artifact not found")

    monkeypatch.setattr(java_clients, "_from_maven", missing)
    monkeypatch.delenv(java_clients.KPIPE.variable, raising=False)
    with pytest.raises(RuntimeError, match="ASYNCREVOKE_KPIPE_JARS may name its jars"):
        java_clients.peer_class_path(java_clients.KPIPE)
    monkeypatch.setenv(java_clients.KPIPE.variable, "a.jar:b.jar")
    assert java_clients.peer_class_path(java_clients.KPIPE) == "a.jar:b.jar"


def test_the_error_of_a_too_old_java_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    java = Java(Path("/usr/bin/java"), 17)
    monkeypatch.setattr(java_clients, "find_java", lambda: java)
    assert java_clients.java_for(17) is java
    with pytest.raises(RuntimeError, match="it needs Java 999, and /usr/bin/java is Java 17"):
        java_clients.java_for(999)
