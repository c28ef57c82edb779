"""Sinks that are killed, and that share a folder without knowing it: each record is stored once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from broker.records.raw_producer import send_raw
from wire.frames.raw_batches import raw_batch, record

from asyncrevoke import Consumer, Producer, TopicPartition, TopicReader
from asyncrevoke.broker.admin import Admin
from asyncrevoke.errors import AsyncRevokeError

resource: Any = pytest.importorskip("resource", reason="needs a POSIX system")
pq: Any = pytest.importorskip("pyarrow.parquet", reason="needs the extra arrow")
deltalake: Any = pytest.importorskip("deltalake", reason="needs the extra delta")

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.broker import RunningBroker

MEMBER = Path(__file__).with_name("sink_member.py")
RECORDS = 2_000
DEADLINE = 60.0

pytestmark = [pytest.mark.broker, pytest.mark.timeout(150)]


class Lake:
    """A topic, and the folder that sinks write it to."""

    def __init__(self, kind: str, broker: RunningBroker, topic: str, folder: Path) -> None:
        self.kind = kind
        self.address = broker.bootstrap_servers
        self.topic = topic
        self.folder = folder / "lake"
        self.outputs = folder
        self.running: list[subprocess.Popen[bytes]] = []
        self.produced = 0

    async def produce(
        self, records: int = RECORDS, value: Callable[[], bytes] = lambda: b"order"
    ) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.address, linger_ms=5) as producer:
            for number in range(self.produced, self.produced + records):
                await producer.send(self.topic, value() + b" %d" % number, b"%d" % (number % 100))
        self.produced += records

    def start(
        self,
        *more: str,
        group: str = "lake",
        step: str = "never",
        number: int = 0,
        most: int = -1,
    ) -> subprocess.Popen[bytes]:
        arguments = [sys.executable, "-u", str(MEMBER), step, str(number), str(most)]
        arguments += ["sink", self.kind, self.topic, str(self.folder)]
        arguments += ["--bootstrap-servers", self.address, "--group", f"{self.topic}-{group}"]
        arguments += ["--max-bytes", "20000", "--max-wait", "0.3", *more]
        with (self.outputs / f"output-{len(self.running)}").open("wb") as output:
            process = subprocess.Popen(arguments, stdout=output, stderr=subprocess.STDOUT)
        self.running.append(process)
        return process

    def output(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.outputs.glob("output-*")))

    async def ends(self, process: subprocess.Popen[bytes], code: int) -> None:
        await self.until(lambda: process.poll() is not None)
        assert process.returncode == code, self.output()

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, self.output()
            await asyncio.sleep(0.05)

    def rows(self) -> Counter[tuple[int, int, bytes, bytes]]:
        """What a reader finds, with how often it finds it."""
        if not self.folder.exists():
            return Counter()
        if self.kind == "delta":
            if not deltalake.DeltaTable.is_deltatable(str(self.folder)):
                return Counter()
            tables = [deltalake.DeltaTable(str(self.folder)).to_pyarrow_table()]
        else:
            tables = [pq.read_table(path) for path in sorted(self.folder.glob("*.parquet"))]
        found: Counter[tuple[int, int, bytes, bytes]] = Counter()
        for table in tables:
            names = ("partition", "offset", "key", "value")
            columns = [table.column(name).to_pylist() for name in names]
            found.update(zip(*columns, strict=True))
        return found

    async def judge(self) -> None:
        """Compare the rows with the topic."""
        expected: Counter[tuple[int, int, bytes | None, bytes | None]] = Counter()
        async with TopicReader(self.topic, bootstrap_servers=self.address) as reader:
            async for batch in reader:
                expected.update((r.partition, r.offset, r.key, r.value) for r in batch.records)
        assert sum(expected.values()) == self.produced
        rows = self.rows()
        assert {row: count for row, count in rows.items() if count > 1} == {}, self.output()
        assert set(expected) - set(rows) == set(), self.output()
        assert set(rows) - set(expected) == set(), self.output()


@pytest.fixture(params=["parquet", pytest.param("delta", marks=pytest.mark.variant)])
def lake(
    request: pytest.FixtureRequest, kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> Any:
    made = Lake(request.param, kafka_broker, kafka_topic, tmp_path)
    yield made
    for process in made.running:
        process.kill()
        process.wait()


async def test_each_record_is_stored_once_by_a_group_whose_members_are_killed(lake: Lake) -> None:
    stays = lake.start()
    killed = [lake.start(step="before", number=3), lake.start(step="after", number=3)]
    while any(process.poll() is None for process in killed):
        await lake.produce()
        await asyncio.sleep(0.1)
    for process in killed:
        await lake.ends(process, -signal.SIGKILL)
    before = len(lake.rows())
    joins = lake.start()
    await lake.produce()
    await lake.until(lambda: len(lake.rows()) > before)
    stays.send_signal(signal.SIGTERM)
    await lake.ends(stays, 0)
    await lake.until(lambda: len(lake.rows()) == lake.produced)
    joins.send_signal(signal.SIGINT)
    await lake.ends(joins, 0)
    await lake.judge()


async def test_each_record_is_stored_once_by_sinks_that_do_not_know_of_each_other(
    lake: Lake,
) -> None:
    """As by a member that has lost its partitions and has not noticed: both read all of them, and
    end their files at other offsets."""
    waits = {"one": "0.1", "two": "0.25"}
    both = [lake.start("--max-wait", wait, group=group) for group, wait in waits.items()]
    while len(lake.rows()) < RECORDS * 2:
        assert all(process.poll() is None for process in both), lake.output()
        await lake.produce(200)
    for process in both:
        process.send_signal(signal.SIGTERM)
        await lake.ends(process, 0)
    await lake.ends(lake.start("--until-end"), 0)
    await lake.judge()


async def test_a_full_disk_ends_a_sink_and_the_next_one_stores_what_is_missing(
    lake: Lake,
) -> None:
    """The disk is full for files beyond 30,000 bytes."""
    await lake.produce(value=lambda: os.urandom(100))
    full = lake.start("--until-end", "--max-bytes", "1000000", "--max-wait", "60", most=30_000)
    await lake.ends(full, 1)
    assert "error: the lake cannot be written: File too large; what is not" in lake.output()
    assert not lake.rows()
    await lake.ends(lake.start("--until-end", "--max-bytes", "1000000"), 0)
    await lake.judge()


async def test_a_wrong_topic_or_folder_is_named_and_nothing_is_written(lake: Lake) -> None:
    topic, lake.topic = lake.topic, "none-of-these"
    await lake.ends(lake.start(), 2)
    assert "error: there is no topic none-of-these" in lake.output()
    assert not lake.folder.exists()
    lake.topic = topic
    lake.folder.touch()
    await lake.ends(lake.start(), 1)
    assert f"error: the lake cannot be written: {lake.folder}: File exists; what" in lake.output()


@pytest.mark.kafka_topic(partitions=1)
@pytest.mark.parametrize("lake", ["parquet"], indirect=True)
async def test_a_sink_that_has_stored_all_has_no_lag_after_the_markers_of_transactions(
    lake: Lake,
) -> None:
    async with (
        Producer(bootstrap_servers=lake.address, transactional_id=lake.topic) as producer,
        producer.transaction() as transaction,
    ):
        for number in range(20):
            transaction.publish(lake.topic, b"paid", key=str(number))
    await lake.ends(lake.start("--until-end"), 0)
    async with Consumer(bootstrap_servers=lake.address, group_id=f"{lake.topic}-lake") as consumer:
        partition = TopicPartition(lake.topic, 0)
        assert await consumer.end_offsets(partition) == {partition: 21}
        committed = (await consumer.committed(partition))[partition]
        assert committed is not None
        assert committed.offset == 21, lake.output()


@pytest.mark.kafka_topic(partitions=1)
@pytest.mark.parametrize("lake", ["delta"], indirect=True)
async def test_a_sink_of_a_period_stores_its_records_and_the_next_one_continues(lake: Lake) -> None:
    async with Producer(bootstrap_servers=lake.address) as producer:
        for minute in range(20):
            at = 1_700_000_000_000 + 60_000 * minute
            await producer.publish(lake.topic, b"%d" % minute, timestamp=at)
    period = ("--since", "2023-11-14T22:18:20+00:00", "--until", "2023-11-14T22:23:20+00:00")
    await lake.ends(lake.start(*period), 0)
    assert sorted(offset for _, offset, _, _ in lake.rows()) == [5, 6, 7, 8, 9]
    async with Consumer(bootstrap_servers=lake.address, group_id=f"{lake.topic}-lake") as consumer:
        (committed,) = (await consumer.committed((lake.topic, 0))).values()
        assert committed is not None
        assert committed.offset == 10
    await lake.ends(lake.start("--until-end"), 0)
    await lake.ends(lake.start(*period), 0)
    assert sorted(offset for _, offset, _, _ in lake.rows()) == list(range(5, 20))
    async with Consumer(bootstrap_servers=lake.address, group_id=f"{lake.topic}-lake") as consumer:
        (committed,) = (await consumer.committed((lake.topic, 0))).values()
        assert committed is not None
        assert committed.offset == 20, "as the lake has it"


@pytest.mark.kafka_topic(partitions=1)
async def test_records_before_one_that_cannot_be_read_are_stored(lake: Lake) -> None:
    spoiled = raw_batch(
        record(0, value=b"first"), record(1, headers=[(b"\xff", b"")]), record(2, value=b"third")
    )
    await send_raw(lake.address, lake.topic, spoiled)
    for _ in range(2):
        await lake.ends(lake.start("--until-end"), 1)
        assert {offset: value for _, offset, _, value in lake.rows()} == {0: b"first"}
    assert lake.output().count(f"error: {lake.topic}-0") == 2, lake.output()


@pytest.mark.kafka_topic(partitions=1)
async def test_a_topic_that_was_created_again_is_refused(
    lake: Lake, kafka_broker: RunningBroker
) -> None:
    await lake.produce()
    await lake.ends(lake.start("--until-end"), 0)
    admin = Admin(lake.address)
    admin.delete_topic(lake.topic)
    await lake.until(lambda: created(kafka_broker, lake.topic))
    await lake.ends(lake.start("--until-end", group="again"), 1)
    assert "is stored up to offset 2000, and the topic ends at 0: it was created again" in (
        lake.output()
    )
    assert len(lake.rows()) == lake.produced


def created(broker: RunningBroker, topic: str) -> bool:
    """Create a topic again; False while it is still being deleted."""
    try:
        broker.create_topic(topic, partitions=1)
    except AsyncRevokeError:
        return False
    return True
