"""Fixtures of several tests have a time limit of their own, in the tests of this project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
RECORDING = """
import pytest

EVENTS = []


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer():
    EVENTS.append("limit")
    return True


@pytest.fixture(scope="session")
def broker():
    EVENTS.append("broker")


@pytest.fixture(scope="module")
def own_broker(broker):
    EVENTS.append("own broker")


@pytest.fixture
def topic(own_broker):
    EVENTS.append("topic")


def pytest_sessionfinish():
    print(*EVENTS, sep=", ")
"""
EVENTS = ["limit", "broker", "limit", "limit", "own broker", "limit", "topic", "test"]


def test_the_time_limit_begins_again_before_and_after_each_shared_fixture(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(RECORDING)
    (tmp_path / "test_it.py").write_text(
        "from conftest import EVENTS\n\n\ndef test_it(topic):\n    EVENTS.append('test')\n"
    )
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "broker.kafka.fixture_time",
            "--timeout=120",
            "-s",
            "-q",
        ],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    events = ran.stdout.splitlines()[0].lstrip(".")
    assert events.split(", ")[-len(EVENTS) :] == EVENTS, ran.stdout
