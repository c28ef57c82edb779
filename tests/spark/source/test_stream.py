"""The source as a stream, and handlers on it, with checkpoints and a driver that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer

pytest.importorskip("pyspark", reason="needs the extra spark")

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.spark.handovers.group_handover import handover
from asyncrevoke.spark.replays.streaming_query import replay_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

TARGET = "replayed_app:consumer"

DRIVER = """
import sys
from asyncrevoke.spark import open_session, replay_stream
address, topic, folder, *trigger = sys.argv[1:]
spark = open_session("local[2]")
replay_stream(
    spark, "replayed_app:consumer", topic=topic, checkpoint=f"{folder}/checkpoint",
    sink=f"{folder}/rows", bootstrap_servers=address, max_offsets_per_trigger=200,
    trigger=trigger[0] if trigger else "availableNow",
).awaitTermination()
spark.stop()
"""


def fill(broker: RunningBroker, topic: str, count: int) -> None:
    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for n in range(count):
                await producer.send(topic, b"x", key=b"k%d" % n, partition=n % 2)

    asyncio.run(produce())


def test_a_query_resumes_at_its_checkpoint_and_its_group_follows(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str, notes: Path, tmp_path: Path
) -> None:
    address = kafka_broker.bootstrap_servers

    def run() -> int:
        query = replay_stream(
            spark,
            TARGET,
            topic=topic,
            checkpoint=str(tmp_path / "checkpoint"),
            sink=str(tmp_path),
            bootstrap_servers=address,
            max_offsets_per_trigger=30,
        )
        query.awaitTermination()
        return sum(each.numInputRows for each in query.recentProgress)

    fill(kafka_broker, topic, 40)
    assert run() == 40
    fill(kafka_broker, topic, 20)
    assert run() == 20
    rows = spark.read.parquet(str(tmp_path / "stream"))
    assert rows.count() == rows.select("partition", "offset").distinct().count() == 60
    assert set((notes / "effects").read_text().splitlines()) == {
        f"{topic} {partition} {offset}" for partition in (0, 1) for offset in range(30)
    }
    offsets = handover(
        tmp_path / "checkpoint", group=topic, topic=topic, bootstrap=address, dry_run=False
    )
    assert offsets == {TopicPartition(topic, 0): 30, TopicPartition(topic, 1): 30}


@pytest.mark.parametrize("topic", ["held"], indirect=True)
def test_a_driver_that_is_killed_in_mid_batch_leaves_exact_rows_and_repeated_effects(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str, notes: Path, tmp_path: Path
) -> None:
    fill(kafka_broker, topic, 1000)
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    words = [sys.executable, str(script), kafka_broker.bootstrap_servers, topic, str(tmp_path)]
    commits = tmp_path / "checkpoint" / "commits"
    effects = notes / "effects"

    def is_held() -> bool:
        # The second batch of five: something is committed, and something is not.
        return (commits / "0").exists() and f"{topic} 0 150" in effects.read_text().splitlines()

    with (tmp_path / "log").open("wb") as log:
        first = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + 400
            while not is_held():
                assert first.poll() is None, (tmp_path / "log").read_text()[-2000:]
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()[-2000:]
                time.sleep(0.05)
        finally:
            os.killpg(first.pid, signal.SIGKILL)  # the JVM and its workers too
            first.wait()
        (notes / "mended").touch()
        subprocess.run(words, stdout=log, stderr=log, timeout=400, check=True)
    rows = spark.read.parquet(str(tmp_path / "rows" / "stream"))
    assert rows.count() == rows.select("partition", "offset").distinct().count() == 1000
    made = Counter(effects.read_text().splitlines())
    assert len(made) == 1000
    assert sum(made.values()) > 1000  # so that the kill has hit a batch
    assert max(made.values()) == 2


@pytest.mark.variant
def test_a_jvm_that_is_killed_between_two_batches_ends_the_driver_and_repeats_no_effect(
    spark: SparkSession, kafka_broker: RunningBroker, topic: str, notes: Path, tmp_path: Path
) -> None:
    fill(kafka_broker, topic, 500)
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    words = [sys.executable, str(script), kafka_broker.bootstrap_servers, topic, str(tmp_path)]
    commits = tmp_path / "checkpoint" / "commits"
    with (tmp_path / "log").open("wb") as log:
        first = subprocess.Popen([*words, "1 hour"], stdout=log, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + 400
            while not (commits / "0").exists():
                assert first.poll() is None, (tmp_path / "log").read_text()[-2000:]
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()[-2000:]
                time.sleep(0.05)
            (jvm,) = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
            os.kill(int(jvm), signal.SIGKILL)
            assert first.wait(60) != 0
        finally:
            with suppress(ProcessLookupError):  # nothing is left of it
                os.killpg(first.pid, signal.SIGKILL)
            first.wait()
        subprocess.run(words, stdout=log, stderr=log, timeout=400, check=True)
    rows = spark.read.parquet(str(tmp_path / "rows" / "stream"))
    assert rows.count() == rows.select("partition", "offset").distinct().count() == 500
    assert Counter((notes / "effects").read_text().splitlines()).most_common(1)[0][1] == 1
