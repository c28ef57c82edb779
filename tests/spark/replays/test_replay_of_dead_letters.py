"""Dead letters are replayed to the handlers that failed, on Spark and in one process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from aiokafka import AIOKafkaProducer
from spark.replays.test_replay import effects

from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic
from asyncrevoke.dead_letters.errors import DeadLettersError
from asyncrevoke.dead_letters.reprocessing import Reprocessing
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.replays.target import find_consumer
from asyncrevoke.spark.reading.offsets import resolve_ranges
from asyncrevoke.spark.replays.run import replay
from asyncrevoke.spark.replays.streaming_query import replay_stream
from asyncrevoke.spark.results.result_tables import failed_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.replays.result_rows import Row
    from asyncrevoke.spark.replays.engines import Engine

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

TARGET = "replayed_app:consumer"
LETTERS = "dead-of-redone"
SELECT = "select that origin topic to allow it"
VALUES = [b"0", b"bad", b"2", b"3"]
ALL = DeadLetterFilter()


@pytest.fixture(scope="module")
def failed(
    kafka_broker: RunningBroker,
    spark: SparkSession,
    app: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """A topic whose records are dead letters, beside records of other programs."""
    (app / "mended").unlink(missing_ok=True)
    address, topic = kafka_broker.bootstrap_servers, "redone-1"
    kafka_broker.create_topic(topic, 2)
    kafka_broker.create_topic(LETTERS, 2)
    asyncio.run(_produce(address, topic))
    report = replay(
        spark,
        TARGET,
        resolve_ranges(address, topic),
        sink=str(tmp_path_factory.mktemp("policy")),
        bootstrap_servers=address,
        errors="policy",
    )
    assert report.outcomes == {"dead_lettered": 8}
    asyncio.run(_produce_others(address))
    return topic


async def _produce(address: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for partition in (0, 1):
            for number, value in enumerate(VALUES):
                await producer.send_and_wait(
                    topic,
                    value,
                    b"k%d" % number,
                    partition=partition,
                    timestamp_ms=1000 * number,
                    headers=[("trace", b"%d" % number)],
                )


async def _produce_others(address: str) -> None:
    origin = [("asyncrevoke-origin-topic", b"unknown"), ("asyncrevoke-origin-partition", b"0")]
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        await producer.send_and_wait(LETTERS, b"no dead letter", partition=0)
        await producer.send_and_wait(
            LETTERS,
            b"of no handler",
            partition=1,
            headers=[*origin, ("asyncrevoke-origin-offset", b"7")],
        )
        forged = [("asyncrevoke-origin-topic", b"letters-1"), origin[1]]
        await producer.send_and_wait(
            LETTERS,
            b"of a handler with another dead letter topic",
            partition=1,
            headers=[*forged, ("asyncrevoke-origin-offset", b"7")],
        )


def in_process(address: str, chosen: DeadLetterFilter = ALL) -> set[tuple[object, ...]]:
    """The rows of all dead letters, as the handlers of this process make them."""
    found: list[Row] = []

    async def run() -> dict[str, int]:
        async with DeadLetterTopic(LETTERS, bootstrap_servers=address) as letters:
            consumer = find_consumer(TARGET)
            result = await Reprocessing(letters, consumer, chosen, rows=found.extend).run()
            assert result.selected == len(found)
            return result.outcomes

    outcomes = asyncio.run(run())
    assert sum(outcomes.values()) == len(found)
    return {
        (
            row.partition, row.offset, row.attempts, row.outcome, row.error_type, row.error,
            row.result, None if row.origin is None else tuple(row.origin.values()),
        )
        for row in found
    }  # fmt: skip


def on_spark(spark: SparkSession, results: str) -> set[tuple[object, ...]]:
    """The same of a replay's results."""
    columns = "partition", "offset", "attempts", "outcome", "error_type", "error", "result"
    rows: Sequence[Any] = spark.read.parquet(results).select(*columns, "origin").collect()
    found = [
        (*row[:6], row[6] and bytes(row[6]), None if row[7] is None else tuple(row[7]))
        for row in rows
    ]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.parametrize("engine", ["direct", "source"])
