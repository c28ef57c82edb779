"""Two owners of a partition at once, and work and commits of a session that does not own it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.journal.written_journal import MS, A, B, at, audited, clean_run, found

from asyncrevoke.audit.audited_group import AuditSettings
from asyncrevoke.journal.format.schema import RowKind
from asyncrevoke.journal.recording.entries import Attempts, Fact

if TYPE_CHECKING:
    from pathlib import Path

    from unit.journal.written_journal import JournalMember


def released_later(member: JournalMember, until: int) -> None:
    """The member does nothing more, and releases the partition later."""
    member.end[1] = member.end[1]._replace(at=until)
    member.end[2] = member.end[2]._replace(at=until)


def test_a_partition_that_two_members_owned_without_working_on_it_is_named(tmp_path: Path) -> None:
    a, b = clean_run()
    released_later(a, at(70))
    a.end[0] = a.end[0]._replace(at=at(69))
    result = audited(tmp_path, a, b)
    assert result.status == "PASS"
    (anomaly,) = result.anomalies
    assert (anomaly.kind, anomaly.severity, anomaly.partition) == ("two_owners", "WARN", 0)
    assert anomaly.sessions == (A, B)
    assert anomaly.evidence["seconds"] == pytest.approx(0.201)


@pytest.mark.parametrize(("skew", "kinds"), [(0.3, set[str]()), (0.1, {"two_owners"})])
def test_clocks_that_differ_make_no_two_owners(
    tmp_path: Path, skew: float, kinds: set[str]
) -> None:
    a, b = clean_run()
    released_later(a, at(70))
    a.end[0] = a.end[0]._replace(at=at(69))
    result = audited(tmp_path, a, b, settings=AuditSettings(skew=skew))
    assert {kind for kind, *_ in found(result)} == kinds


def test_a_killed_member_owned_its_partitions_until_its_last_row(tmp_path: Path) -> None:
    a, b = clean_run()
    a.strict, a.end = True, []
    assert found(audited(tmp_path, a, b)) == []


@pytest.mark.parametrize("late", [1, 20, 49, 1000])
@pytest.mark.parametrize("what", ["begins", "ends", "is delivered"])
def test_work_after_the_release_is_found_however_soon(tmp_path: Path, what: str, late: int) -> None:
    a, b = clean_run()
    released = a.end[1].at
    begun = released + late * MS if what != "ends" else released - MS
    entry = Attempts([a.record(49)], begun, released + late * MS)
    del a.attempts[49]
    a.more = [entry._replace(attempt=None) if what == "is delivered" else entry]
    a.commits = [a.commit(50, released + late * MS)]
    a.end = [a.end[0], a.end[1], Fact(RowKind.END, released + late * MS)]
    result = audited(tmp_path, a, b)
    assert ("ownership", 49, 49) in found(result)
    assert result.status == "FAIL"


def stopped_in_a_commit(a: JournalMember, b: JournalMember, sent: int) -> None:
    """The process of ``a`` is stopped after it has sent a commit. It records the response when it
    continues, and loses the partition, which ``b`` has handled since."""
    until = b.end[-1].at + MS
    a.commits = [a.commit(40, at(40)), a.commit(50, until)._replace(started_us=sent)]
    lost = a.fact(RowKind.LOST, until, None, 1)
    a.end = [lost, Fact(RowKind.END, until)]
    b.commits = [b.commit(70, at(70))._replace(started_us=at(70) - MS), *b.commits]


def test_a_commit_whose_response_is_recorded_late_is_not_after_those_in_between(
    tmp_path: Path,
) -> None:
    a, b = clean_run()
    stopped_in_a_commit(a, b, at(50) - MS)
    assert found(audited(tmp_path, a, b)) == [("two_owners", None, None)]


def test_a_commit_that_was_sent_after_one_of_the_next_owner_is_found(tmp_path: Path) -> None:
    a, b = clean_run()
    stopped_in_a_commit(a, b, at(76))
    assert {kind for kind, *_ in found(audited(tmp_path, a, b))} == {
        "two_owners",
        "stale_commit",
        "commit_regression",
    }


def test_a_commit_sent_before_another_was_accepted_may_have_been_accepted_first(
    tmp_path: Path,
) -> None:
    a, b = clean_run()
    stopped_in_a_commit(a, b, at(70) - MS)
    assert {kind for kind, *_ in found(audited(tmp_path, a, b))} == {"two_owners"}


def test_a_response_that_is_recorded_late_hides_no_lost_record(tmp_path: Path) -> None:
    a, b = clean_run()
    stopped_in_a_commit(a, b, at(50) - MS)
    del b.attempts[60]
    assert ("lost", 60, 60) in found(audited(tmp_path, a, b))
