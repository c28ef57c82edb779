"""Anomalies at random places of random runs: Spark finds what DuckDB finds.

``ASYNCREVOKE_INJECTED`` says how many of each kind; ``tox -e audits`` has 20.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from spark.audits.topic_frames import audit_in_memory
from unit.audit.proof.journal_run import topic_of
from unit.audit.proof.proof import draw_instances, problems
from unit.audit.proof.test_injected_at_random import SEED, audited, committed

from asyncrevoke.audit import comparison

pytest.importorskip("pyspark", reason="needs the extra spark")


if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from unit.audit.proof.proof import Instance

    from asyncrevoke.audit.results.audit_result import AuditResult
    from asyncrevoke.journal.format.schema import Content

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

COUNT = int(os.environ.get("ASYNCREVOKE_INJECTED", "1"))


@pytest.mark.parametrize("content", ["records", "batches", None])
@pytest.mark.parametrize("chaotic", [False, True], ids=["calm", "chaotic"])
def test_spark_finds_what_is_injected_as_duckdb_does(
    tmp_path: Path,
    quick: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    chaotic: bool,
    content: Content | None,
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 0)
    instances = draw_instances(SEED, COUNT, chaotic=chaotic, content=content)
    here = audited(tmp_path, instances)
    topic = topic_of([instance.run for instance in instances])
    there = audit_in_memory(quick, tmp_path, topic, group_offsets=committed(instances))
    assert [p for instance in instances for p in problems(instance, there.anomalies)] == []
    for instance in instances:
        assert named(instance, there) == named(instance, here), (instance.name, instance.number)


def named(instance: Instance, result: AuditResult) -> list[tuple[Any, ...]]:
    """What was found of a run, and where."""
    found = instance.of(result.anomalies)
    places = [(str(a.kind), a.partition, a.offset_lo, a.offset_hi, a.sessions) for a in found]
    return sorted(places, key=str)
