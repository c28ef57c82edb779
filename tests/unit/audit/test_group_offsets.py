"""Offsets that the group has committed and no journal accounts for make an audit inconclusive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from unit.journal.written_journal import (
    MS,
    RECORDS,
    TOPIC,
    A,
    B,
    JournalledTopic,
    JournalMember,
    at,
    clean_run,
    found,
    lost_rows,
    session_id,
)

from asyncrevoke.audit import comparison
from asyncrevoke.audit.local_engine import audit
from asyncrevoke.audit.offsets import AuditedGroupOffsets
from asyncrevoke.audit.results.report import as_html, as_json, coverage_lines
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.journal.format.schema import CallOutcome, RowKind
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.recording.entries import Fact
from asyncrevoke.journal.session_list import ListedSession, SessionList

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.audit.results.audit_result import AuditResult

# When the broker is asked: after all members have ended.
LATER = at(10_000)


def audited(
    folder: Path,
    *members: JournalMember,
    committed: int | None = None,
    topic: JournalledTopic | None = None,
    listed: SessionList | None = None,
) -> AuditResult:
    """Audit the journals of these members. The broker has this committed offset, if it is asked."""
    for member in members:
        member.write(folder)
    offsets = None if committed is None else AuditedGroupOffsets({0: committed}, "broker", LATER)
    source: Any = topic or JournalledTopic()
    auditing = audit(read_journal(folder), source, TOPIC, group_offsets=offsets, listed=listed)
    return asyncio.run(auditing)


@pytest.fixture(params=[False, True], ids=["record by record", "by fingerprints"], autouse=True)
def two_tiers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 0 if request.param else 10**9)


def three_members(folder: Path, *, without: str) -> None:
    """Write the journals of members of which the last two began where the one before them ended."""
    ranges = {"a": (0, 30), "b": (30, 60), "c": (60, RECORDS)}
    for name, (first, last) in ranges.items():
        if name != without:
            JournalMember(name, first, last).write(folder)


def test_a_clean_run_is_accounted_for(tmp_path: Path) -> None:
    result = audited(tmp_path, *clean_run(), committed=RECORDS)
    assert (result.status, found(result)) == ("PASS", [])


@pytest.mark.parametrize(("without", "first", "last"), [("a", 0, 29), ("b", 30, 59), ("c", 60, 99)])
def test_a_member_whose_journal_is_missing_leaves_a_gap_with_its_offsets(
    tmp_path: Path, without: str, first: int, last: int
) -> None:
    three_members(tmp_path, without=without)
    result = audited(tmp_path, committed=RECORDS)
    assert result.status == "INCONCLUSIVE"
    (gap,) = [anomaly for anomaly in result.anomalies if anomaly.kind == "journal_gap"]
    assert (gap.partition, gap.offset_lo, gap.offset_hi) == (0, first, last)
    assert "no journal accounts for it" in str(gap.evidence["reason"])
    kinds = {kind for kind, *_ in found(result)}
    assert kinds <= {"journal_gap", "not_recorded"}


def test_the_offset_at_which_a_member_began_shows_that_another_is_missing(tmp_path: Path) -> None:
    three_members(tmp_path, without="b")
    result = audited(tmp_path)
    assert result.status == "INCONCLUSIVE"
    assert found(result) == [("journal_gap", 30, 59), ("not_recorded", 30, 59)]


def test_without_offsets_of_the_group_the_last_member_is_not_missed_and_the_report_says_so(
    tmp_path: Path,
) -> None:
    three_members(tmp_path, without="c")
    result = audited(tmp_path)
    assert result.status == "PASS"
    assert "were not compared" in list(coverage_lines(result))[-1]
    assert "were not compared" in as_html(result)
    assert as_json(result)["group_offsets"] is None


def test_what_others_have_lost_is_a_failure_beside_a_gap(tmp_path: Path) -> None:
    last = JournalMember("c", 60, RECORDS)
    del last.attempts[80]
    three_members(tmp_path, without="b")
    (tmp_path / "again").mkdir()
    JournalMember("a", 0, 30).write(tmp_path / "again")
    result = audited(tmp_path / "again", last, committed=RECORDS)
    assert result.status == "FAIL"
    assert ("lost", 80, 80) in found(result)
    assert ("not_recorded", 30, 59) in found(result)


def test_commits_of_a_killed_process_need_no_row_if_its_attempts_are_there(tmp_path: Path) -> None:
    a, b = clean_run()
    a.strict, a.commits, a.end = True, [], []
    result = audited(tmp_path, a, b, committed=RECORDS)
    assert (result.status, found(result)) == ("PASS", [])


def test_a_strict_journal_whose_end_was_cut_leaves_a_gap(tmp_path: Path) -> None:
    a, b = clean_run()
    a.strict, a.commits, a.end = True, [], []
    for offset in range(20, 50):
        del a.attempts[offset]
    result = audited(tmp_path, a, b, committed=RECORDS)
    assert result.status == "INCONCLUSIVE"
    assert found(result) == [("journal_gap", 20, 49), ("not_recorded", 20, 49)]
    (gap, _) = result.anomalies
    assert gap.evidence["records_without_a_row"] == 30


def test_the_last_session_needs_the_offsets_of_the_group_if_it_was_killed(tmp_path: Path) -> None:
    a, b = clean_run()
    b.strict, b.end = True, []
    a.write(tmp_path)
    b.write(tmp_path)
    unknown = audited(tmp_path)
    assert unknown.status == "INCONCLUSIVE"
    (gap,) = unknown.anomalies
    assert (gap.kind, gap.partition, gap.sessions) == ("journal_gap", 0, (B,))
    assert audited(tmp_path, committed=RECORDS).status == "PASS"


def test_holes_of_the_log_before_a_commit_are_no_gap(tmp_path: Path) -> None:
    a, b = clean_run()
    a.strict, a.end = True, []
    a.commits = [a.commit(40, at(40))]
    for offset in range(40, 50):
        del a.attempts[offset]
    result = audited(tmp_path, a, b, committed=RECORDS, topic=JournalledTopic(*range(40, 50)))
    assert (result.status, found(result)) == ("PASS", [])


def test_what_retention_has_removed_is_no_gap(tmp_path: Path) -> None:
    _, b = clean_run()
    result = audited(tmp_path, b, committed=RECORDS, topic=JournalledTopic(lo=50))
    assert result.status == "PASS"
    assert found(result) == [("unverifiable", 0, 49)]
    assert "retention" in str(result.anomalies[0].evidence["reason"])


def test_an_offset_that_was_set_back_while_no_member_ran_is_named(tmp_path: Path) -> None:
    a, b = clean_run()
    late = 1000 * MS
    b.begin = [each._replace(at=each.at + late) for each in b.begin]
    b.begin[1] = b.begin[1]._replace(offset=45)
    for offset in range(45, 50):
        b.attempts[offset] = b.attempt(offset, at(50) + late, at(50) + late)
    for offset in range(50, RECORDS):
        b.attempts[offset] = b.attempt(offset, at(offset) + late, at(offset) + late)
    b.commits = [b.commit(RECORDS, at(101) + late)]
    b.end = [Fact(RowKind.END, at(101) + late)]
    result = audited(tmp_path, a, b, committed=RECORDS)
    assert result.status == "PASS"
    assert found(result) == [("offset_set", 45, 49), ("redelivery", 45, 49)]


def test_an_offset_that_was_set_back_while_members_ran_is_of_a_missing_member(
    tmp_path: Path,
) -> None:
    a, b = clean_run()
    late = 1000 * MS
    b.begin = [each._replace(at=each.at + late) for each in b.begin]
    b.begin[1] = b.begin[1]._replace(offset=45)
    b.attempts = {o: b.attempt(o, at(50 + o) + late, at(50 + o) + late) for o in range(45, RECORDS)}
    b.commits = [b.commit(RECORDS, at(201) + late)]
    b.end = [Fact(RowKind.END, at(201) + late)]
    other = JournalMember("c", 0, 100, partition=1)
    other.begin = [each._replace(at=each.at - late) for each in other.begin]
    other.end[-1] = other.end[-1]._replace(at=at(300) + late)
    topic = JournalledTopic()
    topic.logs[1] = topic.logs[0]
    result = audited(tmp_path, a, b, other, committed=RECORDS, topic=topic)
    assert result.status == "INCONCLUSIVE"
    assert found(result) == [("journal_gap", 45, 49), ("redelivery", 45, 49)]


def test_a_commit_without_a_response_may_have_been_accepted(tmp_path: Path) -> None:
    a, b = clean_run()
    a.commits = [commit._replace(outcome=CallOutcome.UNKNOWN) for commit in a.commits]
    result = audited(tmp_path, a, b, committed=RECORDS)
    assert (result.status, found(result)) == ("PASS", [])


def test_what_a_completion_map_says_of_a_missing_member_is_not_lost(tmp_path: Path) -> None:
    a, b = clean_run()
    for offset in (60, 61, 62):
        del b.attempts[offset]
    skipped = b.fact(RowKind.SKIPPED, b.begin[1].at, None, 2)
    b.begin.append(skipped._replace(facts='{"runs": [[60, 62]]}'))
    result = audited(tmp_path, a, b, committed=RECORDS)
    assert result.status == "FAIL"
    assert found(result) == [
        ("journal_gap", 60, 61),
        ("lost", 62, 62),
        ("not_recorded", 60, 61),
    ]


@pytest.mark.parametrize(
    "facts",
    [
        "{",
        "[]",
        '{"runs": 1}',
        '{"runs": [[1]]}',
        '{"runs": [["a", 2]]}',
        '{"runs": [[0, Infinity]]}',
        '{"runs": [[0, 1e999]]}',
        '{"runs": [[0, 1e300]]}',
        '{"runs": [[0, 99999999999999999999]]}',
    ],
)
def test_facts_that_are_no_completion_map_say_nothing(tmp_path: Path, facts: str) -> None:
    a, b = clean_run()
    skipped = b.fact(RowKind.SKIPPED, b.begin[1].at, None, 2)
    b.begin.append(skipped._replace(facts=facts))
    assert audited(tmp_path, a, b, committed=RECORDS).status == "PASS"


def test_the_report_says_what_was_covered(tmp_path: Path) -> None:
    result = audited(tmp_path, *clean_run(), committed=RECORDS)
    covered, compared = coverage_lines(result)
    assert covered.startswith(
        "Covered: 100 offsets of 1 partition, in the journals of 2 sessions, from 2027-01-15 "
    )
    assert "from the broker at 2027-01-15" in compared
    assert as_json(result)["group_offsets"] == {
        "source": "broker",
        "at_us": LATER,
        "offsets": {"0": RECORDS},
    }
    assert covered in as_html(result)
    assert {state.name for state in result.sessions} == {A, B}


def listed(*names: str, rows: int | None = None) -> SessionList:
    """A list of these members' sessions, each of which has so many rows."""
    return SessionList({session_id(name): ListedSession("billing", rows) for name in names})


