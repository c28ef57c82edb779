"""Journals of real processes and their audit, against a real Apache Kafka."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest
from aiokafka import AIOKafkaProducer

from asyncrevoke import ConfigError, Consumer, JournalError, Record, TopicPartition
from asyncrevoke.audit.audited_group import AuditSettings
from asyncrevoke.audit.errors import TopicError
from asyncrevoke.audit.local_engine import audit
from asyncrevoke.audit.offsets import Range
from asyncrevoke.audit.topic.topic import Topic
from asyncrevoke.cli.audit import audit_topic
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.observer import committed_offsets
from asyncrevoke.journal import Journal, KafkaSink
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.session_list import SessionList
from asyncrevoke.journal.topic.collecting import collect
from asyncrevoke.journal.topic.offsets_snapshot import read_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.audit.results.audit_result import AuditResult
    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.journal.format.schema import Content

pytestmark = [pytest.mark.broker, pytest.mark.timeout(110)]

COUNT = 4000
Level: TypeAlias = Literal["read_committed", "read_uncommitted"]
DEADLINE = 60.0


async def produce(
    servers: str, topic: str, count: int, *, transaction: str | None = None, partitions: int = 1
) -> int:
    """In a transaction of this outcome, if one is given. Returns the offset after the last one."""
    more: dict[str, Any] = {} if transaction is None else {"transactional_id": topic + transaction}
    made: Any = AIOKafkaProducer(bootstrap_servers=servers, **more)  # half typed
    async with made as producer:
        if transaction is not None:
            await producer.begin_transaction()
        sent = [
            await producer.send(
                topic, b"v%d" % number, key=b"%d" % (number % 20), partition=number % partitions
            )
            for number in range(count)
        ]
        # Flushing alone tells of no failure.
        written = await asyncio.gather(*sent)
        if transaction == "commit":
            await producer.commit_transaction()
        elif transaction == "abort":
            await producer.abort_transaction()
        return int(max(each.offset for each in written)) + 1


async def audited(
    servers: str, topic: str, folder: Path, level: Level = "read_committed"
) -> AuditResult:
    config = ConsumerConfig(bootstrap_servers=servers)
    source = await Topic.of(topic, config, isolation_level=level, no_progress_timeout=5)
    return await audit(read_journal(folder), source, topic)


async def audited_with_group(servers: str, topic: str, folder: Path) -> AuditResult:
    """The same with the offsets that the group has committed, as the command does it."""
    config = ConsumerConfig(bootstrap_servers=servers)
    return await audit_topic(folder, topic, config, topic, AuditSettings(), 5)


async def killed_member(servers: str, topic: str, folder: Path, mode: str, sink: str = "") -> None:
    """A member in another process that is killed in the middle of its work."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("journalled_handler.py")),
        *(servers, topic, str(folder), mode, sink),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE):
            for _ in range(50):
                assert await process.stdout.readline()
    finally:
        process.kill()
        await process.wait()


async def finish(
    servers: str, topic: str, journal: Path | Journal, count: int, **options: Any
) -> None:
    """Another member handles the rest, up to this offset."""
    if isinstance(journal, Path):
        journal = Journal(journal)
    consumer = Consumer(bootstrap_servers=servers, group_id=topic, journal=journal, **options)
    done = asyncio.Event()

    @consumer.handler(topic)
    async def handle(record: Record) -> None:
        if record.offset == count - 1:
            done.set()

    async with consumer:
        try:
            async with asyncio.timeout(DEADLINE):
                await done.wait()
        except TimeoutError:
            pytest.fail(f"not done: {consumer.health()}, lag {consumer.lag()}")


