"""Topics as tables and streams of a real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.errors import StreamingQueryException
from spark.real_topics import create_again, produce

from asyncrevoke.spark.source.data_source import register

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]


def table(spark: SparkSession, broker: RunningBroker, **options: str) -> DataFrame:
    register(spark)
    reader = spark.read.format("asyncrevoke").option("bootstrap_servers", broker.bootstrap_servers)
    return reader.options(**options).schema("topic string, partition int, offset bigint").load()


def test_several_topics_are_one_table(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str
) -> None:
    other = f"{topic}-b"
    kafka_broker.create_topic(other, 1)
    produce(kafka_broker, topic, 3, partition=1)
    produce(kafka_broker, other, 2)
    expected = {(topic, 1, 0), (topic, 1, 1), (topic, 1, 2), (other, 0, 0), (other, 0, 1)}
    named = table(spark, kafka_broker, subscribe=f"{topic},{other}")
    assert {tuple(row) for row in named.collect()} == expected
    matched = table(spark, kafka_broker, subscribePattern=f"{topic}.*")
    assert {tuple(row) for row in matched.collect()} == expected


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
