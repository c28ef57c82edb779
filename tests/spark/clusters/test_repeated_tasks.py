"""Tasks on a cluster that Spark runs again or twice, and executors that it removes when idle."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from spark.clusters.processes import run

pytest.importorskip("pyspark", reason="needs the extra spark")

from spark.clusters.standalone import standalone_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker, pytest.mark.slow, pytest.mark.variant, pytest.mark.timeout(900)
]  # fmt: skip

RECORDS = 6000

APP = """
import asyncio, os
from pathlib import Path
from asyncrevoke import Consumer, Record

consumer = Consumer(group_id="billing")
FOLDER = Path(os.environ["NOTES"])

def first(name):
    try:
        (FOLDER / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

@consumer.handler(pattern="plain.*")
async def handle(record: Record) -> object:
    if record.partition == 1 and record.offset == 60:
        if first("the first attempt of a handler"):
            async with asyncio.timeout(120):
                while not (FOLDER / "the second attempt of a handler").exists():
                    await asyncio.sleep(0.05)
        else:
            first("the second attempt of a handler")
    return record.offset
"""

# A session that open_session did not make: speculation is on.
DRIVER = """
import sys, time
import speculative_app
from pyspark.sql import SparkSession
from asyncrevoke.spark import register, replay, resolve_ranges
master, address, topic, copy, folder, app = sys.argv[1:]
settings = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.shuffleTracking.timeout": "10s",
    "spark.dynamicAllocation.executorIdleTimeout": "10s",
}
builder = SparkSession.builder.master(master)
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.addPyFile(app)
register(spark)

def table(name):
    reader = spark.read.format("asyncrevoke").option("bootstrap_servers", address)
    return reader.option("topic", name).load()

def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)

def failing(batches):
    for number, batch in enumerate(batches):
        if number == 1 and speculative_app.first("a reading task fails"):
            raise ValueError("the first attempt")
        yield batch

def speculated(batches):
    for batch in batches:
        yield batch
    if 1 in batch.column("partition").to_pylist():
        if speculative_app.first("the first reader"):
            wait_for((speculative_app.FOLDER / "the second reader").exists)
        else:
            speculative_app.first("the second reader")

def read(label, function):
    rows = table(topic).select("partition", "offset")
    rows = rows.mapInArrow(function, "partition int, offset long")
    print(label, rows.count(), flush=True)

read("READ AGAIN", failing)
read("READ TWICE", speculated)
report = replay(
    spark, "speculative_app:consumer", resolve_ranges(address, topic), sink=folder, run_id="one",
    bootstrap_servers=address, py_files=[app],
)
rows = spark.read.parquet(report.results)
print("REPLAYED", rows.count(), rows.select("partition", "offset").distinct().count(), flush=True)

ROWS = 15_000

def written_twice(batches):
    for batch in batches:
        yield batch
    if batch.column("key").to_pylist()[-1] == str(2 * ROWS - 1):
        # Spark ends the first attempt when the second one has succeeded.
        if speculative_app.first("the first writer"):
            wait_for(lambda: False)

rows = spark.range(0, 2 * ROWS, 1, 2)
rows = rows.selectExpr("string(id) key", "rpad(string(id), 1000, ' x') value")
writer = rows.mapInArrow(written_twice, "key string, value string").write.format("asyncrevoke")
writer.mode("append").option("topic", copy).option("bootstrap_servers", address).save()
keys = table(copy).select("key")
print("WRITTEN", keys.distinct().count(), "REPEATED", keys.count() > 2 * ROWS, flush=True)

executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos
wait_for(lambda: len(executors()) == 1)  # the driver
print("WITHOUT EXECUTORS", flush=True)
counts = []
for adaptive in ("true", "false"):
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    joined = table(topic).join(table(topic).groupBy("partition").count(), "partition")
    counts.append(joined.where("offset % 2 = 0").groupBy("partition", "count").count().count())
print("ADAPTIVE", *counts)
spark.stop()
"""


async def fill(broker: RunningBroker, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n in range(RECORDS):
            await producer.send(topic, b"%d" % n, partition=n % 2)


def test_rows_are_exact_and_written_records_repeated_when_a_task_runs_twice(
    kafka_broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    asyncio.run(fill(kafka_broker, topic))
    copy = f"{topic}-copy"
    kafka_broker.create_topic(copy, 1)
    (tmp_path / "driver.py").write_text(DRIVER)
    app = tmp_path / "speculative_app.py"
    app.write_text(APP)
    environment = {
        **os.environ,
        "NOTES": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([os.getcwd(), str(tmp_path)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    topics = (kafka_broker.bootstrap_servers, topic, copy)
    with standalone_cluster(tmp_path) as address:
        words = [sys.executable, "driver.py", address, *topics, str(tmp_path / "out"), str(app)]
        told = run(words, environment, tmp_path, 600)
    assert f"READ AGAIN {RECORDS}\n" in told
    assert f"READ TWICE {RECORDS}\n" in told
    assert f"REPLAYED {RECORDS} {RECORDS}\n" in told
    assert "WRITTEN 30000 REPEATED True\n" in told
    assert "WITHOUT EXECUTORS\n" in told
    assert "ADAPTIVE 2 2\n" in told
    for name in (
        "a reading task fails",
        "the second reader",
        "the second attempt of a handler",
        "the first writer",
    ):
        assert (tmp_path / name).exists(), name
