"""Audits of topics that are given by their offsets alone."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from spark.audits.topic_frames import always
from spark.real_topics import ended_ranges
from unit.journal.written_journal import A, facts

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import Record
from asyncrevoke.journal.format.schema import CallOutcome, RowKind
from asyncrevoke.journal.recording.entries import Attempts, Entry, Fact
from asyncrevoke.journal.recording.log_file import LogFile
from asyncrevoke.journal.segments import JournalSession

pytest.importorskip("pyspark", reason="needs the extra spark")

from asyncrevoke.audit.audited_group import AuditSettings
from asyncrevoke.spark import audit
from asyncrevoke.spark.audits import run
from asyncrevoke.spark.reading import dense

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.broker,
    pytest.mark.kafka_topic(partitions=1),
    pytest.mark.timeout(600),
]

_AT = 1_800_000_000_000_000


def fill(broker: RunningBroker, topic: str, records: int, **options: Any) -> None:
    async def produce() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options)
        async with producer:
            if options:
                await producer.begin_transaction()
            for n in range(records):
                await producer.send_and_wait(topic, b"%d" % n, partition=0)
            if options:
                await producer.commit_transaction()

    asyncio.run(produce())


def journal(folder: Path, topic: str, offsets: list[int], committed: int) -> Path:
    """Of a consumer that has done these, and committed so far."""
    records = [Record(topic, 0, offset, 0, 0, None, b"") for offset in offsets]
    known = json.dumps(facts())
    order = json.dumps({"handler": "bill", "order_by": "key"})
    rows: list[Entry] = [
        Fact(RowKind.BEGIN, _AT, facts=known),
        Fact(RowKind.ASSIGN, _AT, topic, 0, 0, "m", 1),
        Fact(RowKind.TOPIC, _AT, topic, facts=order),
        Attempts(records, _AT, _AT + 1),
        Fact(RowKind.COMMIT, _AT + 2, topic, 0, committed, "m", 1, CallOutcome.OK),
        Fact(RowKind.END, _AT + 3),
    ]
    queue: deque[Any] = deque()
    seq = 0
    for row in rows:
        queue.append((seq, row))
        seq += len(row.records) if isinstance(row, Attempts) else 1
    session = JournalSession(folder / A)
    session.folder.mkdir()
    log = LogFile(session, "billing", segment_bytes=2**20, segment_seconds=60)
    log.take(queue)
    log.close()
    return folder


@pytest.mark.parametrize("exact_below", [1, 4_000_000])
def test_what_was_not_done_is_found_without_reading_the_topic(
    spark: SparkSession,
    kafka_broker: RunningBroker,
    kafka_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    exact_below: int,
) -> None:
    monkeypatch.setattr(run, "_settings", always(AuditSettings(exact_below=exact_below)))
    fill(kafka_broker, kafka_topic, 20)
    offsets = [offset for offset in range(18) if offset not in (7, 8)]
    audited = audit(
        spark,
        journal=journal(tmp_path, kafka_topic, [*offsets, 30], 18),
        source="dense",
        topic=kafka_topic,
        bootstrap=kafka_broker.bootstrap_servers,
    )
    found = [(str(a.kind), a.offset_lo, a.offset_hi) for a in audited.anomalies]
    assert found == [("lost", 7, 8), ("phantom", 30, 30), ("pending", 18, 19)]


def test_a_topic_with_gaps_given_as_dense_is_rejected(
    spark: SparkSession,
    kafka_broker: RunningBroker,
    kafka_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(kafka_broker, kafka_topic, 5)
    fill(kafka_broker, kafka_topic, 1, transactional_id=kafka_topic)
    ended_ranges(kafka_broker.bootstrap_servers, kafka_topic, 7)
    fill(kafka_broker, kafka_topic, 5)
    # The marker of the transaction is at 6: the group has passed it, and nobody has done it.
    folder = journal(tmp_path, kafka_topic, [*range(6), *range(7, 12)], 12)
    address = kafka_broker.bootstrap_servers
    rejected = r"-0 has no record at offset 6, .* read the topic instead"
    with pytest.raises(ConfigError, match=rejected):
        audit(spark, journal=folder, source="dense", topic=kafka_topic, bootstrap=address)
    # Where its ends show nothing, what would be called lost does.
    monkeypatch.setattr(dense, "_SAMPLE", 2)
    with pytest.raises(ConfigError, match=rejected):
        audit(spark, journal=folder, source="dense", topic=kafka_topic, bootstrap=address)


def test_dense_without_brokers_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    folder = journal(tmp_path, "orders", [0], 1)
    with pytest.raises(ConfigError, match=r'audit\(\.\.\., bootstrap="localhost:9092"\)'):
        audit(spark, journal=folder, source="dense", topic="orders")
    with pytest.raises(ConfigError, match="source='sparse': use the options"):
        audit(spark, journal=folder, source="sparse", topic="orders")  # type: ignore[arg-type]
