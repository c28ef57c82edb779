"""Typed results of a replay in tables of Parquet and Delta, and streams from and to Delta.

The jars of Delta come from Maven; ``tox -e spark`` asks for it. In a process of its
own: a JVM gets its jars when it starts.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from spark.clusters.processes import run

pyspark = pytest.importorskip("pyspark", reason="needs the extra spark")

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        "ASYNCREVOKE_SPARK_DOWNLOADS" not in os.environ,
        reason="ASYNCREVOKE_SPARK_DOWNLOADS=1 has the jars of Delta fetched from Maven",
    ),
    pytest.mark.skipif(
        not pyspark.__version__.startswith("4.2"), reason="this release of Delta is for Spark 4.2"
    ),
]

RECORDS = 40

APP = """
from dataclasses import dataclass
from asyncrevoke import Consumer

consumer = Consumer(group_id="billing")

@dataclass
class Invoice:
    order: int
    total: float
    lines: list[str]

@consumer.handler(pattern="plain.*", publish_to="invoices")
async def bill(order: int) -> Invoice:
    if order == 7:
        raise ValueError("no")
    return Invoice(order, order / 2, ["a"] * (order % 3))
"""

DRIVER = """
import sys
import invoice_app
from pyspark.sql import SparkSession
from asyncrevoke.spark import register, replay, resolve_ranges, result_tables
from benchmarks.spark.topic import jars

address, topic, folder = sys.argv[1:]
settings = {
    "spark.ui.enabled": "false",
    "spark.jars": jars(
        ("io.delta", "delta-spark_4.2_2.13", "4.4.0"),
        ("io.delta", "delta-storage", "4.4.0"),
    ),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
ranges = resolve_ranges(address, topic)
for run_id in ("november", "december"):
    report = replay(
        spark, "invoice_app:consumer", ranges, sink=f"{folder}/replayed", run_id=run_id,
        bootstrap_servers=address,
    )
    results = result_tables(spark, report, invoice_app.bill).results
    for _ in range(2):
        writer = results.write.partitionBy("run_id").mode("overwrite")
        writer.option("partitionOverwriteMode", "dynamic").parquet(f"{folder}/parquet")
        writer = results.write.format("delta").partitionBy("run_id").mode("overwrite")
        writer.option("replaceWhere", f"run_id = '{run_id}'").save(f"{folder}/delta")
tables = {
    "parquet": spark.read.parquet(f"{folder}/parquet"),
    "delta": spark.read.format("delta").load(f"{folder}/delta"),
}
for name, table in tables.items():
    runs = dict(sorted(table.groupBy("run_id").count().collect()))
    orders = table.where("run_id = 'november'").selectExpr("sum(result.total)").first()[0]
    print("TABLE", name, runs, orders, dict(table.dtypes)["result"])

register(spark)
def copy(name, writer, target):
    writer = writer.options(checkpointLocation=f"{folder}/checkpoints/{name}", **target)
    writer.trigger(availableNow=True).start().awaitTermination()

kafka = {"bootstrap_servers": address}
for attempt in range(2):
    source = spark.readStream.format("asyncrevoke").options(topic=topic, **kafka).load()
    copy("in", source.writeStream.format("delta"), {"path": f"{folder}/rows"})
    rows = spark.readStream.format("delta").load(f"{folder}/rows").select("key", "value")
    copy("out", rows.writeStream.format("asyncrevoke"), {"topic": f"{topic}-copy", **kafka})
written = spark.read.format("asyncrevoke").options(topic=f"{topic}-copy", **kafka).load()
print("COPIED", written.count(), written.select("value").distinct().count())
spark.stop()
"""


def test_results_are_written_again_without_repetition_in_each_format(
    kafka_broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
            for n in range(RECORDS):
                await producer.send(topic, b"%d" % n, partition=n % 2)

    asyncio.run(produce())
    kafka_broker.create_topic(f"{topic}-copy", 2)
    (tmp_path / "invoice_app.py").write_text(APP)
    (tmp_path / "driver.py").write_text(DRIVER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), str(tmp_path)])}
    words = [sys.executable, "driver.py", kafka_broker.bootstrap_servers, topic, str(tmp_path)]
    told = run(words, environment, tmp_path, 500)
    counts = {"december": RECORDS - 1, "november": RECORDS - 1}
    total = sum(n for n in range(RECORDS) if n != 7) / 2
    kind = "struct<order:bigint,total:double,lines:array<string>>"
    for name in ("parquet", "delta"):
        assert f"TABLE {name} {counts} {total} {kind}" in told
    assert f"COPIED {RECORDS} {RECORDS}" in told
