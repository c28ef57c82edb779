"""Replays of records that no consumer reads go by the handlers' failure policy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from broker.records.raw_producer import send_raw
from broker.records.test_unreadable_records import SPOILED
from spark.replays.test_replay import TARGET, effects
from wire.frames.raw_batches import header_bomb, raw_batch, record

from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.spark.reading.offsets import resolve_ranges
from asyncrevoke.spark.replays.run import replay
from asyncrevoke.spark.replays.streaming_query import replay_stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.spark.replays.engines import Engine

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def address(kafka_broker: RunningBroker, topic: str) -> str:
    """Of a topic with readable records at the offsets 0, 3 and 5 of partition 0."""
    address = kafka_broker.bootstrap_servers
    batches = SPOILED, header_bomb(1_000_000), raw_batch(record(0))
    asyncio.run(send_raw(address, topic, *batches))
    return address


@pytest.mark.parametrize("engine", ["direct", "source"])
def test_an_unreadable_record_is_an_error_row_and_the_others_are_handled(
    engine: Engine, spark: SparkSession, address: str, topic: str, notes: Path, tmp_path: Path
) -> None:
    report = replay(
        spark,
        TARGET,
        resolve_ranges(address, topic),
        sink=str(tmp_path),
        bootstrap_servers=address,
        engine=engine,
    )
    assert report.outcomes == {"ok": 3, "error": 3}
    assert report.errors == {"UnreadableRecordError": 3}
    assert set(effects(notes)) == {f"{topic} 0 {offset}" for offset in (0, 3, 5)}
    rows = spark.read.parquet(report.results).where("outcome = 'error'").collect()
    assert {(row.partition, row.offset, row.attempts) for row in rows} == {
        (0, offset, 0) for offset in (1, 2, 4)
    }
    assert all(f"{topic}-0 at offset {row.offset}: " in row.error for row in rows)


@pytest.mark.usefixtures("notes")
@pytest.mark.parametrize("engine", ["direct", "source"])
def test_a_replay_that_ends_at_the_first_error_names_the_unreadable_record(
    engine: Engine, spark: SparkSession, address: str, topic: str, tmp_path: Path
) -> None:
    with pytest.raises(ReplayError, match=f"UnreadableRecordError: {topic}-0 at offset 1: "):
        replay(
            spark,
            TARGET,
            resolve_ranges(address, topic),
            sink=str(tmp_path),
            bootstrap_servers=address,
            engine=engine,
            errors="fail",
            order_by="partition",
        )


def test_a_stream_has_an_error_row_for_an_unreadable_record(
    spark: SparkSession, address: str, topic: str, notes: Path, tmp_path: Path
) -> None:
    query = replay_stream(
        spark,
        TARGET,
        topic=topic,
        checkpoint=str(tmp_path / "checkpoint"),
        sink=str(tmp_path),
        bootstrap_servers=address,
    )
    query.awaitTermination()
    rows = spark.read.parquet(f"{tmp_path}/stream").collect()
    assert sorted((row.offset, row.error_type) for row in rows if row.outcome != "ok") == [
        (offset, "UnreadableRecordError") for offset in (1, 2, 4)
    ]
    assert len(effects(notes)) == 3


def test_a_table_says_which_records_cannot_be_read_if_it_includes_them(
    spark: SparkSession, address: str, topic: str
) -> None:
    from asyncrevoke.spark import register

    register(spark)
    rows = (
        spark.read.format("asyncrevoke")
        .option("bootstrap_servers", address)
        .option("topic", topic)
        .option("include_unreadable", "true")
        .load()
        .orderBy("offset")
        .collect()
    )
    assert [row.offset for row in rows] == [0, 1, 2, 3, 4, 5]
    unreadable = {row.offset: row.unreadable for row in rows if row.unreadable is not None}
    assert {offset: why.next_offset for offset, why in unreadable.items()} == {1: 2, 2: 3, 4: 5}
    assert all(row.key is None for row in rows if row.unreadable is not None)
    assert "UTF-8" in unreadable[1].reason
