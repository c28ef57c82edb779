"""Executors that have nothing but an archive of an environment: ``tox -e spark`` asks for it.

By the example's own script and ``spark-submit``, as processes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from aiokafka import AIOKafkaProducer
from spark.clusters.processes import run

from asyncrevoke.journal.format.arrow import pq

pyspark = pytest.importorskip("pyspark", reason="needs the extra spark")

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        "ASYNCREVOKE_SPARK_DOWNLOADS" not in os.environ,
        reason="ASYNCREVOKE_SPARK_DOWNLOADS=1 has an environment made, with pip",
    ),
]

ROOT = Path(__file__).parents[3]
RECORDS = 100
MASTER = "local-cluster[2,1,1024]"
BIN = Path(pyspark.__file__).parent / "bin"

APP = """
import asyncrevoke, sys
from asyncrevoke import Consumer
consumer = Consumer(group_id="billing")

@consumer.handler(pattern="plain.*")
async def handle(value: bytes) -> object:
    return asyncrevoke.__file__ + " " + sys.prefix
"""

# Each of them is planned by a Python that the driver's Spark starts.
PLANNED = """
import sys
from asyncrevoke.spark import open_session, register, replay, replay_stream, resolve_ranges
address, topic, folder = sys.argv[1:]
spark = open_session()
report = replay(
    spark, "app:consumer", resolve_ranges(address, topic), sink=folder, run_id="source",
    bootstrap_servers=address, engine="source",
)
print("OUTCOMES", dict(report.outcomes))
replay_stream(
    spark, "app:consumer", topic=topic, checkpoint=f"{folder}/checkpoint", sink=folder,
    bootstrap_servers=address,
).awaitTermination()
print("STREAM", spark.read.parquet(f"{folder}/stream").count())
register(spark)
table = spark.read.format("asyncrevoke").option("bootstrap_servers", address).option("topic", topic)
print("TABLE", table.load().count())
spark.stop()
"""


class Place(NamedTuple):
    """A folder with ``app.py`` and ``examples``, and what commands know there."""

    folder: Path
    environment: dict[str, str]

    def run(self, *words: str) -> str:
        return run(words, self.environment, self.folder, 800)


async def fill(servers: str, topic: str) -> None:
    """Records of yesterday, which is what the example replays."""
    yesterday = int((datetime.now(UTC) - timedelta(days=1)).timestamp() * 1000)
    producer: Any = AIOKafkaProducer(bootstrap_servers=servers)  # half typed
    async with producer:
        for n in range(RECORDS):
            await producer.send_and_wait(topic, b"%d" % n, partition=n % 2, timestamp_ms=yesterday)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("packed")
    (folder / "app.py").write_text(APP)
    shutil.copytree(ROOT / "examples", folder / "examples")
    # This package is where pip looks, as it will be in an index.
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"{ROOT}"]
    run([*build, "--wheel-dir", str(folder / "wheels")], os.environ, folder, 300)
    # Only the driver is told where this package's sources are: executors inherit all but this.
    driver = folder / "driver-python"
    driver.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{ROOT}" exec "{sys.executable}" "$@"\n', "utf-8"
    )
    driver.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "MASTER": MASTER,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PIP_FIND_LINKS": str(folder / "wheels"),
        "PYSPARK_DRIVER_PYTHON": str(driver),
        "PYTHON": sys.executable,
        "SINK": str(folder / "replayed"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return Place(folder, environment)


class Replayed(NamedTuple):
    """What the example's script has left, and said."""

    place: Place
    servers: str
    topic: str
    told: str


@pytest.fixture(scope="module")
def replayed(place: Place, kafka_broker: RunningBroker) -> Replayed:
    servers, topic = kafka_broker.bootstrap_servers, f"plain-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(topic, 2)
    asyncio.run(fill(servers, topic))
    environment = {**place.environment, "KAFKA": servers, "TOPIC": topic}
    told = place._replace(environment=environment).run("bash", "examples/spark_packed.sh")
    return Replayed(place, servers, topic, told)


def test_the_example_packs_an_environment_and_its_executors_run_handlers_in_it(
    replayed: Replayed,
) -> None:
    assert f"{RECORDS} records: {{'ok': {RECORDS}}}" in replayed.told
    results = replayed.place.folder / "replayed" / "results"
    rows = pq.read_table(results, columns=["result"]).to_pylist()
    ran = [row["result"].decode() for row in rows]
    assert len(ran) == RECORDS
    for line in set(ran):
        assert line.count("/environment") == 2, line
        assert str(ROOT / "asyncrevoke") not in line


def test_what_the_driver_plans_in_python_works_where_the_archive_is_unpacked(
    replayed: Replayed,
) -> None:
    place = replayed.place
    folder = place.folder / "environment"
    folder.mkdir()
    place.run("tar", "-xzf", str(place.folder / "environment.tar.gz"), "-C", str(folder))
    (place.folder / "planned.py").write_text(PLANNED)
    environment = {**place.environment, "PYSPARK_PYTHON": "./environment/bin/python"}
    told = place._replace(environment=environment).run(
        *(str(BIN / "spark-submit"), "--master", MASTER),
        *("--archives", "environment.tar.gz#environment", "--py-files", "app.py"),
        *("--conf", "spark.speculation=false"),
        *("planned.py", replayed.servers, replayed.topic, str(place.folder / "planned")),
    )
    assert f"OUTCOMES {{'ok': {RECORDS}}}" in told
    assert f"STREAM {RECORDS}" in told
    assert f"TABLE {RECORDS}" in told
