"""Topics as tables and streams of a real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.errors import StreamingQueryException
from spark.real_topics import create_again, produce, produce_values

from asyncrevoke.spark.source.data_source import register

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]


def table(spark: SparkSession, broker: RunningBroker, **options: str) -> DataFrame:
    register(spark)
    reader = spark.read.format("asyncrevoke").option("bootstrap_servers", broker.bootstrap_servers)
    return reader.options(**options).load()


def rows_of(frame: DataFrame) -> set[tuple[str, int, int]]:
    return {
        (row[0], row[1], row[2]) for row in frame.select("topic", "partition", "offset").collect()
    }


def test_several_topics_are_one_table(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str
) -> None:
    other = f"{topic}-b"
    kafka_broker.create_topic(other, 1)
    produce(kafka_broker, topic, 3, partition=1)
    produce(kafka_broker, other, 2)
    expected = {(topic, 1, 0), (topic, 1, 1), (topic, 1, 2), (other, 0, 0), (other, 0, 1)}
    named = table(spark, kafka_broker, subscribe=f"{topic},{other}")
    assert rows_of(named) == expected
    matched = table(spark, kafka_broker, subscribePattern=f"{topic}.*")
    assert rows_of(matched) == expected


@pytest.mark.parametrize("headers", ["false", "true"], ids=["in batches", "singly"])
def test_json_of_a_schema_registry_is_decoded_by_spark(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str, headers: str
) -> None:
    values = [b'\0\0\0\0\x07{"id": 1}', b'{"id": 2}', b'\0\0\0\1\0{"id": 3}', None]
    produce_values(kafka_broker, topic, values)
    loaded = table(
        spark, kafka_broker, topic=topic, include_schema_id="true", include_headers=headers
    )
    decoded = loaded.selectExpr(
        "offset", "schema_id", "from_json(CAST(payload AS STRING), 'id INT').id AS id"
    )
    rows = [(row[0], row[1], row[2]) for row in decoded.orderBy("offset").collect()]
    assert rows == [(0, 7, 1), (1, None, None), (2, 256, 3), (3, None, None)]


def rows_read(frame: DataFrame) -> int:
    """How many rows the source gives Spark for this frame, before Spark filters them."""
    query = cast("Any", frame)._jdf.queryExecution()
    query.toRdd().count()
    leaves = query.executedPlan().collectLeaves()
    counts = [leaves.apply(n).metrics().apply("numOutputRows") for n in range(leaves.size())]
    return sum(int(count.value()) for count in counts)


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.usefixtures("pushdown")
@pytest.mark.parametrize(
    ("condition", "expected", "read"),
    [
        ("partition = 1", 10, 10),
        ("partition = 0 AND offset >= 5 AND offset < 8", 3, 3),
        ("offset IN (2, 4)", 4, 6),
        ("timestamp >= timestamp_millis(6000)", 8, 8),
        ("timestamp < timestamp_millis(6000)", 12, 20),
        ("timestamp >= timestamp_millis(999999)", 0, 0),
        ("value = '3'", 2, 20),
    ],
)
def test_a_filter_reads_only_what_it_needs(
    spark: SparkSession,
    kafka_broker: RunningBroker,
    topic: str,
    condition: str,
    expected: int,
    read: int,
) -> None:
    produce(kafka_broker, topic, 10)
    produce(kafka_broker, topic, 10, partition=1)
    loaded = table(spark, kafka_broker, topic=topic, push_filters="true")
    assert loaded.where(condition).count() == expected
    assert (
        rows_read(table(spark, kafka_broker, topic=topic, push_filters="true").where(condition))
        == read
    )


@pytest.mark.usefixtures("pushdown")
def test_no_query_returns_rows_that_its_filter_excludes(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str
) -> None:
    produce(kafka_broker, topic, 4)
    produce(kafka_broker, topic, 4, partition=1)
    frame = table(spark, kafka_broker, topic=topic, push_filters="true")
    one, other = frame.where("partition = 0"), frame.where("partition = 1")
    # Rows are missing, as the page says: both read the ranges of the second filter.
    assert rows_of(one.union(other)) <= {(topic, 0, n) for n in range(4)} | {
        (topic, 1, n) for n in range(4)
    }
    cast("Any", one)._jdf.queryExecution().executedPlan()
    assert rows_of(other) == {(topic, 1, n) for n in range(4)}
    assert {each.partition for each in one.collect()} <= {0}


@pytest.mark.usefixtures("pushdown")
def test_one_table_can_be_filtered_in_several_ways_if_filters_are_not_pushed(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str
) -> None:
    produce(kafka_broker, topic, 10)
    produce(kafka_broker, topic, 5, partition=1)
    frame = table(spark, kafka_broker, topic=topic)
    one, other = frame.where("partition = 0"), frame.where("partition = 1")
    assert (one.count(), frame.count(), one.union(other).count()) == (10, 15, 15)


def test_a_stream_notices_that_its_topic_was_created_again(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    register(spark)

    def run(**options: str) -> int:
        reader = spark.readStream.format("asyncrevoke").option("topic", topic)
        reader = reader.option("bootstrap_servers", kafka_broker.bootstrap_servers)
        query = (
            reader.options(**options)
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(each.numInputRows for each in query.recentProgress)

    produce(kafka_broker, topic, 20)
    assert run() == 20
    create_again(kafka_broker, topic, 2)
    produce(kafka_broker, topic, 30)
    with pytest.raises(StreamingQueryException, match="deleted and created again"):
        run()
    assert run(failOnDataLoss="false") == 30
    assert run() == 0
