"""DataFrames and streams that Spark writes to topics."""

from __future__ import annotations

import asyncio
import socket
import threading
import uuid
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql.functions import expr
from spark.sink.written_topic import read_topic

from asyncrevoke.spark.source.data_source import register

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]


def append(frame: DataFrame, broker: RunningBroker, **options: str) -> None:
    writer = frame.write.format("asyncrevoke").mode("append").options(**options)
    writer.option("bootstrap_servers", broker.bootstrap_servers).save()


def test_a_table_with_every_column_is_read_again_as_it_was_written(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str
) -> None:
    register(spark)
    other = f"{topic}-other"
    kafka_broker.create_topic(other, 3)
    rows = spark.range(0, 3000, 1, 4).select(
        expr("if(id % 5 = 0, null, cast(id % 40 as string))").alias("key"),
        expr("if(id % 7 = 0, null, cast(concat('value ', id) as binary))").alias("value"),
        expr(
            "if(id % 2 = 0, array(named_struct('key', 'id', 'value', cast(cast(id as string) as "
            "binary)), named_struct('key', 'null', 'value', cast(null as binary))), null)"
        ).alias("headers"),
        expr(f"if(id % 3 = 0, '{other}', '{topic}')").alias("topic"),
        expr("if(id % 11 = 0, 1, null)").alias("partition"),
        expr("timestamp_millis(1700000000000 + id)").alias("timestamp"),
    )
    append(rows, kafka_broker)

    def read(name: str) -> DataFrame:
        reader = spark.read.format("asyncrevoke").option("topic", name)
        reader = reader.option("bootstrap_servers", kafka_broker.bootstrap_servers)
        return reader.option("include_headers", "true").load()

    found = read(topic).union(read(other))
    same = ["cast(key as binary) key", "value", "topic", "timestamp"]
    same.append("if(size(headers) > 0, headers, null) headers")
    wanted = rows.selectExpr(*same)
    assert found.count() == 3000
    assert found.selectExpr(*same).exceptAll(wanted).count() == 0
    named = "unix_millis(timestamp) % 11 = (1700000000000 % 11)"
    assert found.where(named).selectExpr("partition").distinct().collect() == [(1,)]


def test_a_stream_writes_each_row_of_its_source_once_when_nothing_fails(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    register(spark)
    copy = f"{topic}-copy"
    kafka_broker.create_topic(copy, 2)

    def run() -> None:
        source = spark.readStream.format("asyncrevoke").option("topic", topic)
        source = source.option("bootstrap_servers", kafka_broker.bootstrap_servers)
        rows = source.option("max_offsets_per_trigger", "200").load().select("key", "value")
        writer = rows.writeStream.format("asyncrevoke").option("topic", copy)
        writer = writer.option("bootstrap_servers", kafka_broker.bootstrap_servers)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    ids = spark.range(0, 500).selectExpr("cast(id as string) key", "cast(id as string) value")
    for first in (0, 250):
        append(ids.where(f"key >= {first} and key < {first + 250}"), kafka_broker, topic=topic)
        run()
    found = asyncio.run(read_topic(kafka_broker, copy))
    assert sorted(int(candidate.value or b"") for candidate in found) == list(range(500))


@pytest.mark.parametrize(
    ("mode", "message"),
    [("overwrite", r'cannot be overwritten: use .mode\("append"\)'), ("error", "ErrorIfExists")],
)
def test_a_mode_that_does_not_append_is_rejected(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str, mode: str, message: str
) -> None:
    register(spark)
    writer = spark.range(1).selectExpr("'x' value").write.format("asyncrevoke").mode(mode)
    writer = writer.option("bootstrap_servers", kafka_broker.bootstrap_servers)
    with pytest.raises(Exception, match=message):
        writer.option("topic", topic).save()
    assert asyncio.run(read_topic(kafka_broker, topic)) == []


def test_a_rejected_row_fails_the_job_with_its_partition_and_number(
    spark: SparkSession, kafka_broker: RunningBroker
) -> None:
    register(spark)
    topic = f"small-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(topic, 1, config={"max.message.bytes": "1000"})
    rows = spark.range(0, 100, 1, 2).selectExpr(
        "transform(sequence(1, if(id = 77, 3000, 1)), x -> substr(md5(string(x)), 1, 1)) many"
    )
    rows = rows.selectExpr("array_join(many, '') value")
    with pytest.raises(Exception, match=rf"row 27 of partition 1 of .* not written to {topic}"):
        append(rows, kafka_broker, topic=topic)
    found = asyncio.run(read_topic(kafka_broker, topic))
    assert max(len(candidate.value or b"") for candidate in found) == 1


def test_a_job_that_is_cancelled_ends_while_the_broker_is_silent(spark: SparkSession) -> None:
    register(spark)
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def cancel() -> None:
            # Both tasks have connected, and wait for a response.
            accepted = [silent.accept()[0] for _ in range(2)]
            spark.sparkContext.cancelAllJobs()
            for each in accepted:
                # Until the task's process has ended.
                while each.recv(1 << 16):
                    pass
                each.close()

        canceller = threading.Thread(target=cancel, daemon=True)
        canceller.start()
        writer = spark.range(0, 1000, 1, 2).selectExpr("cast(id as string) value").write
        writer = writer.format("asyncrevoke").mode("append").option("topic", "orders")
        writer = writer.option("bootstrap_servers", f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(Exception, match=r"(?i)cancel"):
            writer.option("request_timeout", "100").save()
        canceller.join(60)
        assert not canceller.is_alive()
    assert spark.range(10).count() == 10
