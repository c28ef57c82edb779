"""Workers whose Python does not have this package: sources and replays say what is missing."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from spark.clusters.processes import run

pytest.importorskip("pyspark", reason="needs the extra spark")

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.variant, pytest.mark.timeout(300)]

# What is installed cannot be imported in workers.
HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "asyncrevoke":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""

DRIVER = """
import sys
from asyncrevoke.spark import open_session, register, replay
from asyncrevoke.spark.reading.offsets import OffsetRange
spark = open_session("local[1]")
register(spark)
options = {"bootstrap_servers": "127.0.0.1:1", "topic": "orders"}
for attempt in (
    lambda: spark.read.format("asyncrevoke").options(**options).load(),
    lambda: replay(spark, "app:consumer", [OffsetRange("orders", 0, 0, 5)], sink=sys.argv[1]),
):
    try:
        attempt()
    except Exception as error:
        print("RAISED", type(error).__name__, *str(error).split())
spark.stop()
"""


def test_workers_without_the_package_fail_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(HIDDEN)
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{tmp_path}/hidden:$PYTHONPATH" exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    (tmp_path / "driver.py").write_text(DRIVER)
    environment = {
        **os.environ,
        "PYTHONPATH": os.getcwd(),
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    words = [sys.executable, "driver.py", str(tmp_path / "out")]
    told = run(words, environment, tmp_path, 250)
    source, replayed = [line for line in told.splitlines() if line.startswith("RAISED ")]
    assert source.startswith("RAISED AnalysisException [PYTHON_DATA_SOURCE_ERROR]")
    assert "No module named 'asyncrevoke'" in source
    assert replayed.startswith("RAISED SparkSetupError run ")
    assert "the Python of a worker has no package asyncrevoke: install" in replayed
