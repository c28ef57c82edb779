"""A standalone cluster with two workers, on which an executor is killed and tasks are repeated."""

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
    from collections.abc import Generator
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

RECORDS = 200

# In a task, the process of the executor is the parent of the daemon that has forked this process.
APP = """
import os, signal
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

def kill_executor():
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(executor, signal.SIGKILL)

@consumer.handler(pattern="plain.*")
async def handle(record: Record) -> object:
    if record.partition == 1 and record.offset == 60 and first("killed by a handler"):
        kill_executor()
    return record.offset
"""

# Each attempt of a task has the same rows. The first attempt of partition 0 kills its executor when
# the topic has records; that of partition 1 fails after its last row.
DRIVER = """
import sys, time
import killing_app
from asyncrevoke.spark import open_session, register, replay, resolve_ranges
master, address, topic, copy, folder, app = sys.argv[1:]
spark = open_session(master)
report = replay(
    spark, "killing_app:consumer", resolve_ranges(address, topic), sink=folder, run_id="one",
    bootstrap_servers=address, py_files=[app],
)
rows = spark.read.parquet(report.results)
distinct = rows.select("partition", "offset").distinct().count()
print("REPLAYED", dict(report.outcomes), rows.count(), distinct)

ROWS = 15_000

def interrupted(batches):
    import pyarrow
    for batch in batches:
        yield batch
        ids = batch.column("id").to_pylist()
    if ids[-1] == ROWS - 1 and killing_app.first("killed while writing"):
        deadline = time.monotonic() + 60
        while not any(each.end for each in resolve_ranges(address, copy)):
            assert time.monotonic() < deadline
        killing_app.kill_executor()
    if ids[-1] == 2 * ROWS - 1 and killing_app.first("failed while writing"):
        raise ValueError("the first attempt")

register(spark)
rows = spark.range(0, 2 * ROWS, 1, 2).mapInArrow(interrupted, "id long")
rows = rows.selectExpr("cast(id as string) key", "rpad(cast(id as string), 1000, ' x') value")
writer = rows.write.format("asyncrevoke").mode("append").option("topic", copy)
writer.option("bootstrap_servers", address).save()
table = spark.read.format("asyncrevoke").option("bootstrap_servers", address).option("topic", copy)
found = table.load().select("key").cache()
print("WRITTEN", found.distinct().count(), "REPEATED", found.count() > found.distinct().count())
spark.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Generator[str]:
    with standalone_cluster(tmp_path) as address:
        yield address


def fill(broker: RunningBroker, topic: str) -> None:
    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for n in range(RECORDS):
                await producer.send(topic, b"%d" % n, partition=n % 2)

    asyncio.run(produce())


def test_results_are_exact_and_writes_at_least_once_when_tasks_are_repeated(
    cluster: str, kafka_broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    fill(kafka_broker, topic)
    copy = f"{topic}-copy"
    kafka_broker.create_topic(copy, 2)
    (tmp_path / "driver.py").write_text(DRIVER)
    app = tmp_path / "killing_app.py"
    app.write_text(APP)
    environment = {
        **os.environ,
        "NOTES": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([os.getcwd(), str(tmp_path)]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    words = [sys.executable, "driver.py", cluster, kafka_broker.bootstrap_servers, topic, copy]
    told = run([*words, str(tmp_path / "out"), str(app)], environment, tmp_path, 800)
    assert f"REPLAYED {{'ok': {RECORDS}}} {RECORDS} {RECORDS}" in told
    assert "WRITTEN 30000 REPEATED True" in told
    for name in ("killed by a handler", "killed while writing", "failed while writing"):
        assert (tmp_path / name).exists()