@pytest.mark.parametrize(
    ("mode", "status"), [("fast", "INCONCLUSIVE"), ("bare", "INCONCLUSIVE"), ("strict", "PASS")]
)
async def test_the_journal_contains_all_records_that_a_killed_process_committed(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path, mode: str, status: str
) -> None:
    servers = kafka_broker.bootstrap_servers
    await produce(servers, kafka_topic, COUNT)
    await killed_member(servers, kafka_topic, tmp_path, mode)
    async with Consumer(bootstrap_servers=servers, group_id=kafka_topic) as looker:
        found = (await looker.committed(TopicPartition(kafka_topic, 0))).popitem()[1]
    assert found is not None
    committed = found.offset
    assert committed > 0
    content = read_journal(tmp_path)
    done = {
        row["offset"]
        for row in content.table.to_pylist()
        if row["kind"] == "ATTEMPT" and row["outcome"] == "ok"
    }
    assert set(range(committed)) <= done
    (state,) = content.sessions
    assert not state.ended
    assert not state.live
    await finish(servers, kafka_topic, tmp_path, COUNT, group_instance_id="only")
    result = await audited(servers, kafka_topic, tmp_path)
    assert result.status == status
    kinds = {a.kind for a in result.anomalies} - {"redelivery", "journal_gap", "orphan"}
    assert kinds == ({"content_not_compared"} if mode == "bare" else set())
    assert result.done == COUNT


@pytest.mark.parametrize(
    "content",
    [
        "batches",
        *(pytest.param(content, marks=pytest.mark.variant) for content in ("records", None)),
    ],
)
async def test_members_that_join_and_leave_pass_the_audit(
    kafka_broker: RunningBroker, tmp_path: Path, content: Content | None
) -> None:
    servers, topic = kafka_broker.bootstrap_servers, f"audited-{tmp_path.name}"
    kafka_broker.create_topic(topic, 4)
    handled: set[tuple[int, int]] = set()
    # How many records each member has handled, in the order in which they joined.
    by_member: list[int] = []
    changed = asyncio.Event()
    written = 0

    def member() -> Consumer:
        number = len(by_member)
        by_member.append(0)
        consumer = Consumer(
            bootstrap_servers=servers,
            group_id=topic,
            journal=Journal(tmp_path, content=content),
            heartbeat_interval=0.2,
            concurrency=16,
        )

        @consumer.handler(topic)
        async def handle(record: Record) -> None:
            await asyncio.sleep(0.01)
            handled.add((record.partition, record.offset))
            by_member[number] += 1
            changed.set()

        return consumer

    async def until_handled(number: int, records: int) -> None:
        """Write until this member has handled so many more records."""
        nonlocal written
        wanted = by_member[number] + records
        async with asyncio.timeout(DEADLINE):
            while by_member[number] < wanted:
                changed.clear()
                if written - len(handled) < 200:
                    await produce(servers, topic, 400, partitions=4)
                    written += 400
                else:
                    await changed.wait()

    async with member():
        await until_handled(0, 200)
        async with member():
            await until_handled(1, 200)
            async with member():
                await until_handled(2, 200)
            await until_handled(1, 200)
        async with asyncio.timeout(DEADLINE):
            while len(handled) < written:
                changed.clear()
                await changed.wait()
    result = await audited(servers, topic, tmp_path)
    assert [a.kind for a in result.anomalies] == ([] if content else ["content_not_compared"] * 3)
    assert result.status == "PASS"
    assert len(result.sessions) == 3
    assert len({span[1] for span in result.spans}) == 3
    # Whoever's journal is missing, the others show that it is.
    for session in result.sessions:
        (tmp_path / session.name).rename(tmp_path.parent / session.name)
        without = await audited_with_group(servers, topic, tmp_path)
        (tmp_path.parent / session.name).rename(tmp_path / session.name)
        assert without.status == "INCONCLUSIVE", session.name
        kinds = {a.kind for a in without.anomalies} - {"content_not_compared"}
        assert kinds <= {"journal_gap", "not_recorded"}
    whole = await audited_with_group(servers, topic, tmp_path)
    assert whole.status == "PASS"
    assert whole.group_offsets is not None
    assert sum(whole.group_offsets.offsets.values()) == written


