"""The audit on Spark: the same rules give the same results as on one machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from spark.audits.topic_frames import always, as_frame, audit_in_memory
from unit.audit.injected_anomalies import BATCH_CASES, CASES, Injected, written
from unit.audit.share import share_journals
from unit.journal.written_journal import TOPIC, A, JournalledTopic, clean_run, lost_rows, session_id

from asyncrevoke import ConfigError, Consumer, Record
from asyncrevoke.audit import comparison
from asyncrevoke.audit.anomalies import AnomalyKind
from asyncrevoke.audit.audited_group import AuditSettings
from asyncrevoke.audit.local_engine import audit as audit_locally
from asyncrevoke.audit.topic.record_hashes import record_columns
from asyncrevoke.client.columns.record_fields import fields_of
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.journal import Journal
from asyncrevoke.journal.format.arrow import pa, pq
from asyncrevoke.journal.format.rows import SCHEMA
from asyncrevoke.journal.format.schema import COLUMNS
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.segments import seal_session, sessions

pytest.importorskip("pyspark", reason="needs the extra spark")

from asyncrevoke.spark.audits import run
from asyncrevoke.spark.audits.journal import checked_journal
from asyncrevoke.spark.audits.run import audit

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asyncrevoke.audit.anomalies import Anomaly
    from asyncrevoke.audit.results.audit_result import AuditResult
    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


ALL = (*CASES, *BATCH_CASES)


class Both:
    """One journal with every anomaly, audited by both engines."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        topic = written(folder, *ALL)
        here: AuditResult = asyncio.run(audit_locally(read_journal(folder), topic, TOPIC))
        self.here = here
        # Half of it as Parquet, as it is found in practice.
        for session in sessions(folder)[::2]:
            seal_session(session)
        self.topic = topic
        self.source = as_frame(spark, topic)
        self.folder = folder
        self.there: AuditResult = audit_in_memory(spark, folder, topic, out=folder / "report")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, quick: SparkSession) -> Both:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "EXACT_BELOW", 0)
        return Both(tmp_path_factory.mktemp("journal"), quick)


def of_case(number: int, anomalies: list[Anomaly]) -> list[dict[str, Any]]:
    """What was found in a case's partition, or of its sessions."""
    return [
        {**a._asdict(), "evidence": sorted(a.evidence.items(), key=str)}
        for a in anomalies
        if a.partition == number
        or (a.sessions and a.sessions[0].startswith(session_id("a", number)[:16]))
    ]


@pytest.mark.parametrize("number", range(len(ALL)), ids=[case.name for case in ALL])
def test_both_engines_find_the_same(both: Both, number: int) -> None:
    case: Injected = ALL[number]
    there = of_case(number, both.there.anomalies)
    assert there == of_case(number, both.here.anomalies)
    found = [(str(a["kind"]), a["offset_lo"], a["offset_hi"]) for a in there]
    assert sorted(found, key=str) == sorted(case.found, key=str)


def test_both_commands_report_all_but_the_segments(both: Both) -> None:
    here, there = both.here, both.there
    assert there.status == here.status == "FAIL"
    assert (there.attempts, there.done, there.read) == (here.attempts, here.done, here.read)
    assert there.windows == here.windows
    assert there.spans == here.spans
    assert there.group == here.group == "billing"
    told = [(s.name, s.facts, s.rows, s.began_us, s.last_us, s.ended) for s in there.sessions]
    assert told == [
        (s.name, s.facts, s.rows, s.began_us, s.last_us, s.ended) for s in here.sessions
    ]
    assert there.latency["max"] == here.latency["max"]


def test_the_report_is_the_same_page(both: Both) -> None:
    page = (both.folder / "report" / "report.html").read_text("utf-8")
    assert "<span class=FAIL>FAIL</span> orders" in page
    assert page.count("<svg") == 2


def test_only_what_differs_by_its_fingerprint_was_compared_record_by_record(both: Both) -> None:
    assert both.there.two_tiers
    assert 0 < len(both.there.exact_ranges) < len(ALL)
    assert both.there.exact_ranges == both.here.exact_ranges


@pytest.mark.parametrize("tasks", [1, 20])
def test_the_number_of_tasks_does_not_change_the_result(
    both: Both, quick: SparkSession, tasks: int
) -> None:
    again = audit_in_memory(quick, both.folder, both.topic, tasks=tasks)
    assert again == both.there


