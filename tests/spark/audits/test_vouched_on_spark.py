"""With a list of all sessions, Spark finds what DuckDB finds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from spark.audits.topic_frames import audit_in_memory
from unit.journal.written_journal import (
    RECORDS,
    TOPIC,
    JournalledTopic,
    JournalMember,
    at,
    clean_run,
    found,
    session_id,
)

from asyncrevoke.audit import comparison
from asyncrevoke.audit.local_engine import audit
from asyncrevoke.audit.offsets import AuditedGroupOffsets
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.segments import LOG, seal_session, sessions
from asyncrevoke.journal.session_list import ListedSession, SessionList, write_session_list
from asyncrevoke.journal.topic.offsets_snapshot import write_snapshot

pytest.importorskip("pyspark", reason="needs the extra spark")

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

OFFSETS = AuditedGroupOffsets({0: RECORDS, 1: 20}, "broker", at(10_000))


def two_partitions() -> JournalledTopic:
    topic = JournalledTopic()
    topic.logs[1] = topic.logs[0]
    return topic


@pytest.mark.parametrize(
    ("names", "status"), [(None, "INCONCLUSIVE"), ("ac", "FAIL"), ("abc", "FAIL")]
)
def test_a_list_of_all_sessions_decides_as_on_one_machine(
    tmp_path: Path,
    quick: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    names: str | None,
    status: str,
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 0)
    JournalMember("a", 0, 30).write(tmp_path)
    JournalMember("c", 60, RECORDS).write(tmp_path)
    seal_session(sessions(tmp_path)[0])
    ids = None if names is None else [session_id(name) for name in names]
    listed = None if ids is None else SessionList.of(ids)
    topic: Any = two_partitions()
    auditing = audit(read_journal(tmp_path), topic, TOPIC, group_offsets=OFFSETS, listed=listed)
    here = asyncio.run(auditing)
    there = audit_in_memory(quick, tmp_path, topic, group_offsets=OFFSETS, sessions=ids)
    assert here.status == there.status == status
    assert [a._asdict() for a in there.anomalies] == [a._asdict() for a in here.anomalies]
    assert there.vouched == here.vouched == (names is not None)


def test_a_session_whose_log_has_no_rows_is_not_missing(
    tmp_path: Path, quick: SparkSession
) -> None:
    for member in clean_run():
        member.write(tmp_path)
    empty = tmp_path / session_id("d")
    empty.mkdir()
    (empty / f"000001{LOG}").touch()
    (tmp_path / session_id("e")).mkdir()
    ids = [session_id(name) for name in "abde"]
    offsets = OFFSETS._replace(offsets={0: RECORDS})
    listed = SessionList.of(ids)
    topic: Any = JournalledTopic()
    auditing = audit(read_journal(tmp_path), topic, TOPIC, group_offsets=offsets, listed=listed)
    there = audit_in_memory(quick, tmp_path, topic, group_offsets=offsets, sessions=ids)
    assert found(there) == found(asyncio.run(auditing)) == []


def test_a_list_is_compared_with_the_offsets_that_were_collected_with_it(
    tmp_path: Path, quick: SparkSession
) -> None:
    members = clean_run()
    for member in members:
        member.write(tmp_path)
    write_session_list(
        tmp_path, 7, {session_id(name): ListedSession("billing", 57) for name in "ab"}
    )
    write_snapshot(tmp_path, 7, {"billing": {TopicPartition(TOPIC, 0): RECORDS}})
    # Sessions that began later have committed more.
    there = audit_in_memory(
        quick,
        tmp_path,
        two_partitions(),
        group_offsets=OFFSETS,
        sessions=tmp_path / "sessions.json",
    )
    assert (there.status, found(there)) == ("PASS", [])
    with pytest.raises(ConfigError, match="that the list of sessions lacks"):
        audit_in_memory(
            quick, tmp_path, two_partitions(), group_offsets=OFFSETS, sessions=[session_id("a")]
        )
