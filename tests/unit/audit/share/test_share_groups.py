"""The audit of share groups: acknowledgements in place of commits, and redeliveries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from unit.audit.share.share_journals import BATCH, CASES, LATER, Injected, ShareMember, written
from unit.journal.written_journal import MS, RECORDS, TOPIC, JournalledTopic, at, found, lost_rows

from asyncrevoke.audit import comparison
from asyncrevoke.audit.local_engine import audit
from asyncrevoke.audit.offsets import AuditedGroupOffsets
from asyncrevoke.journal.format.schema import RowKind
from asyncrevoke.journal.reading import read_journal

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.audit.results.audit_result import AuditResult

STARTS = AuditedGroupOffsets({0: RECORDS}, "broker", LATER)


def audited(
    folder: Path,
    *members: ShareMember,
    offsets: AuditedGroupOffsets | None = STARTS,
    topic: Any = None,
) -> AuditResult:
    for member in members:
        member.write(folder)
    source = topic or JournalledTopic()
    return asyncio.run(audit(read_journal(folder), source, TOPIC, group_offsets=offsets))


def clean() -> tuple[ShareMember, ShareMember]:
    return ShareMember("a", 0), ShareMember("b", BATCH)


@pytest.fixture(scope="module", params=[0, 10**9], ids=["by fingerprints", "record by record"])
def every(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    folder = tmp_path_factory.mktemp("journal")
    topic, starts = written(folder, *CASES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "EXACT_BELOW", request.param)
        return audited(folder, topic=topic, offsets=starts)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_each_case_is_found_and_nothing_else(every: AuditResult, number: int) -> None:
    case: Injected = CASES[number]
    here = [a for a in every.anomalies if a.partition == number]
    assert [(str(a.kind), a.offset_lo, a.offset_hi) for a in here] == list(case.found)


def test_a_clean_run_passes(tmp_path: Path) -> None:
    result = audited(tmp_path, *clean())
    assert (result.status, found(result)) == ("PASS", [])
    assert result.done == RECORDS


def test_without_start_offsets_nothing_is_known_to_be_ended(tmp_path: Path) -> None:
    a, b = clean()
    a.accepts[20] = a.accepts[20]._replace(last_offset=24)
    result = audited(tmp_path, a, b, offsets=None)
    assert (result.status, found(result)) == ("PASS", [("pending", 0, RECORDS - 1)])


def test_a_member_without_a_journal_leaves_the_audit_inconclusive(tmp_path: Path) -> None:
    a, _ = clean()
    result = audited(tmp_path, a)
    assert result.status == "INCONCLUSIVE"
    expected = [("ended_elsewhere", first, first + 9) for first in range(BATCH, RECORDS - 10, 20)]
    assert [each for each in found(result) if each[1] != RECORDS - 10] == expected


def test_a_reset_of_the_start_offset_explains_that_records_are_handled_again(
    tmp_path: Path,
) -> None:
    a, b = clean()
    c = ShareMember("c", 20)
    c.acquired, c.attempts, c.accepts = {}, {}, {}
    # After a and b have ended.
    c.again(23, at(200))
    c.accept(23, at(201))
    c.begins = at(199)
    result = audited(tmp_path, a, b, c)
    assert result.status == "PASS"
    assert {kind for kind, *_ in found(result)} == {"offset_set"}


def test_rows_that_are_missing_make_the_result_inconclusive(tmp_path: Path) -> None:
    a, b = clean()
    a.write(tmp_path)
    lost_rows(tmp_path / a.folder, 8, 9)
    result = audited(tmp_path, b)
    assert result.status == "INCONCLUSIVE"
    kinds = {kind for kind, *_ in found(result)}
    assert "journal_gap" in kinds
    assert kinds <= {"journal_gap", "not_recorded", "ended_elsewhere"}


@pytest.mark.parametrize("last", [2**63 - 1, -1, 10**12])
def test_offsets_of_a_hostile_journal_cost_no_memory(tmp_path: Path, last: int) -> None:
    a, b = clean()
    b.more.append(b.fact(RowKind.ACCEPT, at(40), 0, last, "refused"))
    b.more.append(b.fact(RowKind.LOCK_LOST, at(41), last, last))
    b.more.append(b.fact(RowKind.ACQUIRED, at(42) + MS, 2**63 - 1, 2**63 - 1))
    assert audited(tmp_path, a, b).status == "PASS"


@pytest.mark.parametrize("at_byte", [40, 400, -40])
def test_a_flipped_byte_makes_the_result_inconclusive(tmp_path: Path, at_byte: int) -> None:
    a, b = clean()
    a.write(tmp_path)
    log = tmp_path / a.folder / "000001.log"
    content = bytearray(log.read_bytes())
    content[at_byte] ^= 1
    log.write_bytes(content)
    assert audited(tmp_path, b).status == "INCONCLUSIVE"
