"""Handlers on records of a real broker, in tasks of a real Spark."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

pytest.importorskip("pyspark", reason="needs the extra spark")

from spark.real_topics import create_again

from asyncrevoke.broker import BrokerRequestError
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.spark.errors import DataLossError, StalledReadError
from asyncrevoke.spark.reading.offsets import OffsetRange, resolve_ranges
from asyncrevoke.spark.replays.run import replay
from asyncrevoke.spark.replays.settings import BatchReplayOptions
from asyncrevoke.spark.results.result_tables import failed_ranges

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.replays.opened_handlers import Errors, ReplayOrder
    from asyncrevoke.spark.replays.engines import Engine
    from asyncrevoke.spark.replays.progress import ReplayProgress

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

TARGET = "replayed_app:consumer"


def fill(broker: RunningBroker, topic: str, values: list[bytes], keys: int = 3) -> None:
    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for n, value in enumerate(values):
                await producer.send(topic, value, key=b"k%d" % (n // 2 % keys), partition=n % 2)

    asyncio.run(produce())


def effects(notes: Path) -> Counter[str]:
    return Counter((notes / "effects").read_text().splitlines())


@pytest.mark.parametrize("engine", ["direct", "source"])
def test_each_record_is_handled_once_and_has_a_row(
    engine: Engine,
    spark: SparkSession,
    kafka_broker: RunningBroker,
    topic: str,
    notes: Path,
    tmp_path: Path,
) -> None:
    values = [b"good"] * 60
    values[7] = b"bad"
    fill(kafka_broker, topic, values)
    address = kafka_broker.bootstrap_servers
    progress: list[ReplayProgress] = []
    report = replay(
        spark,
        TARGET,
        resolve_ranges(address, topic),
        sink=str(tmp_path),
        bootstrap_servers=address,
        engine=engine,
        on_progress=progress.append,
    )
    assert report.records == 60
    assert report.outcomes == {"ok": 59, "error": 1}
    assert report.errors == {"KeyError": 1}
    assert 0 < report.latency[0.5] <= report.latency[1.0] < 60
    assert sum(report.histogram.values()) == 60
    assert len(effects(notes)) == 60
    assert effects(notes)[f"{topic} 1 3"] == 2  # its Retry has two attempts
    rows = {
        (row.partition, row.offset): row for row in spark.read.parquet(report.results).collect()
    }
    assert set(rows) == {(partition, offset) for partition in (0, 1) for offset in range(30)}
    bad = rows[1, 3]
    assert (bad.outcome, bad.error_type, bad.error, bad.attempts) == (
        "error",
        "KeyError",
        "'bad'",
        2,
    )
    assert rows[0, 4].result == b"even"
    assert rows[0, 5].result is None
    assert all(row.started_us <= row.finished_us for row in rows.values())
    assert {(row.range_start, row.range_end) for row in rows.values()} == {(0, 30)}


@pytest.mark.parametrize("topic", ["plain"], indirect=True)
@pytest.mark.parametrize("order_by", ["key", None])
def test_only_the_failed_records_of_a_run_are_replayed_again(
    spark: SparkSession,
    kafka_broker: RunningBroker,
    topic: str,
    notes: Path,
    tmp_path: Path,
    order_by: ReplayOrder,
) -> None:
    values = [b"good"] * 40
    for number in (6, 8, 11, 30):
        values[number] = b"bad"
    fill(kafka_broker, topic, values)
    address = kafka_broker.bootstrap_servers
    planned = resolve_ranges(address, topic)
    options = BatchReplayOptions(bootstrap_servers=address, order_by=order_by)
    first = replay(spark, TARGET, planned, sink=str(tmp_path), **options)
    assert first.failed == 4
    failed = failed_ranges(spark, first)
    assert [each[:4] for each in failed] == [
        (topic, 0, 3, 5),
        (topic, 0, 15, 16),
        (topic, 1, 5, 6),
    ]
    assert {each.topic_id for each in failed} == {planned[0].topic_id}
    with pytest.raises(ReplayError, match="more than 2 ranges"):
        failed_ranges(spark, first, most=2)
    before = effects(notes)
    again = replay(spark, TARGET, failed, sink=str(tmp_path), **options)
    assert (again.records, again.failed) == (4, 4)
    handled = effects(notes)
    repeated = {place for place in handled if handled[place] > before[place]}
    assert repeated == {f"{topic} {p} {o}" for p, o in ((0, 3), (0, 4), (0, 15), (1, 5))}
    assert failed_ranges(spark, again) == failed


@pytest.mark.parametrize("topic", ["keyed"], indirect=True)
@pytest.mark.parametrize("engine", ["direct", "source"])
def test_the_order_of_each_key_is_kept(
    engine: Engine,
    spark: SparkSession,
    kafka_broker: RunningBroker,
    topic: str,
    notes: Path,
    tmp_path: Path,
) -> None:
    # Eight keys a partition under 16 handlers of random length: any fault in the order shows.
    fill(kafka_broker, topic, [b"x"] * 1200, keys=8)
    address = kafka_broker.bootstrap_servers
    ranges = resolve_ranges(address, topic)
    options = {"bootstrap_servers": address, "engine": engine}
    replay(spark, TARGET, ranges, sink=str(tmp_path / "a"), **options, checkpoint_every=250)  # type: ignore[arg-type]
    assert violations(notes) == 0
    assert len((notes / "order").read_text().splitlines()) == 1200
    (notes / "order").unlink()
    replay(spark, TARGET, ranges, sink=str(tmp_path / "b"), **options, order_by=None)  # type: ignore[arg-type]
    assert violations(notes) > 0  # so that the first half proves something


def violations(notes: Path) -> int:
    last: dict[tuple[str, str], int] = defaultdict(lambda: -1)
    found = 0
    for line in (notes / "order").read_text().splitlines():
        partition, key, offset = line.split()
        found += int(offset) < last[partition, key]
        last[partition, key] = int(offset)
    return found


@pytest.mark.parametrize("topic", ["halting"], indirect=True)
def test_a_resumed_run_skips_completed_ranges(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str, notes: Path
) -> None:
    fill(kafka_broker, topic, [b"x"] * 40)
    address = kafka_broker.bootstrap_servers
    ranges = [OffsetRange(topic, 0, 0, 20), OffsetRange(topic, 1, 0, 20)]
    sink = notes / "halting"  # where the handler looks
    options = {"sink": str(sink), "run_id": "july", "bootstrap_servers": address}

    def run() -> object:
        return replay(spark, TARGET, ranges, errors="fail", checkpoint_every=5, **options)  # type: ignore[arg-type]

    with pytest.raises(ReplayError, match=r"run july: .*RuntimeError: not mended yet.*halting-"):
        run()
    (notes / "mended").touch()
    (notes / "effects").unlink()
    report = run()
    assert report.resumed  # type: ignore[attr-defined]
    assert report.records == 40  # type: ignore[attr-defined]
    again = Counter(line.split()[1] for line in (notes / "effects").read_text().splitlines())
    # Of partition 0, the first piece was done: a task's rows count although another one failed.
    assert again == {"0": 15, "1": 20}
    rows = spark.read.parquet(str(sink / "results" / "run_id=july"))
    assert rows.select("partition", "offset").distinct().count() == rows.count() == 40


def test_too_many_errors_end_a_replay_with_examples(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str, tmp_path: Path, notes: Path
) -> None:
    fill(kafka_broker, topic, [b"bad"] * 20)
    address = kafka_broker.bootstrap_servers
    with pytest.raises(
        ReplayError, match=r"max_errors=3.*partition \d, offset \d: KeyError: 'bad'"
    ):
        replay(
            spark,
            TARGET,
            resolve_ranges(address, topic),
            sink=str(tmp_path),
            bootstrap_servers=address,
            max_errors=3,
        )


@pytest.mark.parametrize("topic", ["letters"], indirect=True)
@pytest.mark.parametrize(("errors", "outcome"), [("record", "error"), ("policy", "dead_lettered")])
def test_dead_letters_are_sent_by_the_handlers_policy_alone(
    errors: Errors,
    outcome: str,
    spark: SparkSession,
    kafka_broker: RunningBroker,
    topic: str,
    tmp_path: Path,
    app: Path,
) -> None:
    address = kafka_broker.bootstrap_servers
    letters = "dead-of-replay"
    with contextlib.suppress(BrokerRequestError):  # the other case has made it
        kafka_broker.create_topic(letters)
    fill(kafka_broker, topic, [b"x"] * 4)
    before = count(address, letters)
    report = replay(
        spark,
        TARGET,
        resolve_ranges(address, topic),
        sink=str(tmp_path),
        bootstrap_servers=address,
        errors=errors,
    )
    assert report.outcomes == {outcome: 4}
    assert count(address, letters) - before == (4 if errors == "policy" else 0)


def count(address: str, topic: str) -> int:
    async def read() -> int:
        async with AIOKafkaConsumer(topic, bootstrap_servers=address) as consumer:
            ends = cast("Any", await consumer.end_offsets(consumer.assignment()))
            return sum(ends.values())

    return asyncio.run(read())


@pytest.mark.parametrize("topic", ["odd"], indirect=True)
def test_a_result_that_cannot_be_encoded_is_an_error_in_its_row(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str, tmp_path: Path, app: Path
) -> None:
    fill(kafka_broker, topic, [b"x"] * 2)
    address = kafka_broker.bootstrap_servers
    ranges = resolve_ranges(address, topic)
    report = replay(spark, TARGET, ranges, sink=str(tmp_path), bootstrap_servers=address)
    assert report.errors == {"ResultError": 2}
    row = spark.read.parquet(report.results).first()
    assert row is not None
    assert "returned object, which cannot be written" in row.error


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("no_such_app:consumer", r"no_such_app:consumer cannot be imported on a worker .*py_files"),
        ("replayed_app:empty", r"replayed_app:empty has no handlers"),
    ],
)
def test_a_target_that_workers_cannot_use_gets_a_sentence(
    target: str,
    sentence: str,
    spark: SparkSession,
    kafka_broker: RunningBroker,
    topic: str,
    tmp_path: Path,
) -> None:
    fill(kafka_broker, topic, [b"x"] * 2)
    ranges = resolve_ranges(kafka_broker.bootstrap_servers, topic)
    with pytest.raises(ReplayError, match=sentence):
        replay(spark, target, ranges, sink=str(tmp_path))


@pytest.mark.parametrize("engine", ["direct", "source"])
def test_records_that_have_gone_since_they_were_planned_are_an_error(
    engine: Engine, spark: SparkSession, kafka_broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    fill(kafka_broker, topic, [b"x"] * 20)
    address = kafka_broker.bootstrap_servers
    ranges = resolve_ranges(address, topic)

    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(6)})
        finally:
            await admin.close()

    asyncio.run(delete())
    with pytest.raises(DataLossError, match=rf"run gone: {topic}-0 begins at offset 6"):
        replay(
            spark,
            TARGET,
            ranges,
            sink=str(tmp_path),
            run_id="gone",
            engine=engine,
            bootstrap_servers=address,
        )


@pytest.mark.parametrize("engine", ["direct", "source"])
def test_a_run_neither_begins_nor_resumes_with_a_topic_that_was_created_again(
    engine: Engine, spark: SparkSession, kafka_broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    fill(kafka_broker, topic, [b"x"] * 4)
    address = kafka_broker.bootstrap_servers
    ranges = resolve_ranges(address, topic)
    create_again(kafka_broker, topic, 2)
    fill(kafka_broker, topic, [b"y"] * 6)

    def run(planned: list[OffsetRange]) -> None:
        replay(
            spark,
            TARGET,
            planned,
            sink=str(tmp_path),
            run_id="again",
            engine=engine,
            bootstrap_servers=address,
        )

    with pytest.raises(DataLossError, match=f"{topic} was deleted and created again after its"):
        run(ranges)
    with pytest.raises(ReplayError, match=r"of run again was deleted .* use another run_id"):
        run(resolve_ranges(address, topic))


@pytest.mark.parametrize("engine", ["direct", "source"])
def test_an_end_that_is_never_reached_is_an_error_in_time(
    engine: Engine, spark: SparkSession, kafka_broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    fill(kafka_broker, topic, [b"x"] * 20)
    with pytest.raises(
        StalledReadError, match=rf"{topic}-1 has made no progress at offset 10 of 11 for 2 s"
    ):
        replay(
            spark,
            TARGET,
            [OffsetRange(topic, 1, 0, 11)],
            sink=str(tmp_path),
            engine=engine,
            bootstrap_servers=kafka_broker.bootstrap_servers,
            no_progress_timeout=2.0,
        )


def test_a_run_id_belongs_to_one_replay(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str, tmp_path: Path, notes: Path
) -> None:
    fill(kafka_broker, topic, [b"x"] * 2)
    address = kafka_broker.bootstrap_servers
    ranges = resolve_ranges(address, topic)
    options = {"sink": str(tmp_path), "run_id": "one", "bootstrap_servers": address}
    replay(spark, TARGET, ranges, **options)  # type: ignore[arg-type]
    with pytest.raises(ReplayError, match=r"run one in .* use another run_id"):
        replay(spark, "replayed_app:empty", ranges, **options)  # type: ignore[arg-type]


def test_the_connector_needs_its_jars(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs the jars .* --packages org.apache.spark"):
        replay(spark, TARGET, [OffsetRange("t", 0, 0, 1)], sink=str(tmp_path), engine="jvm")