async def test_the_audit_counts_no_loss_for_aborted_transactions(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    servers = kafka_broker.bootstrap_servers
    await produce(servers, kafka_topic, 20)
    await produce(servers, kafka_topic, 10, transaction="abort")  # 20 to 29, a marker at 30
    end = await produce(servers, kafka_topic, 10, transaction="commit")  # 31 to 40
    await finish(servers, kafka_topic, tmp_path, end, isolation_level="read_committed")
    result = await audited(servers, kafka_topic, tmp_path)
    assert (result.status, result.anomalies, result.read) == ("PASS", [], 30)


async def test_the_audit_reports_the_batch_of_a_record_that_differs_from_the_topic(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    servers, other = kafka_broker.bootstrap_servers, f"{kafka_topic}-other"
    kafka_broker.create_topic(other, 1)
    made: Any = AIOKafkaProducer(bootstrap_servers=servers)  # half typed
    async with made as producer:
        for topic in (kafka_topic, other):
            for first in (0, 10, 20):
                batch = producer.create_batch()
                for offset in range(first, first + 10):
                    value = b"changed" if (topic, offset) == (other, 15) else b"%d" % offset
                    batch.append(key=b"a", value=value, timestamp=1000 + offset)
                await (await producer.send_batch(batch, topic, partition=0))
    await finish(servers, kafka_topic, tmp_path, 30)
    content = read_journal(tmp_path)
    results: list[AuditResult] = []
    for there in (kafka_topic, other):
        config = ConsumerConfig(bootstrap_servers=servers)
        source = await Topic.of(
            there, config, isolation_level="read_committed", no_progress_timeout=5
        )
        results.append(await audit(content, source, kafka_topic))
    same, changed = results
    assert (same.status, same.anomalies) == ("PASS", [])
    (anomaly,) = changed.anomalies
    assert changed.status == "FAIL"
    assert (anomaly.kind, anomaly.offset_lo, anomaly.offset_hi) == ("content_mismatch", 10, 19)
    assert (anomaly.evidence["batch_from"], anomaly.evidence["batch_to"]) == (10, 19)


async def test_the_audit_command_reports_a_lost_record_by_its_exit_code(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    servers = kafka_broker.bootstrap_servers
    await produce(servers, kafka_topic, 10)
    journal = tmp_path / "journal"
    await finish(servers, kafka_topic, journal, 10)
    command = [sys.executable, "-m", "asyncrevoke", "audit", str(journal)]
    options = ["--topic", kafka_topic, "--bootstrap-servers", servers]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *options, *more], capture_output=True, text=True, timeout=60, check=False
        )

    passed = await asyncio.to_thread(run, "--json")
    assert passed.returncode == 0, passed.stderr
    assert json.loads(passed.stdout)["status"] == "PASS"
    # The topic grows by records that nobody handles: they are pending, and no failure.
    await produce(servers, kafka_topic, 5)
    assert (await asyncio.to_thread(run)).returncode == 0
    # Somebody handles one of them, and commits all.
    async with Consumer(
        kafka_topic,
        bootstrap_servers=servers,
        group_id=kafka_topic,
        commit_mode="manual",
        journal=Journal(journal),
    ) as other:
        await other.poll(max_records=1)
        await other.commit({TopicPartition(kafka_topic, 0): 15})
    failed = await asyncio.to_thread(run, "--json", "--out", str(tmp_path / "out"))
    assert failed.returncode == 1
    lost = [a for a in json.loads(failed.stdout)["anomalies"] if a["kind"] == "lost"]
    assert [(a["offset_lo"], a["offset_hi"]) for a in lost] == [(11, 14)]
    assert "FAIL" in (tmp_path / "out" / "report.html").read_text()


async def test_the_audit_command_fails_if_a_listed_journal_is_missing(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    servers, journal = kafka_broker.bootstrap_servers, tmp_path / "journal"
    for last in (10, 20):
        await produce(servers, kafka_topic, 10)
        await finish(servers, kafka_topic, journal, last)
    states = sorted(read_journal(journal).sessions, key=lambda state: state.began_us or 0)
    ids = [state.name for state in states]
    command = [sys.executable, "-m", "asyncrevoke", "audit", str(journal), "--json"]
    options = ["--topic", kafka_topic, "--bootstrap-servers", servers]

    async def run(*names: str) -> tuple[int, set[str]]:
        (tmp_path / "sessions").write_text("\n".join(names))
        more = ["--sessions", str(tmp_path / "sessions")] if names else []
        process = await asyncio.to_thread(
            subprocess.run, [*command, *options, *more], capture_output=True, text=True, timeout=60
        )
        anomalies: list[Any] = json.loads(process.stdout or '{"anomalies": []}')["anomalies"]
        return process.returncode, {anomaly["kind"] for anomaly in anomalies}

    assert await run(*ids) == (0, set())
    assert await run(ids[0]) == (2, set())
    shutil.rmtree(journal / ids[1])
    assert await run() == (3, {"journal_gap", "not_recorded"})
    assert await run(ids[0]) == (1, {"journal_gap", "lost"})
    assert await run(*ids) == (1, {"journal_missing", "journal_gap", "not_recorded"})


async def test_an_open_transaction_ends_the_audit_with_an_error(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    servers = kafka_broker.bootstrap_servers
    await produce(servers, kafka_topic, 10)
    async with AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id=kafka_topic
    ) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(kafka_topic, b"open", partition=0)
        await producer.send_and_wait(kafka_topic, b"open", partition=0)
        await finish(servers, kafka_topic, tmp_path, 12)
        config = ConsumerConfig(bootstrap_servers=servers)
        source = await Topic.of(
            kafka_topic, config, isolation_level="read_committed", no_progress_timeout=2
        )
        assert source.bounds[0] == (0, 10)
        with pytest.raises(TopicError, match="a transaction may be open"):
            await source.read([Range(0, 0, 12)], lambda _records: None)
        assert (await audited(servers, kafka_topic, tmp_path, "read_uncommitted")).status == "PASS"
        await producer.abort_transaction()


async def test_a_journal_in_a_topic_is_collected_and_audited(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    servers, sink = kafka_broker.bootstrap_servers, f"{kafka_topic}-journal"
    kafka_broker.create_topic(sink, 2)
    last = await produce(servers, kafka_topic, COUNT)
    # Two machines, neither of whose disks is looked at afterwards.
    to_topic = KafkaSink(sink, bootstrap_servers=servers)
    await killed_member(servers, kafka_topic, tmp_path / "one", "fast", sink)
    await finish(
        servers,
        kafka_topic,
        Journal(tmp_path / "two", sink=to_topic),
        last,
        group_instance_id="only",
    )
    config = ConsumerConfig(bootstrap_servers=servers)

    async def committed_by(group: str) -> Mapping[TopicPartition, int]:
        async with GroupsClient(config) as brokers:
            return await committed_offsets(brokers, group)

    collected = await collect(sink, tmp_path / "all", config, committed_by=committed_by)
    assert (collected.sessions, collected.invalid) == (2, 0)
    snapshot = read_snapshot(tmp_path / "all", kafka_topic, kafka_topic)
    assert snapshot is not None
    assert snapshot.offsets[0] == last
    result = await audited(servers, kafka_topic, tmp_path / "all")
    assert result.done == COUNT
    assert result.status == "INCONCLUSIVE"
    assert {a.kind for a in result.anomalies} <= {"redelivery", "journal_gap"}
    listed = SessionList.read(tmp_path / "all" / "sessions.json")
    assert {(s.name, s.rows) for s in result.sessions} == {
        (name, session.rows) for name, session in listed.sessions.items()
    }
    with pytest.raises(ConfigError, match="is not empty: use a new folder"):
        await collect(sink, tmp_path / "all", config)
    with pytest.raises(ConfigError, match="no topic 'nothing'"):
        await collect("nothing", tmp_path / "none", config)


async def test_no_offset_is_committed_if_the_journal_topic_rejects_the_journal(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    servers = kafka_broker.bootstrap_servers
    await produce(servers, kafka_topic, 10)
    tiny = f"{kafka_topic}-journal"
    kafka_broker.create_topic(tiny, config={"max.message.bytes": "100"})
    journal = Journal(tmp_path, sink=KafkaSink(tiny, bootstrap_servers=servers))
    consumer = Consumer(bootstrap_servers=servers, group_id=kafka_topic, journal=journal)

    @consumer.handler(kafka_topic)
    async def handle(record: Record) -> None: ...

    with pytest.raises(JournalError, match=f"the journal cannot be sent to topic '{tiny}'"):
        async with asyncio.timeout(DEADLINE):
            await consumer.run()
    async with Consumer(bootstrap_servers=servers, group_id=kafka_topic) as looker:
        found = await looker.committed(TopicPartition(kafka_topic, 0))
    assert list(found.values()) == [None]