@pytest.mark.parametrize(("without", "first", "last"), [("a", 0, 29), ("b", 30, 59), ("c", 60, 99)])
def test_with_a_list_of_all_sessions_records_that_no_journal_names_are_lost(
    tmp_path: Path, without: str, first: int, last: int
) -> None:
    three_members(tmp_path, without=without)
    present = listed(*{"a", "b", "c"} - {without})
    result = audited(tmp_path, committed=RECORDS, listed=present)
    assert result.status == "FAIL"
    assert found(result) == [("journal_gap", first, last), ("lost", first, last)]
    assert "a list of all sessions" in as_html(result)


def test_a_partition_that_no_journal_names_is_compared_with_a_list_of_all_sessions(
    tmp_path: Path,
) -> None:
    topic = JournalledTopic()
    topic.logs[1] = topic.logs[0]
    offsets = AuditedGroupOffsets({0: RECORDS, 1: 20}, "broker", LATER)
    for member in clean_run():
        member.write(tmp_path)
    content = read_journal(tmp_path)
    source: Any = topic
    for names, status in ((None, "INCONCLUSIVE"), (listed("a", "b"), "FAIL")):
        auditing = audit(content, source, TOPIC, group_offsets=offsets, listed=names)
        result = asyncio.run(auditing)
        assert result.status == status
        lost = [a[2:5] for a in result.anomalies if a.kind == "lost"]
        assert lost == ([] if names is None else [(1, 0, 19)])


