"""Anomalies at random places of random runs are found where they are, and nothing else is.

``ASYNCREVOKE_INJECTED`` says how many of each kind; ``tox -e audits`` has 20.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from unit.audit.proof.journal_run import topic_of
from unit.audit.proof.proof import draw_instances, problems
from unit.journal.written_journal import TOPIC

from asyncrevoke.audit import comparison
from asyncrevoke.audit.local_engine import audit
from asyncrevoke.audit.offsets import AuditedGroupOffsets
from asyncrevoke.journal.reading import read_journal

if TYPE_CHECKING:
    from pathlib import Path

    from unit.audit.proof.proof import Instance

    from asyncrevoke.audit.results.audit_result import AuditResult
    from asyncrevoke.journal.format.schema import Content

COUNT = int(os.environ.get("ASYNCREVOKE_INJECTED", "2"))
SEED = int(os.environ.get("ASYNCREVOKE_INJECTED_SEED", "1"))
# After all of them have ended.
LATER = 1_900_000_000_000_000


def written(folder: Path, instances: list[Instance]) -> None:
    """Write all runs into one folder."""
    for instance in instances:
        instance.run.write(folder)


def committed(instances: list[Instance]) -> AuditedGroupOffsets:
    """What the broker has of all runs."""
    offsets = {part: off for instance in instances for part, off in instance.run.committed.items()}
    return AuditedGroupOffsets(offsets, "broker", LATER)


def audited(folder: Path, instances: list[Instance]) -> AuditResult:
    """One audit of all runs, each of which has partitions and sessions of its own."""
    written(folder, instances)
    topic = topic_of([instance.run for instance in instances])
    offsets = committed(instances)
    return asyncio.run(audit(read_journal(folder), topic, TOPIC, group_offsets=offsets))


@pytest.mark.parametrize(
    ("content", "exact_below"),
    [
        pytest.param("records", 10**9, id="records-record by record"),
        pytest.param("batches", 0, id="batches-by fingerprints"),
        pytest.param(None, 0, id="None-by fingerprints"),
        pytest.param("records", 0, id="records-by fingerprints", marks=pytest.mark.variant),
        pytest.param("batches", 10**9, id="batches-record by record", marks=pytest.mark.variant),
        pytest.param(None, 10**9, id="None-record by record", marks=pytest.mark.variant),
    ],
)
@pytest.mark.parametrize(
    "chaotic", [pytest.param(False, marks=pytest.mark.variant), True], ids=["calm", "chaotic"]
)
def test_what_is_injected_is_found_where_it_is_and_nothing_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chaotic: bool,
    content: Content | None,
    exact_below: int,
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", exact_below)
    instances = draw_instances(SEED, COUNT, chaotic=chaotic, content=content)
    result = audited(tmp_path, instances)
    assert [p for instance in instances for p in problems(instance, result.anomalies)] == []