def test_a_dataframe_of_a_topic_and_of_a_journal_gives_the_same_anomalies(
    both: Both, quick: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_settings", always(AuditSettings(exact_below=0)))
    rows = checked_journal(quick, both.folder).rows
    found = audit(quick, journal=rows, source=both.source, topic=TOPIC)
    # A DataFrame has no record batches.
    of_batches = (AnomalyKind.CONTENT_MISMATCH, AnomalyKind.CONTENT_NOT_COMPARED)
    known = [a for a in both.there.anomalies if a.kind not in of_batches]
    assert [a for a in found.anomalies if a.kind not in of_batches] == known


def test_both_engines_find_the_same_in_a_share_group(
    quick: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "EXACT_BELOW", 0)
    topic, starts = share_journals.written(tmp_path, *share_journals.CASES)
    here = asyncio.run(audit_locally(read_journal(tmp_path), topic, TOPIC, group_offsets=starts))
    for session in sessions(tmp_path)[::2]:
        seal_session(session)
    there = audit_in_memory(quick, tmp_path, topic, group_offsets=starts)
    assert there.anomalies == here.anomalies
    assert len({a.kind for a in there.anomalies}) >= 10
    assert (there.status, there.windows) == (here.status, here.windows)


def test_a_memory_limit_that_is_too_low_is_rejected(both: Both, quick: SparkSession) -> None:
    with pytest.raises(ConfigError, match="memory_limit=1000 bytes is too low"):
        audit(quick, journal=both.folder, source=both.source, topic=TOPIC, memory_limit=1000)


def test_missing_rows_are_reported(tmp_path: Path, quick: SparkSession) -> None:
    folder = tmp_path / "of a week, 90%20 done"
    a, b = clean_run()
    a.write(folder)
    b.write(folder)
    lost_rows(folder / A, 5, 8)
    known = checked_journal(quick, folder).overview
    assert [state.missing for state in known.sessions] == [((5, 8),), ()]
    assert known.sessions[0].gap == "rows 5 to 8 are missing"


def test_what_is_no_journal_is_named(tmp_path: Path, quick: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"there is no folder .*as the cluster's workers know it"):
        checked_journal(quick, tmp_path / "nothing")
    with pytest.raises(ConfigError, match="has no journal: use the path"):
        checked_journal(quick, tmp_path)


def test_a_source_without_what_is_compared_is_named(both: Both, quick: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"no column key: pass the DataFrame of"):
        audit(quick, journal=both.folder, source=both.source.drop("key"), topic=TOPIC)
    with pytest.raises(ConfigError, match="which topic"):
        audit(quick, journal=both.folder, source=both.source)


def test_hashes_of_records_are_those_of_spark(quick: SparkSession) -> None:
    keys, values = [b"a", None, b"b", b""], [b"1", b"2", None, b""]
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**20)
    for offset, (key, value) in enumerate(zip(keys, values, strict=True)):
        builder.append(offset, 0, key, value, [])
    found = fields_of(TopicPartition(TOPIC, 0), range(4), [bytes(builder.build())])
    ours = [row for candidate in found for row in record_columns(0, *candidate).to_pylist()]
    hashed = quick.createDataFrame(
        pa.table({"off": range(4), "key": pa.array(keys), "value": pa.array(values)})
    ).selectExpr(
        "if(key IS NULL, NULL, xxhash64(key)) AS key_hash",
        "xxhash64(key, value) AS record_hash",
    )
    expected = [row.asDict() for row in hashed.collect()]
    assert [{name: row[name] for name in expected[0]} for row in ours] == expected


@pytest.mark.broker
def test_tasks_compare_the_batches_that_a_consumer_received(
    kafka_broker: RunningBroker, quick: SparkSession, kafka_topic: str, tmp_path: Path
) -> None:
    servers = kafka_broker.bootstrap_servers
    consumer = Consumer(bootstrap_servers=servers, group_id=kafka_topic, journal=Journal(tmp_path))

    @consumer.handler(kafka_topic)
    async def handle(record: Record) -> None:
        if record.offset == 299:
            consumer.stop()

    async def work() -> None:
        made: Any = AIOKafkaProducer(bootstrap_servers=servers, compression_type="gzip")
        async with made as producer:
            for _ in range(3):
                sent = [
                    await producer.send(kafka_topic, b"1" * 50, partition=0) for _ in range(100)
                ]
                await asyncio.gather(*sent)
        await consumer.run()

    asyncio.run(work())
    options = {"bootstrap_servers": servers, "topic": kafka_topic}
    result = audit(quick, journal=tmp_path, source=options)
    assert (result.status, result.anomalies, result.done) == ("PASS", [], 300)


EXPRESSION = "') OR java_method('java.lang.System', 'setProperty', 'audit', 'ran') IN ('"


def test_a_session_id_that_is_an_expression_of_spark_is_rejected_and_not_evaluated(
    spark: SparkSession,
) -> None:
    row: dict[str, Any] = dict.fromkeys(column.name for column in COLUMNS) | {
        "session_id": EXPRESSION,
        "kind": "ATTEMPT",
    }
    # A row is missing between them, which is looked for by the session's id.
    rows = [row | {"seq": seq, "at_us": seq, "topic": TOPIC} for seq in (0, 2)]
    journal = spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA))
    topic = as_frame(spark, JournalledTopic())
    with pytest.raises(ConfigError, match="is not a session id"):
        audit(spark, journal=journal, source=topic, topic=TOPIC)
    jvm: Any = spark._jvm
    assert jvm.java.lang.System.getProperty("audit") is None


def test_the_file_of_a_session_with_a_foreign_name_is_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    member, _ = clean_run()
    member.write(tmp_path)
    (session,) = sessions(tmp_path)
    assert seal_session(session)
    (segment,) = session.segments()
    table = pq.read_table(segment.path).replace_schema_metadata(None)
    names = pa.array([EXPRESSION] * table.num_rows)
    pq.write_table(table.set_column(0, "session_id", names), segment.path)
    with pytest.raises(ConfigError, match=r"000001\.parquet: .* is not a session id"):
        audit(spark, journal=tmp_path, source=as_frame(spark, JournalledTopic()), topic=TOPIC)


def test_what_rows_that_are_missing_may_have_held_is_not_called_lost(
    tmp_path: Path, quick: SparkSession
) -> None:
    for member in clean_run():
        member.write(tmp_path)
    lost_rows(tmp_path / A, 20, 30)
    here = asyncio.run(audit_locally(read_journal(tmp_path), JournalledTopic(), TOPIC))
    there = audit(quick, journal=tmp_path, source=as_frame(quick, JournalledTopic()), topic=TOPIC)
    found = [[(str(a.kind), a.offset_lo, a.offset_hi) for a in x.anomalies] for x in (here, there)]
    assert found[0] == found[1]
    assert there.status == "INCONCLUSIVE"
    assert "not_recorded" in {kind for kind, *_ in found[1]}