def test_handlers_get_the_records_of_dead_letters_on_spark_as_in_one_process(
    engine: Engine,
    spark: SparkSession,
    kafka_broker: RunningBroker,
    failed: str,
    notes: Path,
    tmp_path: Path,
) -> None:
    (notes / "mended").touch()
    address = kafka_broker.bootstrap_servers
    report = replay(
        spark,
        TARGET,
        resolve_ranges(address, LETTERS),
        sink=str(tmp_path),
        bootstrap_servers=address,
        engine=engine,
        dead_letters=ALL,
    )
    assert report.outcomes == {"ok": 6, "error": 5}
    assert report.errors == {"KeyError": 2, "DeadLettersError": 3}
    assert set(effects(notes)) == {f"{failed} {p} {n}" for p in (0, 1) for n in range(4)}
    rows = on_spark(spark, report.results)
    assert {cast("Any", row)[6:] for row in rows if row[3] == "ok"} == {
        (
            f"('{failed}', {p}, {n}) {1000 * n} b'k{n}' {VALUES[n]!r} "
            f"(('trace', b'{n}'), ('asyncrevoke-replays', b'1'))".encode(),
            (failed, p, n),
        )
        for p in (0, 1)
        for n in (0, 2, 3)
    }
    assert {str(row[5]).partition(": ")[2] for row in rows if row[4] == "DeadLettersError"} == {
        "it has no headers of a dead letter",
        "no handler for topic 'unknown', its origin",
        f"no handler of letters-1, its origin, has dead_letter={LETTERS}: {SELECT}",
    }
    assert in_process(address) == rows

    again = replay(
        spark,
        TARGET,
        failed_ranges(spark, report),
        sink=str(tmp_path),
        bootstrap_servers=address,
        engine=engine,
        dead_letters=DeadLetterFilter(errors=frozenset(["ConnectionError"])),
    )
    assert (again.outcomes, again.errors) == ({"error": 3}, {"KeyError": 2, "DeadLettersError": 1})


def test_a_stream_replays_the_dead_letters_that_a_filter_selects(
    spark: SparkSession, kafka_broker: RunningBroker, failed: str, notes: Path, tmp_path: Path
) -> None:
    (notes / "mended").touch()
    chosen = DeadLetterFilter(origin_topics=frozenset([failed]), origin_partitions=frozenset([1]))
    query = replay_stream(
        spark,
        TARGET,
        topic=LETTERS,
        checkpoint=str(tmp_path / "checkpoint"),
        sink=str(tmp_path),
        bootstrap_servers=kafka_broker.bootstrap_servers,
        dead_letters=chosen,
    )
    query.awaitTermination()
    rows = on_spark(spark, f"{tmp_path}/stream")
    assert {row[7] for row in rows if row[7]} == {(failed, 1, n) for n in range(4)}
    assert rows == in_process(kafka_broker.bootstrap_servers, chosen)


def test_the_first_record_that_no_handler_can_get_fails_a_strict_replay(
    spark: SparkSession, kafka_broker: RunningBroker, failed: str, notes: Path, tmp_path: Path
) -> None:
    (notes / "mended").touch()
    address = kafka_broker.bootstrap_servers
    none_of_them = DeadLetterFilter(origin_topics=frozenset(["nothing"]))
    with pytest.raises(ReplayError, match=r"dead-of-redone-0 offset \d+: it has no headers"):
        replay(
            spark,
            TARGET,
            resolve_ranges(address, LETTERS),
            sink=str(tmp_path),
            bootstrap_servers=address,
            errors="fail",
            dead_letters=none_of_them,
        )

    async def run() -> None:
        async with DeadLetterTopic(LETTERS, bootstrap_servers=address) as letters:
            consumer = find_consumer(TARGET)
            await Reprocessing(letters, consumer, none_of_them, errors="fail").run()

    with pytest.raises(DeadLettersError, match=r"dead-of-redone-0 offset \d+: it has no headers"):
        asyncio.run(run())
    assert not (notes / "effects").exists()
