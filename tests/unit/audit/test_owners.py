"""Two owners of a partition at once, and work of a session that does not own it."""

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
