"""Handlers on a real broker once more, with uvloop instead of asyncio's own event loop."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

ROOT = Path(__file__).parents[3]

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform == "win32", reason="there is no uvloop"),
]


def test_handlers_work_on_uvloop(kafka_broker: RunningBroker) -> None:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "broker.connections.on_uvloop"),
            "tests/broker/handlers/test_handlers_on_a_real_broker.py",
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": paths,
            "ASYNCREVOKE_BROKER": kafka_broker.bootstrap_servers,
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    passed = re.search(r"(\d+) passed", result.stdout)
    loops = re.search(r"loops of uvloop: (\d+)", result.stdout)
    assert passed, result.stdout
    assert loops, result.stdout
    assert int(loops[1]) >= int(passed[1]) > 5
