"""The same on executors of their own, and through Spark Connect: each in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from spark.clusters.processes import run

pytest.importorskip("pyspark", reason="needs the extra spark")

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

DRIVER = """
import sys
from asyncrevoke.spark import open_session, register, replay, replay_stream, resolve_ranges
from asyncrevoke.spark.session import is_connected
master, address, topic, folder, app = sys.argv[1:]
if master == "connect":
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.remote("local[2]").getOrCreate()  # with a server of its own
    assert is_connected(spark)
else:
    spark = open_session(master)
ranges = resolve_ranges(address, topic)
report = replay(
    spark, "shipped_app:consumer", ranges, sink=folder, run_id="one", bootstrap_servers=address,
    py_files=[app], checkpoint_every=60,
)
print("OUTCOMES", dict(report.outcomes), report.records)
query = replay_stream(
    spark, "shipped_app:consumer", topic=topic, checkpoint=f"{folder}/ck", sink=folder,
    bootstrap_servers=address, py_files=[app],
)
query.awaitTermination()
print("STREAM", spark.read.parquet(f"{folder}/stream").count())

def same(batches):
    yield from batches

register(spark)
reader = spark.read.format("asyncrevoke").option("bootstrap_servers", address)
table = reader.option("topic", topic).load()
# All tasks of a barrier stage run at the same time.
barrier = table.select("key", "value").mapInArrow(same, "key binary, value binary", barrier=True)
writer = barrier.write.format("asyncrevoke").option("bootstrap_servers", address)
writer.option("topic", f"{topic}-copy").mode("append").save()
copy = reader.option("topic", f"{topic}-copy")
query = (
    spark.readStream.format("asyncrevoke").option("bootstrap_servers", address)
    .option("topic", f"{topic}-copy").load().select("value")
    .writeStream.format("asyncrevoke").option("bootstrap_servers", address)
    .option("topic", f"{topic}-copy-of-copy").option("checkpointLocation", f"{folder}/copies")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
copies = reader.option("topic", f"{topic}-copy-of-copy").load()
print("COPIED", table.count(), copy.load().count(), copies.select("value").distinct().count())
spark.stop()
"""

APP = """
from asyncrevoke import Consumer
consumer = Consumer(group_id="billing")

@consumer.handler(pattern="plain.*")
async def handle(value: bytes) -> object:
    return value
"""


def fill(broker: RunningBroker, topic: str) -> None:
    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for n in range(200):
                await producer.send(topic, b"%d" % n, partition=n % 2)

    asyncio.run(produce())


@pytest.mark.parametrize(
    "master",
    [
        "local-cluster[2,1,1024]",
        pytest.param(
            "connect",
            marks=pytest.mark.skipif(find_spec("grpc") is None, reason="needs pyspark[connect]"),
        ),
    ],
)
def test_handlers_source_and_sink_run_where_only_their_code_was_sent_to(
    master: str, kafka_broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    fill(kafka_broker, topic)
    for copy in ("copy", "copy-of-copy"):
        kafka_broker.create_topic(f"{topic}-{copy}", 2)
    (tmp_path / "driver.py").write_text(DRIVER)
    (tmp_path / "code").mkdir()
    app = tmp_path / "code" / "shipped_app.py"
    app.write_text(APP)
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "SPARK_LOCAL_IP": "127.0.0.1"}
    words = [sys.executable, str(tmp_path / "driver.py"), master]
    words += [kafka_broker.bootstrap_servers, topic, str(tmp_path / "out"), str(app)]
    told = run(words, environment, tmp_path, 800)
    assert "OUTCOMES {'ok': 200} 200" in told
    assert "STREAM 200" in told
    assert "COPIED 200 200 200" in told
