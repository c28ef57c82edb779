"""Damaged and missing files of a journal are found on Spark as on one machine."""

from __future__ import annotations

import asyncio
import random
import re
from typing import TYPE_CHECKING, Any, cast

import pytest
from spark.audits.topic_frames import as_frame
from unit.journal.sealed_again import seal_again
from unit.journal.test_journal_damage import flipped, in_segments
from unit.journal.topic.test_collected_journals import piece
from unit.journal.written_journal import TOPIC, A, B, JournalledTopic

from asyncrevoke.audit.local_engine import audit as audit_locally
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.journal.errors import DamagedJournalError
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.segments import read, read_file, seal
from asyncrevoke.journal.topic.offsets_snapshot import write_snapshot
from asyncrevoke.journal.views import open_views

pytest.importorskip("pyspark", reason="needs the extra spark")

from asyncrevoke.spark.audits.journal import blobs_frame, checked_journal, journal_views, overview
from asyncrevoke.spark.audits.run import audit
from asyncrevoke.spark.audits.segments import check_files, find_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asyncrevoke.journal.segments import Segment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def flip(segment: Segment) -> None:
    data = segment.path.read_bytes()
    segment.path.write_bytes(flipped(data, len(data) // 2, random.Random(3)))


def remove(segment: Segment) -> None:
    segment.path.unlink()


def of_other(segment: Segment) -> None:
    """Whole, and of another session."""
    other = in_segments(segment.path.parents[2] / "other", B, sealed=segment.sealed)
    segment.path.write_bytes(other.segments()[1].path.read_bytes())


@pytest.mark.parametrize("damage", [flip, remove, of_other])
@pytest.mark.parametrize("sealed", [False, True], ids=["logs", "sealed"])
def test_both_engines_name_the_file_and_the_session(
    quick: SparkSession, tmp_path: Path, damage: object, *, sealed: bool
) -> None:
    folder = tmp_path / "journal"
    segments = in_segments(folder, sealed=sealed).segments()
    assert callable(damage)
    damage(segments[1])
    here = read_journal(folder)
    (state,) = here.sessions
    checked = check_files(quick, find_files(quick, folder))
    (chain,) = checked.chains.values()
    assert chain.name == state.name == A
    told = chain.damaged
    assert told == list(state.damaged)
    assert segments[1].path.name in " ".join(told) or f"{segments[1].number:06}" in told[0]
    with pytest.raises(DamagedJournalError, match=re.escape(f"{A} is damaged: {told[0]}")):
        journal_views(quick, folder)
    with pytest.raises(DamagedJournalError, match=re.escape(f"{A} is damaged: {told[0]}")):
        open_views(folder)


def give_to_other(rows: list[dict[str, Any]]) -> None:
    rows[0]["session_id"] = B


def repeat(rows: list[dict[str, Any]]) -> None:
    rows.append(rows[-1])


def lose_last(rows: list[dict[str, Any]]) -> None:
    """No number of a row is missing, because all that follow have another one."""
    del rows[-1]
    rows[-1]["facts"] = '{"rows": 1000}'
    rows[-1]["kind"] = "END"


def without_consumer(rows: list[dict[str, Any]]) -> None:
    rows[0]["facts"] = None


@pytest.mark.parametrize(
    ("change", "at", "sentence"),
    [
        (give_to_other, 1, f"segment 000002.parquet has rows of session {B}"),
        (repeat, 1, "1 rows occur more than once, first row "),
        (lose_last, -1, "its END row declares 1000 rows, and it has "),
        (without_consumer, 0, "its BEGIN row has no facts about the consumer"),
    ],
)
def test_rows_that_do_not_fit_their_session_are_named_by_both_engines(
    quick: SparkSession,
    tmp_path: Path,
    change: Callable[[list[dict[str, Any]]], None],
    at: int,
    sentence: str,
) -> None:
    seal_again(in_segments(tmp_path, sealed=True).segments()[at], change)
    states = {state.name: state for state in read_journal(tmp_path).sessions}
    known = checked_journal(quick, tmp_path).overview
    (found,) = (state for state in known.sessions if state.name == A)
    assert any(text.startswith(sentence) for text in found.damaged)
    assert found.damaged == states[A].damaged
    with pytest.raises(DamagedJournalError, match=re.escape(f"{A} is damaged: {found.damaged[0]}")):
        journal_views(quick, tmp_path)
    with pytest.raises(DamagedJournalError, match=re.escape(f"{A} is damaged: {found.damaged[0]}")):
        open_views(tmp_path)


def test_a_value_of_a_topic_that_was_changed_makes_its_session_incomplete(
    quick: SparkSession,
) -> None:
    whole, second = piece(A), piece(A, 11)
    changed = flipped(second, len(second) - 3, random.Random(1))
    columns = [(bytearray(each),) for each in (whole, changed, b"of another program")]
    rows = blobs_frame(cast("Any", quick).createDataFrame(columns, "value BINARY"))
    (state,) = overview(rows).sessions
    assert state.name == A
    assert state.damaged[0].startswith("a value of its topic: rows 11 to 20 were changed after")
    with pytest.raises(DamagedJournalError, match=f"{A} is damaged: a value of its topic"):
        journal_views(quick, rows)


def test_a_flipped_bit_of_a_sealed_file_makes_both_audits_inconclusive(
    quick: SparkSession, tmp_path: Path
) -> None:
    flip(in_segments(tmp_path, sealed=True).segments()[1])
    topic = JournalledTopic()
    there = audit(quick, journal=tmp_path, source=as_frame(quick, topic), topic=TOPIC)
    here = asyncio.run(audit_locally(read_journal(tmp_path), topic, TOPIC))
    gaps = [
        [(a.sessions, a.evidence["reason"]) for a in each.anomalies if a.kind == "journal_gap"]
        for each in (here, there)
    ]
    assert gaps[0] == gaps[1]
    ((name,), reason), *_ = gaps[1]
    assert name == A
    assert str(reason).startswith("segment 000002.parquet: its bytes were changed")
    assert there.status == here.status == "INCONCLUSIVE"


def test_a_journal_of_which_no_file_can_be_read_names_it(
    quick: SparkSession, tmp_path: Path
) -> None:
    session = in_segments(tmp_path, sealed=True)
    first, *others = session.segments()
    for segment in others:
        remove(segment)
    flip(first)
    checked = check_files(quick, find_files(quick, tmp_path))
    assert len(checked.damaged) == 1
    (chain,) = checked.chains.values()
    assert chain.damaged == list(read_journal(tmp_path).sessions[0].damaged)


def test_committed_offsets_of_a_collected_journal_are_compared(
    quick: SparkSession, tmp_path: Path
) -> None:
    in_segments(tmp_path, sealed=True)
    source = as_frame(quick, JournalledTopic())
    before = audit(quick, journal=tmp_path, source=source, topic=TOPIC)
    assert before.group_offsets is None
    write_snapshot(tmp_path, 1_800_000_000_000_000, {"billing": {TopicPartition(TOPIC, 0): 90}})
    found = audit(quick, journal=tmp_path, source=source, topic=TOPIC)
    assert found.group_offsets is not None
    assert (found.group_offsets.source, found.group_offsets.offsets) == ("snapshot", {0: 90})


@pytest.mark.parametrize("sealed", [False, True])
def test_a_check_says_what_reading_the_rows_says(tmp_path: Path, *, sealed: bool) -> None:
    segments = in_segments(tmp_path).segments()
    if sealed:
        segments = [seal(each) for each in segments]
    for segment in segments:
        assert same(segment, segment.path.read_bytes())
    data = segments[0].path.read_bytes()
    chance = random.Random(5)
    for at in range(0, len(data), 17):
        assert same(segments[0], flipped(data, at, chance))


def same(segment: Segment, data: bytes) -> bool:
    segment.path.write_bytes(data)
    rows: list[object] = []
    found: Sequence[object] = read_file(str(segment.path), data, rows.append)[1:]
    return found == read(segment)[1:]
