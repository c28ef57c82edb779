"""Each kind of anomaly, put into a clean run, is found where it is; and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from unit.written_journal import (
    MS,
    RECORDS,
    TOPIC,
    Member,
    Topic,
    at,
    audited,
    clean_run,
    found,
    record,
)

from asyncrevoke.audit import comparison, engine
from asyncrevoke.audit.catalogue import CATALOGUE, AnomalyKind
from asyncrevoke.audit.comparison import Settings
from asyncrevoke.audit.report import as_html, for_machines
from asyncrevoke.errors import ConfigError
from asyncrevoke.journal.entries import Attempts, Fact
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.schema import Kind, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_clean_run_passes(tmp_path: Path) -> None:
    result = audited(tmp_path, *clean_run())
    assert result.verdict == "PASS"
    assert found(result) == []
    assert (result.attempts, result.done, result.read) == (RECORDS, RECORDS, RECORDS)


def _lost(a: Member, _b: Member) -> None:
    del a.attempts[30], a.attempts[31]


def _failed_for_good(a: Member, _b: Member) -> None:
    a.attempts[30] = a.attempts[30]._replace(outcome=Outcome.GIVEN_UP)


def _commit_ahead(a: Member, _b: Member) -> None:
    a.commits.append(a.commit(22, at(20) + 7 * MS))


def _duplicate_after_commit(_a: Member, b: Member) -> None:
    b.more.append(Attempts([record(49)], at(60), at(60) + MS))


def _concurrent(a: Member, b: Member) -> None:
    end = at(80)
    a.attempts[49] = a.attempts[49]._replace(at=end)
    a.commits, a.end = [a.commit(49, at(49))], [a.end[-1]._replace(at=end + MS)]
    b.attempts = {
        offset: Attempts([record(offset)], at(offset + 1), at(offset + 1) + 5 * MS)
        for offset in range(50, RECORDS)
    }
    b.attempts[49] = Attempts([record(49)], at(50), at(54) + 8 * MS)
    b.begin[1] = Fact(Kind.ASSIGN, at(50) - MS, TOPIC, 0, 49, "b", 2)


def _redelivery(a: Member, _b: Member) -> None:
    a.more.append(Attempts([record(30)], at(40) + 6 * MS, at(40) + 7 * MS))


def _key_order(a: Member, _b: Member) -> None:
    a.attempts[30] = a.attempts[30]._replace(at=at(36))


def _ownership(_a: Member, b: Member) -> None:
    b.begin[1] = b.begin[1]._replace(at=at(51) + MS)


def _stale_commit(_a: Member, b: Member) -> None:
    late = at(RECORDS + 1)
    b.commits.append(b.commit(RECORDS, late, generation=1))


def _commit_regression(_a: Member, b: Member) -> None:
    b.commits = [b.commit(80, at(80)), b.commit(70, at(81)), *b.commits]


def _mismatch(a: Member, _b: Member) -> None:
    a.attempts[30] = a.attempts[30]._replace(records=[record(30, b"something else")])


def _overrun(a: Member, _b: Member) -> None:
    a.end[0] = a.end[0]._replace(at=a.end[1].at - 2_500 * MS)


CHANGES: list[tuple[Any, str, int | None, int | None]] = [
    (_lost, "lost", 30, 31),
    (_failed_for_good, "lost", 30, 30),
    (_commit_ahead, "commit_ahead", 21, 21),
    (_duplicate_after_commit, "duplicate_after_commit", 49, 49),
    (_concurrent, "concurrent_duplicate", 49, 49),
    (_redelivery, "redelivery", 30, 30),
    (_key_order, "key_order", 35, 35),
    (_ownership, "ownership", 50, 51),
    (_stale_commit, "stale_commit", RECORDS, RECORDS),
    (_commit_regression, "commit_regression", 70, 79),
    (_mismatch, "content_mismatch", 30, 30),
    (_overrun, "revocation_overrun", None, None),
]


@pytest.mark.parametrize(
    ("change", "kind", "lo", "hi"), CHANGES, ids=[change[0].__name__ for change in CHANGES]
)
def test_an_anomaly_is_found_where_it_is(
    tmp_path: Path,
    change: Callable[[Member, Member], None],
    kind: str,
    lo: int | None,
    hi: int | None,
) -> None:
    members = clean_run()
    change(*members)
    result = audited(tmp_path, *members)
    assert found(result) == [(kind, lo, hi)]
    fails = CATALOGUE[AnomalyKind(kind)].severity == "FAIL"
    assert result.verdict == ("FAIL" if fails else "PASS")


def test_a_record_that_the_topic_does_not_have_is_a_phantom(tmp_path: Path) -> None:
    assert found(audited(tmp_path, *clean_run(), topic=Topic(30, 31))) == [("phantom", 30, 31)]


def test_a_record_beyond_the_end_of_the_log_is_a_phantom(tmp_path: Path) -> None:
    assert found(audited(tmp_path, *clean_run(), topic=Topic(hi=98))) == [("phantom", 98, 99)]


def test_holes_that_nobody_handled_are_no_loss(tmp_path: Path) -> None:
    a, b = clean_run()
    del a.attempts[30]
    assert found(audited(tmp_path, a, b, topic=Topic(30))) == []


def test_what_the_log_no_longer_has_cannot_be_verified(tmp_path: Path) -> None:
    result = audited(tmp_path, *clean_run(), topic=Topic(lo=10))
    assert found(result) == [("unverifiable", 0, 9)]
    assert result.verdict == "PASS"


def test_a_call_that_died_with_its_process_is_an_orphan(tmp_path: Path) -> None:
    a, b = Member("a", 0, 50, strict=True), Member("b", 50, RECORDS)
    late = at(50) + 4 * MS
    a.more.append(Fact(Kind.START, late, TOPIC, 0, 50, record=record(50)))
    a.end = []
    result = audited(tmp_path, a, b)
    assert found(result) == [("orphan", 50, 50)]
    assert result.verdict == "PASS"


def test_a_session_without_end_makes_it_inconclusive(tmp_path: Path) -> None:
    a, b = clean_run()
    a.end = []
    result = audited(tmp_path, a, b)
    assert found(result) == [("journal_gap", None, None)]
    assert result.verdict == "INCONCLUSIVE"
    assert result.verdict.exit_code == 3
    assert "killed" in str(result.anomalies[0].evidence["reason"])


def test_a_failure_outweighs_a_gap(tmp_path: Path) -> None:
    a, b = clean_run()
    a.end = []
    _lost(a, b)
    assert audited(tmp_path, a, b).verdict == "FAIL"


def test_a_missing_segment_makes_it_inconclusive(tmp_path: Path) -> None:
    a, b = clean_run()
    a.write(tmp_path)
    (tmp_path / "a" / "000001.arrow").rename(tmp_path / "a" / "000002.arrow")
    result = audited(tmp_path, b)
    assert result.verdict == "INCONCLUSIVE"
    assert result.anomalies[0].evidence["reason"] == "segment 000001 is missing"


def test_records_that_wait_for_the_next_owner_are_a_stall(tmp_path: Path) -> None:
    a, b = clean_run()
    late = 20_000 * MS
    b.attempts = {
        o: e._replace(started=at(o) + late, at=e.at + late) for o, e in b.attempts.items()
    }
    b.commits, b.end = (
        [b.commit(RECORDS, at(RECORDS) + late)],
        [b.end[-1]._replace(at=at(101) + late)],
    )
    result = audited(tmp_path, a, b)
    assert found(result) == [("stall", 50, 50)]
    assert result.anomalies[0].evidence["seconds"] == pytest.approx(20.005)


def test_offsets_that_were_sought_past_are_not_lost(tmp_path: Path) -> None:
    a, b = clean_run()
    for offset in range(30, 40):
        del a.attempts[offset]
    a.more.append(Fact(Kind.RESET, at(30), TOPIC, 0, 40, "a", 1))
    assert found(audited(tmp_path, a, b)) == [("sought_past", 30, 39)]


def test_going_back_by_a_seek_repeats_and_is_no_failure(tmp_path: Path) -> None:
    _, b = clean_run()
    a = Member("a", 0, 50)
    again = at(50) + 5 * MS
    a.more = [
        Fact(Kind.RESET, again + 3 * MS, TOPIC, 0, 49, "a", 1),
        Attempts([record(49)], again + 4 * MS, again + 4 * MS),
    ]
    a.end = [Fact(Kind.END, again + 5 * MS)]
    assert found(audited(tmp_path, a, b)) == [("redelivery", 49, 49)]


def test_what_is_not_committed_yet_is_told(tmp_path: Path) -> None:
    a, _ = clean_run()
    assert found(audited(tmp_path, a)) == [("pending", 50, 99)]


def test_the_order_of_a_batch_is_not_judged_within_it(tmp_path: Path) -> None:
    a, b = clean_run()
    for offset in range(20):
        del a.attempts[offset]
    a.more.append(Attempts([record(o) for o in range(20)], at(0), at(19)))
    assert found(audited(tmp_path, a, b)) == []


@pytest.mark.parametrize("change", [c for c in CHANGES if c[1] in {"lost", "content_mismatch"}])
def test_fingerprints_find_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[Any, str, int, int]
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 1)
    members = clean_run()
    change[0](*members)
    result = audited(tmp_path, *members)
    assert found(result) == [change[1:]]
    assert result.two_tiers
    assert result.exact_ranges == [(0, 0, RECORDS)]


def test_equal_fingerprints_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 1)
    topic = Topic()
    assert audited(tmp_path, *clean_run(), topic=topic).verdict == "PASS"
    assert topic.asked == [(0, 0, RECORDS)]


def test_exact_reads_everything_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 1)
    result = audited(tmp_path, *clean_run(), settings=Settings(exact=True))
    assert not result.two_tiers


def test_the_report_is_one_page_without_network(tmp_path: Path) -> None:
    members = clean_run()
    _lost(*members)
    result = audited(tmp_path, *members)
    page = as_html(result)
    assert "<span class=FAIL>FAIL</span> orders" in page
    assert page.count("<svg") == 2
    assert "http" not in page
    assert for_machines(result)["anomalies"][0]["offset_lo"] == 30


def test_a_topic_that_the_journal_does_not_know_is_named(tmp_path: Path) -> None:
    for member in clean_run():
        member.write(tmp_path)
    with pytest.raises(ConfigError, match="says nothing of topic 'bills'; it knows orders"):
        engine.of_one_group(read_journal(tmp_path), "bills", None)


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no journal"):
        read_journal(tmp_path)
    with pytest.raises(ConfigError, match="there is no folder"):
        read_journal(tmp_path / "nothing")


def test_every_kind_has_a_meaning() -> None:
    assert set(CATALOGUE) == set(AnomalyKind)
