"""Replays in which several tasks read one partition."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from spark.real_topics import produce, produce_values

from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.spark.reading.offsets import resolve_ranges
from asyncrevoke.spark.replays.run import replay
from asyncrevoke.spark.replays.streaming_query import replay_stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.replays.opened_handlers import Errors
    from asyncrevoke.spark.replays.engines import Engine
    from asyncrevoke.spark.replays.report import ReplayReport

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

TARGET = "replayed_app:consumer"


def handled(notes: Path, topic: str) -> Counter[tuple[int, int]]:
    lines = [line.split() for line in (notes / "effects").read_text().splitlines()]
    assert {name for name, *_ in lines} == {topic}
    return Counter((int(partition), int(offset)) for _, partition, offset in lines)


@pytest.mark.parametrize("engine", ["direct", "source"])
def test_tasks_of_one_partition_handle_each_record_once(
    engine: Engine,
    spark: SparkSession,
    kafka_broker: RunningBroker,
    topic: str,
    notes: Path,
    tmp_path: Path,
) -> None:
    produce(kafka_broker, topic, 40)
    produce(kafka_broker, topic, 3, partition=1)
    address = kafka_broker.bootstrap_servers
    report = replay(
        spark,
        TARGET,
        resolve_ranges(address, topic),
        sink=str(tmp_path),
        bootstrap_servers=address,
        engine=engine,
        order_by=None,
        min_partitions=5,
    )
    assert report.outcomes == {"ok": 43}
    expected = {(0, n) for n in range(40)} | {(1, n) for n in range(3)}
    assert handled(notes, topic) == Counter(expected)
    rows = spark.read.parquet(report.results)
    ranges = rows.select("partition", "range_start", "range_end").distinct().collect()
    assert sorted((each[0], each[1], each[2]) for each in ranges) == [
        (0, 0, 10), (0, 10, 20), (0, 20, 30), (0, 30, 40), (1, 0, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("engine", ["direct", "source"])
def test_a_resumed_run_replays_the_parts_that_are_not_written(
    engine: Engine,
    spark: SparkSession,
    kafka_broker: RunningBroker,
    topic: str,
    notes: Path,
    tmp_path: Path,
) -> None:
    # Two tasks run at once: when the last one begins, the rows of others are written.
    produce_values(kafka_broker, topic, [b"good"] * 19 + [b"bad"])
    address = kafka_broker.bootstrap_servers
    ranges = resolve_ranges(address, topic)

    def run(errors: Errors) -> ReplayReport:
        return replay(
            spark,
            TARGET,
            ranges,
            sink=str(tmp_path),
            run_id="july",
            errors=errors,
            bootstrap_servers=address,
            engine=engine,
            order_by=None,
            max_records_per_partition=5,
        )

    with pytest.raises(ReplayError, match="KeyError"):
        run("fail")
    (notes / "effects").unlink()
    report = run("record")
    assert report.resumed
    assert report.outcomes == {"ok": 19, "error": 1}
    rows = spark.read.parquet(report.results)
    assert rows.select("partition", "offset").distinct().count() == rows.count() == 20
    assert 5 <= len(handled(notes, topic)) <= 10


def test_tasks_of_a_stream_share_a_partition(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str, notes: Path, tmp_path: Path
) -> None:
    produce(kafka_broker, topic, 40)
    produce(kafka_broker, topic, 3, partition=1)
    query = replay_stream(
        spark,
        TARGET,
        topic=topic,
        checkpoint=str(tmp_path / "checkpoint"),
        sink=str(tmp_path),
        bootstrap_servers=kafka_broker.bootstrap_servers,
        order_by=None,
        max_records_per_partition=10,
    )
    query.awaitTermination()
    assert set(handled(notes, topic).values()) == {1}
    rows = spark.read.parquet(str(tmp_path / "stream"))
    assert rows.count() == 43
    starts = rows.select("partition", "range_start").distinct().collect()
    assert sorted((each[0], each[1]) for each in starts) == [
        (0, 0),
        (0, 10),
        (0, 20),
        (0, 30),
        (1, 0),
    ]
