"""Python processes of Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

PLANNING = """
import gc
from asyncrevoke.spark.source.data_source import KafkaSource

kept = []
for _ in range(3):
    KafkaSource({'bootstrap_servers': 'localhost:1', 'topic': 't'}).schema()
    print(gc.get_freeze_count())
    kept += [[] for _ in range(10_000)]
"""
READING = """
import gc
from asyncrevoke.spark.reading.worker import PythonWorker

print(gc.get_freeze_count())
for _ in range(2):
    PythonWorker.current()
    print(gc.get_freeze_count())
    kept = [[] for _ in range(10_000)]
"""


def excluded(script: str) -> list[int]:
    """The objects that collections skip, as the script prints them."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return list(map(int, done.stdout.split()))


def test_collections_of_garbage_skip_what_planning_loads_at_its_first_use() -> None:
    loaded, with_first_use, later = excluded(PLANNING)
    assert loaded > 10_000
    assert with_first_use > loaded + 9_000
    assert later < with_first_use + 1_000


def test_collections_of_garbage_skip_what_is_loaded_when_a_worker_begins() -> None:
    before, with_first_use, later = excluded(READING)
    assert before < 1_000
    assert with_first_use > 10_000
    assert later < with_first_use + 1_000
