"""Python processes of Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

PLANNING = "KafkaSource({'bootstrap_servers': 'localhost:1', 'topic': 't'}).schema()"
READING = "list(RangeRows(SourceOptions.of({'topic': 't'}), ['value']).read([]))"

SCRIPT = """
import gc
from asyncrevoke.spark.source.data_source import KafkaSource
from asyncrevoke.spark.source.options import SourceOptions
from asyncrevoke.spark.source.range_rows import RangeRows

kept = []
for _ in range(3):
    {use}
    print(gc.get_freeze_count())
    kept += [[] for _ in range(10_000)]
"""


@pytest.mark.parametrize("use", [PLANNING, READING], ids=["planning", "reading"])
def test_collections_of_garbage_skip_what_the_first_use_of_a_process_loads(use: str) -> None:
    script = SCRIPT.format(use=use)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    loaded, with_first_use, later = map(int, done.stdout.split())
    assert loaded > 10_000
    assert with_first_use > loaded + 9_000
    assert later < with_first_use + 1_000
