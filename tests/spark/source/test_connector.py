"""The engine on Spark's Kafka connector, whose jars come from Maven; ``tox -e spark`` asks for it.

In a process of its own: a JVM gets its jars when it starts.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from spark.real_topics import ended_ranges

pytest.importorskip("pyspark", reason="needs the extra spark")

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        "ASYNCREVOKE_SPARK_DOWNLOADS" not in os.environ,
        reason="ASYNCREVOKE_SPARK_DOWNLOADS=1 has the connector's jars fetched from Maven",
    ),
]

APP = """
from asyncrevoke import Consumer, Record
consumer = Consumer(group_id="billing")

@consumer.handler(pattern="plain.*")
async def handle(value: bytes, record: Record) -> object:
    return repr((record.key, value, record.headers, record.timestamp, record.timestamp_type))
"""

DRIVER = """
import sys
from benchmarks.spark.topic import with_connector
from asyncrevoke.spark import handover, replay, resolve_ranges
from asyncrevoke.client.model import TopicPartition
from pyspark.sql import SparkSession
address, topic, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = with_connector(builder).getOrCreate()
ranges = resolve_ranges(address, topic)
print("ENDS", [each.end for each in ranges])
rows = {}
for engine in ("direct", "source", "jvm"):
    report = replay(
        spark, "connected_app:consumer", ranges, sink=folder, run_id=engine, engine=engine,
        bootstrap_servers=address, checkpoint_every=25,
    )
    print(engine, dict(report.outcomes))
    found = spark.read.parquet(report.results).select("partition", "offset", "result").collect()
    rows[engine] = sorted((row[0], row[1], bytes(row[2])) for row in found)
    assert len(set(rows[engine])) == len(rows[engine])
assert rows["direct"] == rows["source"] == rows["jvm"]
split = replay(
    spark, "connected_app:consumer", ranges, sink=folder, run_id="split", engine="jvm",
    bootstrap_servers=address, order_by=None, min_partitions=7,
)
found = spark.read.parquet(split.results).select("partition", "offset", "range_start", "result")
parts = {(row[0], row[2]) for row in found.collect()}
assert len(parts) > 4, parts
assert sorted((row[0], row[1], bytes(row[3])) for row in found.collect()) == rows["jvm"]
print("ROWS", len(rows["jvm"]))
stream = (
    spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    .option("subscribe", topic).option("startingOffsets", "earliest")
    .option("kafka.isolation.level", "read_committed").load()
)
stream.select("value").writeStream.format("parquet").option("path", f"{folder}/values").option(
    "checkpointLocation", f"{folder}/checkpoint"
).trigger(availableNow=True).start().awaitTermination()
offsets = handover(f"{folder}/checkpoint", group=topic, bootstrap=address, dry_run=False)
assert offsets == {TopicPartition(topic, each.partition): each.end for each in ranges}, offsets
print("HANDED", len(offsets))
spark.stop()
"""


def fill(broker: RunningBroker, topic: str) -> None:
    """60 records by partition in turn, 20 that are aborted, 20 that are committed."""

    async def produce() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id=topic
        )
        async with producer:
            for count, abort in ((60, False), (20, True), (20, False)):
                await producer.begin_transaction()
                for n in range(count):
                    await producer.send_and_wait(
                        topic,
                        b"%d" % n,
                        key=None if n % 5 == 0 else b"k%d" % (n % 7),
                        headers=[("n", b"%d" % n), ("empty", b"")] if n % 3 else [],
                        partition=n % 2,
                    )
                if abort:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()

    asyncio.run(produce())
    # 50 of each partition, and three markers.
    ended_ranges(broker.bootstrap_servers, topic, 53, 53)


def test_the_connector_brings_the_same_records_and_its_checkpoints_are_handed_over(
    kafka_broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    fill(kafka_broker, topic)
    (tmp_path / "connected_app.py").write_text(APP)
    (tmp_path / "driver.py").write_text(DRIVER)
    path = os.pathsep.join([str(tmp_path), os.getcwd()])
    words = [sys.executable, str(tmp_path / "driver.py"), kafka_broker.bootstrap_servers, topic]
    words.append(str(tmp_path / "out"))
    done = subprocess.run(
        words,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert "ROWS 80" in done.stdout
    assert "HANDED 2" in done.stdout