def test_a_listed_session_without_a_journal_fails_the_audit(tmp_path: Path) -> None:
    three_members(tmp_path, without="b")
    result = audited(tmp_path, committed=RECORDS, listed=listed("a", "b", "c"))
    assert result.status == "FAIL"
    # Its journal may have a row for these records.
    assert found(result) == [
        ("journal_missing", None, None),
        ("journal_gap", 30, 59),
        ("not_recorded", 30, 59),
    ]
    assert result.anomalies[0].sessions == (B,)


def test_a_listed_session_with_fewer_rows_fails_the_audit(tmp_path: Path) -> None:
    members = clean_run()
    result = audited(tmp_path, *members, committed=RECORDS, listed=listed("a", "b", rows=57))
    assert result.status == "PASS"
    result = audited(tmp_path, committed=RECORDS, listed=listed("a", "b", rows=58))
    assert result.status == "FAIL"
    assert [kind for kind, *_ in found(result)] == ["journal_missing"] * 2
    assert result.anomalies[0].evidence["reason"] == "it has 57 of the 58 rows of the list"


def test_a_consumer_that_did_not_start_may_be_listed(tmp_path: Path) -> None:
    (tmp_path / session_id("d")).mkdir()
    (tmp_path / session_id("d") / "lock").touch()
    every = listed("a", "b", "d")
    result = audited(tmp_path, *clean_run(), committed=RECORDS, listed=every)
    assert (result.status, found(result)) == ("PASS", [])
    result = audited(tmp_path, committed=RECORDS, listed=listed("a", "b", "d", rows=1))
    assert [a.sessions for a in result.anomalies] == [(session_id("d"),)]


