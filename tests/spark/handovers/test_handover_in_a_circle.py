"""Spark and a live group take over a topic from each other while it is written to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from spark.source.test_stream import DRIVER

from asyncrevoke import Consumer, Record
from asyncrevoke.spark.handovers.group_handover import apply_handover, plan_handover
from asyncrevoke.spark.replays.streaming_query import replay_stream
from benchmarks.spark.handover import PARTITIONS, Load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

TARGET = "replayed_app:consumer"
RATE = 300.0
_DEADLINE = 200.0


def wait(condition: Callable[[], bool]) -> None:
    """Until it is true; AssertionError after the deadline."""
    deadline = time.monotonic() + _DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Circle:
    """One topic and one group. ``handled`` counts the records of the group by place."""

    def __init__(self, spark: SparkSession, address: str, topic: str, folder: Path) -> None:
        self.spark = spark
        self.address = address
        self.topic = topic
        self.folder = folder
        self.handled: Counter[tuple[int, int]] = Counter()

    def stream(self, name: str, start: str) -> None:
        """Run the handlers as a stream for two batches at least, and stop it."""
        query = replay_stream(
            self.spark,
            TARGET,
            topic=self.topic,
            start=start,
            checkpoint=str(self.folder / name / "checkpoint"),
            sink=str(self.folder / name),
            trigger="0 seconds",
            bootstrap_servers=self.address,
        )

        def has_two_batches() -> bool:
            assert query.exception() is None
            progress = query.lastProgress
            return progress is not None and int(progress["batchId"]) >= 2

        try:
            wait(has_two_batches)
        finally:
            query.stop()

    def killed_stream(self, name: str, notes: Path) -> None:
        """Run the handlers as a stream in another process, and kill it within a batch."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "driver.py").write_text(DRIVER)
        words = [sys.executable, "driver.py", self.address, self.topic, str(folder)]
        commits, effects = folder / "checkpoint" / "commits", notes / "effects"
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                words, cwd=folder, stdout=log, stderr=log, start_new_session=True
            )

            def is_held() -> bool:
                assert process.poll() is None, (folder / "log").read_text()[-2000:]
                begun = effects.read_text().splitlines() if effects.exists() else []
                return (commits / "0").exists() and f"{self.topic} 0 150" in begun

            try:
                wait(is_held)
            finally:
                os.killpg(process.pid, signal.SIGKILL)  # the JVM and its workers too
                process.wait()

    def hand_over(self, name: str, rows: str = "stream") -> bool:
        """Commit the offsets of a stream for the group. Whether it was stopped within a batch."""
        plan = plan_handover(
            self.folder / name / "checkpoint",
            group=self.topic,
            bootstrap=self.address,
            topic=self.topic,
            sink=self.folder / name / rows,
        )
        apply_handover(plan, bootstrap=self.address)
        return plan.pending is not None

    def group(self, until: Callable[[], bool]) -> None:
        """Handle records as a live member until this is true, and leave."""
        asyncio.run(self._group(until))

    async def _group(self, until: Callable[[], bool]) -> None:
        consumer = Consumer(
            group_id=self.topic, bootstrap_servers=self.address, auto_offset_reset="error"
        )

        @consumer.handler(self.topic)
        async def handle(record: Record) -> None:
            self.handled[record.partition, record.offset] += 1

        async with asyncio.timeout(_DEADLINE), consumer:
            while not until():  # noqa: ASYNC110 - also waits for another thread's counts
                await asyncio.sleep(0.05)

    def rows(self, folder: Path) -> Counter[tuple[int, int]]:
        """How many result rows each record has in a stream."""
        rows = self.spark.read.parquet(str(folder / "stream")).select("partition", "offset")
        return Counter((row[0], row[1]) for row in rows.collect())


@pytest.mark.parametrize("name", ["plain", "held"], ids=["stopped", "killed"])
def test_no_record_is_lost_or_repeated_from_spark_to_a_group_and_back_and_again(
    name: str, spark: SparkSession, kafka_broker: RunningBroker, notes: Path, tmp_path: Path
) -> None:
    address, topic = kafka_broker.bootstrap_servers, f"{name}-circle"
    kafka_broker.create_topic(topic, PARTITIONS)
    circle = Circle(spark, address, topic, tmp_path)
    with Load(address, topic, RATE) as load:
        wait(lambda: sum(load.written.values()) > 3 * RATE)
        if name == "held":
            circle.killed_stream("first", notes)
            (notes / "mended").touch()
            assert circle.hand_over("first", "rows/stream")
            first = circle.rows(tmp_path / "first" / "rows")
        else:
            circle.stream("first", "earliest")
            circle.hand_over("first")
            first = circle.rows(tmp_path / "first")
        circle.group(lambda: circle.handled.total() > RATE)
        by_group = circle.handled.total()
        circle.stream("second", f"group:{topic}")
        circle.hand_over("second")
        second = circle.rows(tmp_path / "second")
        load.end()
        written = {(number, at) for number, count in load.written.items() for at in range(count)}
        left = written - first.keys() - second.keys()
        circle.group(lambda: left <= circle.handled.keys())
    assert min(first.total(), by_group, second.total(), circle.handled.total() - by_group) > 0
    seen = first + second + circle.handled
    assert written - seen.keys() == set()
    assert {place: count for place, count in seen.items() if count > 1} == {}
