"""The results that a journal has of transactions, compared with those that are visible."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from unit.journal.written_journal import (
    MS,
    RECORDS,
    TOPIC,
    A,
    B,
    JournalledTopic,
    JournalMember,
    Log,
    at,
    clean_run,
    found,
    lost_rows,
)

from asyncrevoke.audit.anomalies import AnomalyKind
from asyncrevoke.audit.audited_group import AuditSettings
from asyncrevoke.audit.local_engine import audit
from asyncrevoke.audit.results.report import as_html, coverage_lines, for_machines
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.runtime.hooks.recorders import WrittenResult
from asyncrevoke.journal.format.schema import RowKind
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.recording.entries import Results

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from asyncrevoke.audit.results.audit_result import AuditResult

INVOICES = TopicPartition("invoices", 0)
# Ten results in each transaction, and its marker.
IN_TRANSACTION = 10
MARKERS = frozenset(range(IN_TRANSACTION, 110, IN_TRANSACTION + 1))
END = 110


def place(offset: int) -> int:
    """Where the result of a record is."""
    return offset + offset // IN_TRANSACTION


class Invoices(JournalledTopic):
    """The topic of results."""

    name = "invoices"

    def __init__(self, *missing: int, lo: int = 0, hi: int = END) -> None:
        super().__init__()
        self.logs = {0: Log(MARKERS | frozenset(missing), lo, hi)}


def results(
    member: JournalMember, places: dict[int, int], number: int, *, after: int | None = None
) -> Results:
    """A transaction with a result of each of these records, 6 ms after the last one began."""
    time = at(max(places) if after is None else after) + 6 * MS
    written = [WrittenResult(member.record(o), INVOICES, to) for o, to in places.items()]
    return Results(written, time, number)


def run(*, without: Iterable[int] = ()) -> tuple[JournalMember, JournalMember]:
    """Two members, one after the other, that have written a result of each record, except in the
    transactions that begin with these records."""
    members = clean_run()
    for member, (first, last) in zip(members, ((0, 50), (50, RECORDS)), strict=True):
        for number, begin in enumerate(range(first, last, IN_TRANSACTION)):
            if begin in without:
                continue
            offsets = range(begin, begin + IN_TRANSACTION)
            member.more.append(results(member, {o: place(o) for o in offsets}, number))
    return members


def audited(folder: Path, *members: JournalMember, invoices: Invoices | None = None) -> AuditResult:
    for member in members:
        member.write(folder)
    return asyncio.run(
        audit(
            read_journal(folder),
            JournalledTopic(),
            TOPIC,
            settings=AuditSettings(),
            results=[Invoices() if invoices is None else invoices],
        )
    )


def test_a_right_run_passes_and_says_what_was_compared(tmp_path: Path) -> None:
    result = audited(tmp_path, *run())
    assert (found(result), result.status) == ([], "PASS")
    assert result.results == (("invoices", RECORDS, RECORDS),)
    line = "Results in invoices: 100 visible records and 100 in the journals"
    assert any(text.startswith(line) for text in coverage_lines(result))
    assert for_machines(result)["results"][0]["visible"] == RECORDS
    assert line in as_html(result)


def test_a_result_that_is_not_visible_is_named_with_its_record_and_its_place(
    tmp_path: Path,
) -> None:
    result = audited(tmp_path, *run(), invoices=Invoices(place(33)))
    assert found(result) == [("result_missing", 33, 33), ("result_incomplete", 33, 33)]
    assert result.status == "FAIL"
    missing = result.anomalies[0]
    assert (missing.topic, missing.partition, missing.sessions) == (TOPIC, 0, (A,))
    assert missing.evidence["results"] == [f"invoices-0 at {place(33)}, transaction 3 of {A}"]


def test_a_transaction_of_which_nothing_is_visible_is_missing_as_a_range(tmp_path: Path) -> None:
    result = audited(tmp_path, *run(), invoices=Invoices(*map(place, range(20, 30))))
    assert found(result) == [("result_missing", 20, 29)]
    assert result.status == "FAIL"


def test_results_of_an_aborted_transaction_that_was_done_again_are_right(tmp_path: Path) -> None:
    a, b = run(without=[20])
    places = {offset: place(offset) for offset in range(20, 30)}
    a.more.append(results(a, places, 7))
    # Written before, and aborted.
    aborted = {offset: END + offset for offset in range(20, 30)}
    a.more.append(results(a, aborted, 2, after=29)._replace(at=at(29) + 5 * MS))
    invoices = Invoices(*range(END, END + 40), hi=END + 40)
    result = audited(tmp_path, a, b, invoices=invoices)
    assert (found(result), result.status) == ([], "PASS")


def killed_in_a_transaction() -> tuple[JournalMember, JournalMember]:
    """The first owner was killed before the end of its transaction with the results of 40 to 48.
    The next one has called the handler again for the records from 40 on."""
    a, b = run(without=[40])
    for offset in range(40, 50):
        b.attempts[offset] = b.attempt(offset, at(50) - 20 * MS + offset, at(50) - MS + offset)
    b.begin[1] = b.begin[1]._replace(offset=40, at=b.begin[1].at - 20 * MS)
    b.begin[0] = b.begin[0]._replace(at=b.begin[0].at - 20 * MS)
    b.begin[2] = b.begin[2]._replace(at=b.begin[0].at)
    a.commits = [a.commit(40, at(40))]
    a.more.append(results(a, {o: END + o for o in range(40, 49)}, 4, after=48))
    a.end = []
    return a, b


def of_results(result: AuditResult) -> list[tuple[str, int | None, int | None]]:
    return [each for each in found(result) if each[0].startswith("result")]


def test_results_that_the_next_owner_has_written_again_are_right(tmp_path: Path) -> None:
    a, b = killed_in_a_transaction()
    b.more.append(results(b, {o: place(o) for o in range(40, 50)}, 20, after=51))
    result = audited(tmp_path, a, b, invoices=Invoices(*range(END, 200), hi=200))
    assert of_results(result) == []


def test_a_handler_that_publishes_nothing_when_the_next_owner_calls_it_is_right(
    tmp_path: Path,
) -> None:
    a, b = killed_in_a_transaction()
    hidden = [*map(place, range(40, 50)), *range(END, 200)]
    result = audited(tmp_path, a, b, invoices=Invoices(*hidden, hi=200))
    assert of_results(result) == []


def test_results_that_only_some_calls_of_the_next_owner_have_published_are_compared(
    tmp_path: Path,
) -> None:
    a, b = killed_in_a_transaction()
    b.more.append(results(b, {o: place(o) for o in range(40, 45)}, 20, after=51))
    hidden = [*map(place, range(40, 50)), *range(END, 200)]
    result = audited(tmp_path, a, b, invoices=Invoices(*hidden, hi=200))
    assert of_results(result) == [("result_missing", 40, 44)]


def test_a_handler_that_publishes_nothing_when_its_member_calls_it_again_is_right(
    tmp_path: Path,
) -> None:
    a, b = run()
    a.attempts[RECORDS] = a.attempt(7, at(40) + MS, at(40) + 2 * MS)
    result = audited(tmp_path, a, b, invoices=Invoices(place(7)))
    # Others of the transaction are visible.
    assert of_results(result) == [("result_incomplete", 7, 7)]


def test_results_of_two_owners_are_doubled(tmp_path: Path) -> None:
    a, b = run()
    b.more.append(results(b, {48: END + 8, 49: END + 9}, 30, after=52))
    invoices = Invoices(*range(END, END + 8), hi=END + 10)
    result = audited(tmp_path, a, b, invoices=invoices)
    assert found(result) == [("result_doubled", 48, 49)]
    assert result.status == "FAIL"
    (doubled,) = result.anomalies
    assert doubled.sessions == (A, B)
    assert doubled.evidence["results"] == [
        f"invoices-0 at {place(48)}, transaction 4 of {A}",
        f"invoices-0 at {END + 8}, transaction 30 of {B}",
    ]


def test_results_of_two_transactions_of_one_member_are_doubled(tmp_path: Path) -> None:
    a, b = run()
    a.more.append(results(a, {7: END}, 9, after=30))
    result = audited(tmp_path, a, b, invoices=Invoices(hi=END + 1))
    assert found(result) == [("result_doubled", 7, 7)]


def test_several_results_in_one_transaction_are_right(tmp_path: Path) -> None:
    a, b = run()
    more = results(a, {7: END}, 0, after=9)
    a.more.append(more)
    result = audited(tmp_path, a, b, invoices=Invoices(hi=END + 1))
    assert (found(result), result.status) == ([], "PASS")


def test_results_after_a_seek_are_repeated(tmp_path: Path) -> None:
    a, b = run()
    a.more.append(a.fact(RowKind.RESET, at(40), 5, 1))
    a.more.append(results(a, {7: END}, 9, after=41))
    a.attempts[RECORDS] = a.attempt(7, at(40) + MS, at(40) + 2 * MS)
    result = audited(tmp_path, a, b, invoices=Invoices(hi=END + 1))
    assert ("result_repeated", 7, 7) in found(result)
    assert not [kind for kind, *_ in found(result) if kind == "result_doubled"]


def test_a_seek_just_before_the_first_result_repeats_nothing(tmp_path: Path) -> None:
    a, b = run()
    a.more.append(a.fact(RowKind.RESET, at(7), 5, 1))
    a.more.append(results(a, {7: END}, 9, after=30))
    result = audited(tmp_path, a, b, invoices=Invoices(hi=END + 1))
    assert ("result_doubled", 7, 7) in found(result)


@pytest.mark.parametrize(("kind", "how"), [(RowKind.LOST, "lost"), (RowKind.RELEASED, "released")])
def test_a_visible_result_of_a_lost_owner_is_named(tmp_path: Path, kind: RowKind, how: str) -> None:
    a, b = run(without=[40])
    a.end[1] = a.end[1]._replace(kind=kind)
    gone = a.end[1].at
    late = results(a, {o: place(o) for o in range(40, 50)}, 4)._replace(at=gone)
    a.end.insert(2, late)  # type: ignore[arg-type]
    result = audited(tmp_path, a, b)
    assert ("result_of_lost_owner", 40, 49) in found(result)
    assert result.status == "FAIL"
    (named,) = [a for a in result.anomalies if a.kind is AnomalyKind.RESULT_OF_LOST_OWNER]
    assert named.sessions == (A,)
    assert named.evidence["reason"] == f"after it had {how} the partition"


def test_a_visible_result_of_a_member_that_does_not_know_of_its_loss_is_named(
    tmp_path: Path,
) -> None:
    a, b = run(without=[40])
    a.end = []
    b.more.append(results(b, {o: place(o) for o in range(40, 50)}, 40, after=50))
    a.more.append(results(a, {49: END}, 4, after=70))
    result = audited(tmp_path, a, b, invoices=Invoices(hi=END + 1))
    assert ("result_of_lost_owner", 49, 49) in found(result)
    assert ("result_doubled", 49, 49) in found(result)
    (named,) = [x for x in result.anomalies if x.kind is AnomalyKind.RESULT_OF_LOST_OWNER]
    assert named.evidence["reason"] == f"while the partition was assigned to session {B}"


def test_visible_records_that_no_journal_names_leave_the_audit_inconclusive(
    tmp_path: Path,
) -> None:
    result = audited(tmp_path, *run(), invoices=Invoices(hi=END + 3))
    assert found(result) == [("result_unaccounted", END, END + 2)]
    assert result.status == "INCONCLUSIVE"
    (named,) = result.anomalies
    assert (named.topic, named.evidence["records"]) == ("invoices", 3)


def test_a_result_at_an_unknown_offset_is_not_compared(tmp_path: Path) -> None:
    a, b = run(without=[20])
    a.more.append(results(a, dict.fromkeys(range(20, 30), -1), 2, after=29))
    missing = map(place, range(20, 30))
    result = audited(tmp_path, a, b, invoices=Invoices(*missing))
    assert found(result) == [("result_not_compared", 20, 29)]
    assert result.status == "INCONCLUSIVE"


def test_results_after_the_last_stable_offset_are_not_compared(tmp_path: Path) -> None:
    result = audited(tmp_path, *run(), invoices=Invoices(hi=place(90)))
    assert found(result) == [("result_not_compared", 90, 99)]
    assert result.status == "INCONCLUSIVE"


def test_a_missing_result_is_not_certain_if_rows_are_missing(tmp_path: Path) -> None:
    members = run()
    for member in members:
        member.write(tmp_path)
    lost_rows(tmp_path / A, 20, 20)
    result = audited(tmp_path, invoices=Invoices(*map(place, range(30, 40))))
    kinds = {kind for kind, *_ in found(result)}
    assert "result_missing" not in kinds
    assert "result_not_compared" in kinds
    assert result.status == "INCONCLUSIVE"


def test_results_that_retention_has_removed_cannot_be_compared(tmp_path: Path) -> None:
    result = audited(tmp_path, *run(), invoices=Invoices(lo=place(20)))
    assert found(result) == [("unverifiable", 0, 19)]
    assert result.status == "PASS"


def test_results_of_records_that_are_not_committed_may_be_missing(tmp_path: Path) -> None:
    a, b = run()
    b.commits = [b.commit(90, b.commits[0].at)]
    result = audited(tmp_path, a, b, invoices=Invoices(*map(place, range(90, 100))))
    assert found(result) == [("pending", 90, 99)]


def test_topics_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    compacted = Invoices()
    compacted.compacted = True
    with pytest.raises(ConfigError, match="compacted"):
        audited(tmp_path, *run(), invoices=compacted)
    receipts = Invoices()
    receipts.name = "receipts"
    with pytest.raises(ConfigError, match="the journal has no results in 'receipts'"):
        audited(tmp_path, invoices=receipts)


def test_facts_that_name_no_topic_are_ignored(tmp_path: Path) -> None:
    a, b = run()
    hostile = a.fact(RowKind.RESULT, at(30), 3, 1)
    texts = ["[]", "{", json.dumps({"topic": 5}), json.dumps({"topic": "'; DROP TABLE visible"})]
    a.more += [hostile._replace(facts=text) for text in texts]
    result = audited(tmp_path, a, b)
    assert (found(result), result.status) == ([], "PASS")
