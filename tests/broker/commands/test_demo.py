"""The commands against a real broker, as a user runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from asyncrevoke.broker.admin import Admin

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(sys.platform == "win32", reason="signals"),
]

ROOT = Path(__file__).parents[3]


def command(*arguments: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "asyncrevoke", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol", ["cooperative", pytest.param("eager", marks=pytest.mark.variant)]
)
def test_demo_loses_repeats_and_reorders_nothing(
    kafka_broker: RunningBroker, tmp_path: Path, protocol: str
) -> None:
    picture = tmp_path / "timeline.svg"
    demo = command(
        *("demo", "--seconds", "9", "--json", "--protocol", protocol, "--picture", str(picture)),
        # Draining may take longer than a step of so short a schedule: a partition that was about
        # to move then stays after all, and its draining was the stall of a kept one.
        *("--max-stall", "4", "--audit"),
        ASYNCREVOKE_BROKER=kafka_broker.bootstrap_servers,
    )
    output, errors = demo.communicate(timeout=90)
    assert demo.returncode == 0, output + errors
    result: dict[str, Any] = json.loads(output)
    own = result["asyncrevoke"]
    assert result["ok"] is True
    assert own["handled"] == own["produced"] > 3000
    assert (own["lost"], own["repeated"], own["order_violations"]) == (0, 0, 0)
    audit = result["audit"]
    assert audit["status"] == "PASS"
    assert audit["read"] == audit["done"] == own["produced"]
    assert picture.read_text().startswith("<svg")


@pytest.mark.slow
def test_demo_compares_with_aiokafka_and_repeats_only_records_of_killed_members(
    kafka_broker: RunningBroker, tmp_path: Path
) -> None:
    demo = command(
        *("demo", "--seconds", "6", "--json", "--kill", "--compare", "aiokafka"),
        *("--max-stall", "4", "--rate", "150", "--picture", str(tmp_path / "timeline.svg")),
        ASYNCREVOKE_BROKER=kafka_broker.bootstrap_servers,
    )
    output, errors = demo.communicate(timeout=110)
    assert demo.returncode == 0, output + errors
    result: dict[str, Any] = json.loads(output)
    own, rival = result["asyncrevoke"], result["aiokafka"]
    assert own["lost"] == 0
    assert own["repeated"] == own["repeated_after_kill"]
    assert rival["produced"] == own["produced"]


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_demo_with_exactly_once_shows_one_result_of_each_record_although_members_are_killed(
    kafka_broker: RunningBroker, tmp_path: Path
) -> None:
    picture = tmp_path / "timeline.svg"
    demo = command(
        *("demo", "--seconds", "12", "--json", "--exactly-once", "--compare", "aiokafka"),
        *("--rate", "150", "--picture", str(picture), "--audit"),
        ASYNCREVOKE_BROKER=kafka_broker.bootstrap_servers,
    )
    output, errors = demo.communicate(timeout=180)
    assert demo.returncode == 0, output + errors
    result: dict[str, Any] = json.loads(output)
    own, rival = result["asyncrevoke"], result["aiokafka"]
    assert own["results_visible"] == own["produced"] > 1500
    assert own["results_missing"] == own["results_doubled"] == own["results_out_of_order"] == 0
    assert own["repeated"] == own["repeated_after_kill"]
    assert rival["results_visible"] > 0
    assert "is killed" in picture.read_text()
    audit = result["audit"]
    assert audit["status"] == "PASS", audit
    assert not [kind for kind in audit["found"] if kind.startswith("result_")]
    assert [compared["visible"] for compared in audit["results"]] == [own["produced"]]


@pytest.mark.slow
def test_demo_stops_a_member_that_starts_slowly_once_it_can_leave(
    kafka_broker: RunningBroker, tmp_path: Path
) -> None:
    """Its process takes longer to start than until the schedule stops it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\n"
        "if 'asyncrevoke.cli.demo.member.main' in sys.orig_argv:\n"
        "    time.sleep(4)\n"
    )
    demo = command(
        *("demo", "--seconds", "6", "--rate", "50", "--json", "--max-stall", "60"),
        *("--picture", str(tmp_path / "timeline.svg")),
        ASYNCREVOKE_BROKER=kafka_broker.bootstrap_servers,
        PYTHONPATH=os.pathsep.join((str(tmp_path), str(ROOT))),
    )
    output, errors = demo.communicate(timeout=90)
    assert demo.returncode == 0, output + errors
    own = json.loads(output)["asyncrevoke"]
    assert own["handled"] == own["produced"] > 200
    assert (own["lost"], own["repeated"]) == (0, 0)


@pytest.mark.slow
def test_the_page_of_a_demo_stays_open_until_ctrl_c(
    kafka_broker: RunningBroker, tmp_path: Path
) -> None:
    demo = command(
        *("demo", "--seconds", "6", "--rate", "50", "--open", "--json", "--max-stall", "60"),
        *("--picture", str(tmp_path / "timeline.svg")),
        ASYNCREVOKE_BROKER=kafka_broker.bootstrap_servers,
        BROWSER="true",  # the command of this name, which opens nothing
    )
    assert demo.stderr is not None
    shown: list[str] = []
    for line in demo.stderr:
        shown.append(line)
        if "the page stays open" in line:
            break
    (port,) = re.findall(r"live page: http://127.0.0.1:(\d+)/", "".join(shown))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as response:
        assert response.status == 200
    assert demo.poll() is None
    demo.send_signal(signal.SIGINT)
    output, errors = demo.communicate(timeout=60)
    assert demo.returncode == 0, output + errors
    assert json.loads(output)["asyncrevoke"]["lost"] == 0


def test_demo_without_a_broker_ends_with_the_reason(tmp_path: Path) -> None:
    demo = command("demo", ASYNCREVOKE_BROKER="127.0.0.1:1")
    _, errors = demo.communicate(timeout=30)
    assert demo.returncode == 1
    assert "no broker responds at 127.0.0.1:1" in errors


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.variant)]
)
def test_broker_command_runs_until_it_is_interrupted(number: signal.Signals) -> None:
    broker = command("broker", "--port", "0", "--topic", "orders:3", "--json")
    assert broker.stdout is not None
    line = broker.stdout.readline()
    facts: dict[str, Any] = json.loads(line)
    host, port = facts["bootstrap_servers"].split(":")
    assert Admin(f"{host}:{port}").partitions("orders") == 3
    broker.send_signal(number)
    _, errors = broker.communicate(timeout=30)
    assert broker.returncode == 0, errors
    deadline = time.monotonic() + 10
    while Path(f"/proc/{facts['pid']}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_broker_command_on_a_used_port_says_so(kafka_broker: RunningBroker) -> None:
    port = kafka_broker.bootstrap_servers.rpartition(":")[2]
    broker = command("broker", "--port", port)
    _, errors = broker.communicate(timeout=30)
    assert broker.returncode == 1
    assert f"port {port} is in use" in errors
