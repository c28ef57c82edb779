"""Each kind of anomaly, put into a clean run, is found where it is; and nothing else."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from unit.audit.injected_anomalies import BATCH_CASES, CASES, Injected, a_stall, lost, written
from unit.audit.share import share_journals
from unit.journal.written_journal import (
    RECORDS,
    TOPIC,
    A,
    B,
    JournalledTopic,
    at,
    audited,
    clean_run,
    found,
    lost_rows,
    of_run,
)

from asyncrevoke.audit import comparison, local_engine
from asyncrevoke.audit.anomalies import DESCRIPTIONS, Anomaly, AnomalyKind
from asyncrevoke.audit.audited_group import AuditSettings
from asyncrevoke.audit.errors import TopicError
from asyncrevoke.audit.results.report import as_html, for_machines
from asyncrevoke.audit.sql.database import AuditDatabase
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.journal.reading import read_journal

EXACT = [pytest.param(True, marks=pytest.mark.variant), False]
OF_SHARE_GROUPS = {
    "archived",
    "duplicate_after_acknowledgement",
    "acknowledged_twice",
    "unexplained_redelivery",
    "ended_elsewhere",
    "not_acknowledged",
}
# Without hashes of all records, anomalies of other kinds are found as with them:
# proof/test_injected_at_random.py has each kind.
LESS_HASHED = [
    pytest.param(
        case,
        id=case.name,
        marks=[]
        if any(kind.startswith("content_") for kind, *_ in case.found)
        else [pytest.mark.variant],
    )
    for case in CASES
]


def test_a_clean_run_passes(tmp_path: Path) -> None:
    result = audited(tmp_path, *clean_run())
    assert result.status == "PASS"
    assert found(result) == []
    assert (result.attempts, result.done, result.read) == (RECORDS, RECORDS, RECORDS)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_an_anomaly_is_found_where_it_is_and_nothing_else(tmp_path: Path, case: Injected) -> None:
    topic = written(tmp_path, case)
    result = audited(tmp_path, topic=topic)
    assert found(result) == list(case.found)
    severities = {DESCRIPTIONS[AnomalyKind(kind)].severity for kind, *_ in case.found}
    assert result.status == (
        "FAIL"
        if "FAIL" in severities
        else "INCONCLUSIVE"
        if "INCONCLUSIVE" in severities
        else "PASS"
    )


@pytest.mark.parametrize("exact", EXACT, ids=["exact", "by fingerprints"])
@pytest.mark.parametrize("case", LESS_HASHED)
def test_without_hashes_all_but_content_is_found(
    tmp_path: Path, case: Injected, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 0)
    topic = written(tmp_path, case, content=None)
    result = audited(tmp_path, topic=topic, settings=AuditSettings(exact=exact))
    about_content = ("content_mismatch", "content_not_compared")
    assert [candidate for candidate in found(result) if candidate[0] != "content_not_compared"] == [
        candidate for candidate in case.found if candidate[0] not in about_content
    ]
    assert {a.sessions for a in result.anomalies if a.kind == "content_not_compared"} == {
        (A,),
        (B,),
    }


@pytest.mark.parametrize("exact", EXACT, ids=["exact", "by fingerprints"])
@pytest.mark.parametrize("case", LESS_HASHED)
def test_by_batches_the_same_is_found_where_batches_are_the_same(
    tmp_path: Path, case: Injected, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 0)
    topic = written(tmp_path, case, content="batches")
    result = audited(tmp_path, topic=topic, settings=AuditSettings(exact=exact))
    assert found(result) == [
        candidate for candidate in case.found if candidate[0] != "content_mismatch"
    ]


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "by fingerprints"])
@pytest.mark.parametrize("case", BATCH_CASES, ids=[case.name for case in BATCH_CASES])
def test_what_was_handled_of_another_batch_is_found(
    tmp_path: Path, case: Injected, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 0)
    result = audited(tmp_path, topic=written(tmp_path, case), settings=AuditSettings(exact=exact))
    assert found(result) == list(case.found)
    assert (result.status == "FAIL") == any(kind == "content_mismatch" for kind, *_ in case.found)


def test_a_batch_is_named_by_its_offsets_and_its_checksums(tmp_path: Path) -> None:
    (case,) = [case for case in BATCH_CASES if case.name == "another batch"]
    (anomaly,) = audited(tmp_path, topic=written(tmp_path, case)).anomalies
    assert anomaly.sessions == (A,)
    assert anomaly.evidence == {
        "batch_from": 30,
        "batch_to": 31,
        "handled_checksum": 1,
        "checksum_in_the_topic": 1030,
    }


def test_a_source_without_batches_says_what_would_compare_content(tmp_path: Path) -> None:
    topic = JournalledTopic()
    topic.has_batches = False
    members = clean_run()
    for member in members:
        member.content = "batches"
    result = audited(tmp_path, *members, topic=topic)
    assert found(result) == [("content_not_compared", None, None)] * 2
    assert 'Journal(content="records")' in str(result.anomalies[0].evidence["reason"])


def test_what_compaction_has_left_of_a_batch_is_not_compared(tmp_path: Path) -> None:
    topic = JournalledTopic(30)
    topic.compacted = True
    members = clean_run()
    for member in members:
        member.content = "batches"
    members[0].attempts.pop(30)
    result = audited(tmp_path, *members, topic=topic)
    assert found(result) == [("content_not_compared", 31, 31)]


def test_a_batch_that_compaction_has_marked_is_not_compared(tmp_path: Path) -> None:
    topic = JournalledTopic()
    topic.compacted, topic.rewritten = True, 1
    a, b = clean_run()
    a.content = b.content = "batches"
    a.fetched[15] = a.fetched[15]._replace(checksum=1)
    result = audited(tmp_path, a, b, topic=topic)
    assert found(result) == [("content_not_compared", 30, 31)]


def test_batches_without_a_beginning_are_known_by_their_rows(tmp_path: Path) -> None:
    a, b = clean_run()
    a.content = b.content = "batches"
    a.fetched[15] = a.fetched[15]._replace(checksum=1)
    a.write(tmp_path)
    b.write(tmp_path)
    lost_rows(tmp_path / A, 0, 0)
    assert found(audited(tmp_path)) == [("journal_gap", None, None), ("content_mismatch", 30, 31)]


def test_a_partition_without_hashes_of_unordered_keys_is_compared_by_fingerprints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 0)
    members = clean_run()
    for member in members:
        member.content = None
    result = audited(tmp_path, *members)
    assert result.two_tiers
    assert result.exact_ranges == []
    assert {kind for kind, *_ in found(result)} == {"content_not_compared"}
    assert result.status == "PASS"


def test_sessions_without_a_beginning_have_no_hashes_either(tmp_path: Path) -> None:
    members = clean_run()
    for member in members:
        member.content = None
        member.write(tmp_path)
    lost_rows(tmp_path / A, 0, 0)
    result = audited(tmp_path)
    assert found(result) == [
        ("journal_gap", None, None),
        ("content_not_compared", None, None),
        ("content_not_compared", None, None),
    ]


def test_every_kind_of_anomaly_is_injected() -> None:
    # For these, rows or journals have to be missing, or offsets set by an administrator.
    every = (*CASES, *share_journals.CASES)
    injected = {kind for case in every for kind, *_ in case.found}
    of_records = {kind for kind in DESCRIPTIONS if not kind.startswith("result_")}
    missing = {AnomalyKind.NOT_RECORDED, AnomalyKind.JOURNAL_MISSING, AnomalyKind.OFFSET_SET}
    assert injected | missing == of_records


def test_anomalies_of_one_partition_are_not_those_of_another(tmp_path: Path) -> None:
    result = audited(tmp_path, topic=written(tmp_path, *CASES))
    for number, case in enumerate(CASES):
        of_case = [
            (str(a.kind), a.offset_lo, a.offset_hi)
            for a in result.anomalies
            if a.partition == number or of_run(a.sessions, number)
        ]
        assert sorted(of_case, key=str) == sorted(case.found, key=str), case.name


def test_a_session_without_an_end_makes_the_audit_incomplete(tmp_path: Path) -> None:
    a, b = clean_run()
    a.end = []
    result = audited(tmp_path, a, b)
    assert result.status.exit_code == 3
    assert "killed" in str(result.anomalies[0].evidence["reason"])


def test_a_failure_outweighs_a_gap(tmp_path: Path) -> None:
    a, b = clean_run()
    a.end = []
    lost(a, b)
    assert audited(tmp_path, a, b).status == "FAIL"


def test_a_missing_segment_makes_it_inconclusive(tmp_path: Path) -> None:
    a, b = clean_run()
    a.write(tmp_path)
    (tmp_path / A / "000001.log").rename(tmp_path / A / "000002.log")
    result = audited(tmp_path, b)
    assert result.status == "INCONCLUSIVE"
    assert result.anomalies[0].evidence["reason"] == "segment 000001 is missing"


@pytest.mark.parametrize("damage", ["rows", "tail", "bytes"])
@pytest.mark.parametrize("two_tiers", [False, True])
def test_what_a_missing_part_may_have_held_is_not_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_tiers: bool, damage: str
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 0 if two_tiers else 10**9)
    a, b = clean_run()
    a.write(tmp_path)
    b.write(tmp_path)
    log = tmp_path / A / "000001.log"
    if damage == "bytes":
        data = bytearray(log.read_bytes())
        data[len(data) // 2] ^= 1
        log.write_bytes(data)
    else:
        lost_rows(tmp_path / A, 20, 30 if damage == "rows" else 51)
    result = audited(tmp_path)
    assert result.status == "INCONCLUSIVE"
    kinds = {kind for kind, *_ in found(result)}
    assert {"journal_gap", "not_recorded"} <= kinds
    assert "lost" not in kinds


def test_what_was_committed_before_the_rows_that_are_missing_is_lost_all_the_same(
    tmp_path: Path,
) -> None:
    a, b = clean_run()
    del a.attempts[10], b.attempts[70]
    a.commits.insert(0, a.commit(20, at(20)))
    a.write(tmp_path)
    b.write(tmp_path)
    # After the commit of offset 20: calls for offsets from 30 on.
    lost_rows(tmp_path / A, 33, 36)
    result = audited(tmp_path)
    assert result.status == "FAIL"
    kinds = [(kind, lo, hi) for kind, lo, hi in found(result) if kind in ("lost", "not_recorded")]
    assert kinds[0] == ("lost", 10, 10)
    assert ("not_recorded", 70, 70) in kinds
    assert len(kinds) == 3


def test_what_is_missing_of_one_partition_hides_no_loss_of_another(tmp_path: Path) -> None:
    topic = JournalledTopic()
    topic.logs[1] = topic.logs[0]
    others = clean_run(1, 1)
    del others[1].attempts[70]
    for member in (*clean_run(), *others):
        member.write(tmp_path)
    lost_rows(tmp_path / A, 20, 30)
    result = audited(tmp_path, topic=topic)
    assert result.status == "FAIL"
    lost_records = [(a.partition, a.offset_lo) for a in result.anomalies if a.kind == "lost"]
    assert lost_records == [(1, 70)]
    assert {a.partition for a in result.anomalies if a.kind == "not_recorded"} == {0}


def test_a_stall_has_its_length(tmp_path: Path) -> None:
    members = clean_run()
    a_stall(*members)
    (anomaly,) = audited(tmp_path, *members).anomalies
    assert anomaly.evidence["seconds"] == pytest.approx(20.005)


@pytest.mark.parametrize(
    "topic", [JournalledTopic(lo=60), JournalledTopic(hi=45)], ids=["retention", "end"]
)
def test_only_records_of_the_log_are_read_to_measure_a_stall(
    tmp_path: Path, topic: JournalledTopic
) -> None:
    members = clean_run()
    a_stall(*members)
    audited(tmp_path, *members, topic=topic)
    bounds = topic.bounds[0]
    assert topic.asked
    assert all(bounds.lo <= each.lo < each.hi <= bounds.hi for each in topic.asked)


def test_uncommitted_offsets_are_reported(tmp_path: Path) -> None:
    a, _ = clean_run()
    assert found(audited(tmp_path, a)) == [("pending", 50, 99)]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_fingerprints_find_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Injected
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 1)
    topic = written(tmp_path, case)
    result = audited(tmp_path, topic=topic)
    assert found(result) == list(case.found)
    assert result.two_tiers


def test_equal_fingerprints_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 1)
    topic = JournalledTopic()
    assert audited(tmp_path, *clean_run(), topic=topic).status == "PASS"
    assert topic.asked == [(0, 0, RECORDS)]


@pytest.mark.parametrize(
    "topic", [JournalledTopic(lo=10), JournalledTopic(hi=98)], ids=["retention", "end"]
)
def test_what_the_topic_does_not_have_makes_no_fingerprint_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: JournalledTopic
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 1)
    result = audited(tmp_path, *clean_run(), topic=topic)
    assert result.exact_ranges == []
    assert result.read == len(topic.logs[0].records(0))


def test_an_unqueried_table_is_not_built() -> None:
    database = AuditDatabase()
    database.define("doubled", "SELECT 2 * n AS n FROM single")
    database.define("broken", "SELECT n FROM nowhere")
    database.put("single", {"n": "INT"}, [(21,)])
    assert database.rows("SELECT n FROM doubled") == [(42,)]
    assert database.rows("SELECT n + 1 FROM doubled") == [(43,)]


def test_a_comparison_that_does_not_fit_into_its_memory_says_so() -> None:
    database = AuditDatabase(memory_limit=2**20)
    database.put("numbers", {"n": "INT"}, [(10_000_000,)])
    with pytest.raises(ConfigError, match="memory_limit="):
        database.rows("SELECT list(i) FROM numbers, generate_series(1, n) made(i)")
    database.close()


def test_a_topic_that_cannot_be_read_ends_the_rules_that_run_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = threading.Event()

    def rules_that_take_hours(self: comparison.Comparison) -> None:
        started.set()
        self._db.rows("SELECT sum(i ^ j) FROM range(10000000) a(i), range(10000000) b(j)")

    class UnreadableTopic(JournalledTopic):
        async def read(self, *args: Any, **kwargs: Any) -> None:
            await asyncio.to_thread(started.wait)
            raise TopicError("no broker responds")

    monkeypatch.setattr(comparison.Comparison, "apply_rules_of_journal", rules_that_take_hours)
    with pytest.raises(TopicError, match="no broker responds"):
        audited(tmp_path, *clean_run(), topic=UnreadableTopic())


def test_a_query_uses_the_tables_of_the_tables_that_it_names() -> None:
    database = AuditDatabase()
    database.define("compared", "SELECT off FROM source")
    database.define("uneven", "SELECT off FROM compared")
    assert database.uses("SELECT off FROM attempts JOIN uneven ON true", {"source"})
    assert not database.uses("SELECT off FROM attempts", {"source"})


def test_an_audit_in_little_memory_has_the_same_result(tmp_path: Path) -> None:
    members = clean_run()
    lost(*members)
    for member in members:
        member.write(tmp_path)
    topic = JournalledTopic()
    found = [
        asyncio.run(
            local_engine.audit(read_journal(tmp_path), topic, TOPIC, memory_limit=memory_limit)
        )
        for memory_limit in (None, 1)
    ]
    assert found[0].status == "FAIL"
    assert found[1] == found[0]


def test_exact_reads_everything_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 1)
    result = audited(tmp_path, *clean_run(), settings=AuditSettings(exact=True))
    assert not result.two_tiers


def test_the_report_is_one_page_without_network(tmp_path: Path) -> None:
    members = clean_run()
    lost(*members)
    result = audited(tmp_path, *members)
    page = as_html(result)
    assert "<span class=FAIL>FAIL</span> orders" in page
    assert page.count("<svg") == 2
    assert "http" not in page
    assert for_machines(result)["anomalies"][0]["offset_lo"] == 30


def test_the_page_shows_untrusted_names_and_evidence_as_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\n\x1b'\""
    result = audited(tmp_path, *clean_run())
    stall = Anomaly(
        AnomalyKind.STALL,
        "orders",
        0,
        sessions=(hostile,),
        evidence={"seconds": 2.0, hostile: hostile},
    )
    facts = {"host": hostile, "pid": hostile}
    page = as_html(
        result._replace(
            topic=hostile,
            group=hostile,
            anomalies=[stall, Anomaly(AnomalyKind.JOURNAL_GAP, sessions=(hostile,))],
            sessions=tuple(
                session._replace(name=hostile, facts=facts) for session in result.sessions
            ),
            spans=[(part, hostile, since, until) for part, _, since, until in result.spans],
        )
    )
    assert "<script" not in page
    assert page.isprintable()
    assert page.count("&lt;script&gt;") > 8
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in page
    assert 'stroke="#b00020"' in page


def test_a_topic_that_the_journal_does_not_know_is_named(tmp_path: Path) -> None:
    for member in clean_run():
        member.write(tmp_path)
    with pytest.raises(ConfigError, match="has no rows of topic 'bills'; it has rows of orders"):
        local_engine.group_and_sessions(read_journal(tmp_path), "bills", None)


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no journal"):
        read_journal(tmp_path)
    with pytest.raises(ConfigError, match="there is no folder"):
        read_journal(tmp_path / "nothing")


def test_every_kind_has_a_meaning() -> None:
    assert set(DESCRIPTIONS) == set(AnomalyKind)


def test_the_pages_about_audits_describe_each_anomaly_as_the_report_does() -> None:
    how_to = Path(__file__).parents[3] / "docs" / "how-to"
    row = re.compile(r"^\| `(\w+)` \| ([A-Z]{4,} \| .*) \|$", re.MULTILINE)
    rows: dict[str, str] = dict(row.findall((how_to / "journal.md").read_text("utf-8")))
    assert rows.keys() == {str(kind) for kind in AnomalyKind} - OF_SHARE_GROUPS
    shared = dict(row.findall((how_to / "auditing-share-groups.md").read_text("utf-8")))
    rows |= {kind: shared[kind] for kind in OF_SHARE_GROUPS}
    for kind, (severity, text) in DESCRIPTIONS.items():
        assert rows[kind].startswith(f"{severity} | {text}"), kind
