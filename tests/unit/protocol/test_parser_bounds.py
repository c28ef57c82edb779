"""The parser of records reads nothing beyond the end of a batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="guards a page by mprotect")
def test_nothing_is_read_beyond_the_end_of_a_truncated_batch() -> None:
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    ended = subprocess.run(
        [sys.executable, "-m", "unit.protocol.guarded_parser"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("rejected\n")
