"""Audits on executors of their own, and through Spark Connect: each in a process of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from unit.journal.sealed_again import seal_again

from asyncrevoke import Consumer, Record
from asyncrevoke.journal import Journal
from asyncrevoke.journal.recording import writer
from asyncrevoke.journal.segments import sessions

pytest.importorskip("pyspark", reason="needs the extra spark")

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.journal.segments import Segment

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

# Of each of two sessions.
COUNT = 150
PARTITIONS = 2
CHANGED = 41

# By fingerprints, for which there are too few records otherwise.
DRIVER = """
import sys
from asyncrevoke.audit.audited_group import AuditSettings
from asyncrevoke.spark import audit, open_session
from asyncrevoke.spark.audits import run
from asyncrevoke.spark.session import is_connected
master, address, topic, folder = sys.argv[1:]
if master == "connect":
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.remote("local[2]").getOrCreate()  # with a server of its own
    assert is_connected(spark)
else:
    spark = open_session(master)
# Code is not compiled for a hundred rows.
for name, value in (
    ("codegen.wholeStage", "false"), ("adaptive.enabled", "false"), ("shuffle.partitions", "1")
):
    spark.conf.set(f"spark.sql.{name}", value)
run._settings = lambda _: AuditSettings(exact_below=1)
source = {"topic": topic, "bootstrap_servers": address}
found = audit(spark, journal=f"{folder}/journal", source=source, out=f"{folder}/report")
print("TOLD", found.status, found.done, found.read, found.two_tiers)
for each in found.anomalies:
    print("ANOMALY", each.kind, each.partition, each.offset_lo, each.offset_hi)
spark.stop()
"""


async def journalled(servers: str, topic: str, folder: Path) -> None:
    """A live consumer handles what a topic is given now, and writes its journal."""
    producer: Any = AIOKafkaProducer(bootstrap_servers=servers)  # half typed
    async with producer:
        for n in range(COUNT):
            await producer.send(topic, b"v%d" % n, key=b"%d" % (n % 9), partition=n % PARTITIONS)
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=topic,
        auto_offset_reset="earliest",
        journal=Journal(folder, content="records"),
    )
    handled = 0
    done = asyncio.Event()

    @consumer.handler(topic)
    async def handle(_record: Record) -> None:
        nonlocal handled
        handled += 1
        if handled == COUNT:
            done.set()

    async with asyncio.timeout(60), consumer:
        await done.wait()


def unsealed(segment: Segment, _stop: object = None) -> Segment:
    """As a process that was killed leaves it."""
    return segment


def change_one_record(folder: Path, partition: int, offset: int) -> None:
    """Its handler was given other bytes than the topic has."""
    (session,) = sessions(folder)
    (segment,) = session.segments()
    wanted = ("ATTEMPT", partition, offset)

    def change(rows: list[dict[str, Any]]) -> None:
        (row,) = (
            each for each in rows if (each["kind"], each["partition"], each["offset"]) == wanted
        )
        row["record_hash"] ^= 1

    seal_again(segment, change)


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
def test_an_audit_finds_the_same_where_its_tasks_are_elsewhere(
    master: str,
    kafka_broker: RunningBroker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers, journal = kafka_broker.bootstrap_servers, tmp_path / "journal"
    asyncio.run(journalled(servers, topic, journal))
    change_one_record(journal, 1, CHANGED)
    # A log that nobody has sealed yet takes Python to be read.
    monkeypatch.setattr(writer, "seal", unsealed)
    asyncio.run(journalled(servers, topic, journal))
    assert {file.suffix for file in journal.glob("*/0*")} == {".parquet", ".log"}
    (tmp_path / "driver.py").write_text(DRIVER)
    words = [sys.executable, str(tmp_path / "driver.py"), master, servers, topic, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        words,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    told = [line for line in done.stdout.splitlines() if line.startswith(("TOLD", "ANOMALY"))]
    assert told == [
        f"TOLD FAIL {2 * COUNT} {2 * COUNT} True",
        f"ANOMALY content_mismatch 1 {CHANGED} {CHANGED}",
    ]
    assert "FAIL" in (tmp_path / "report" / "report.html").read_text("utf-8")