def test_a_damaged_journal_stays_inconclusive_with_a_list_of_all_sessions(tmp_path: Path) -> None:
    for member in clean_run():
        member.write(tmp_path)
    lost_rows(tmp_path / A, 20, 40)
    result = audited(tmp_path, committed=RECORDS, listed=listed("a", "b", rows=57))
    assert result.status == "INCONCLUSIVE"
    assert {kind for kind, *_ in found(result)} == {"journal_gap", "not_recorded"}


def test_a_list_of_sessions_changes_nothing_where_all_is_accounted_for(tmp_path: Path) -> None:
    result = audited(tmp_path, *clean_run(), committed=RECORDS, listed=listed("a", "b"))
    assert (result.status, found(result)) == ("PASS", [])
    assert as_json(result)["vouched"] is True


def test_a_session_of_another_group_may_be_listed(tmp_path: Path) -> None:
    both = listed("a", "b")
    other = {session_id("d"): ListedSession("other", 5)}
    result = audited(
        tmp_path, *clean_run(), committed=RECORDS, listed=SessionList({**both.sessions, **other})
    )
    assert (result.status, found(result)) == ("PASS", [])


def test_a_list_that_lacks_a_session_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"1 session of group 'billing' .* lacks, first {B}"):
        audited(tmp_path, *clean_run(), committed=RECORDS, listed=listed("a"))


def test_a_completion_map_of_a_member_that_no_list_names_tells_what_is_lost(tmp_path: Path) -> None:
    a, b = clean_run()
    for offset in (60, 61):
        del b.attempts[offset]
    skipped = b.fact(RowKind.SKIPPED, b.begin[1].at, None, 2)
    b.begin.append(skipped._replace(facts='{"runs": [[60, 62]]}'))
    result = audited(tmp_path, a, b, committed=RECORDS, listed=listed("a", "b"))
    assert found(result) == [("journal_gap", 60, 61), ("lost", 60, 61)]
