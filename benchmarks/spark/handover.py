"""Handing a topic from Spark to a consumer group while it is written to, again and again.

``python -m benchmarks.spark.handover --runs 20``: in each run handlers work on a topic as a stream,
the query ends by itself or is stopped in mid-run, its offsets are handed to a group, and the same
handlers go on as a live consumer. Exits with 1 if any record was lost, or stands in the rows of
both.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from aiokafka import AIOKafkaProducer

from asyncrevoke import Consumer, Record
from asyncrevoke.broker import KafkaBroker
from asyncrevoke.spark.handovers.group_handover import apply_handover, plan_handover
from asyncrevoke.spark.replays.streaming_query import replay_stream
from asyncrevoke.spark.session import open_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 4
_DEADLINE = 120.0


class Run(NamedTuple):
    """One run. ``pending``: the query was stopped inside a batch, whose effects are repeated."""

    written: int
    by_spark: int
    by_group: int
    lost: int
    repeated: int
    pending: bool


class Load:
    """A thread that writes until it is left."""

    def __init__(self, address: str, topic: str, rate: float) -> None:
        self._address, self._topic, self._rate = address, topic, rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._write()))
        self.written: Counter[int] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop writing, and wait until everything is written."""
        self._stop.set()
        self._thread.join()

    async def _write(self) -> None:
        producer: Any = AIOKafkaProducer(bootstrap_servers=self._address, linger_ms=5)  # half typed
        async with producer:
            began, sent = time.monotonic(), 0
            while not self._stop.is_set():
                for _ in range(int((time.monotonic() - began) * self._rate) - sent):
                    number = sent % PARTITIONS
                    key = b"%d" % (sent % 97)
                    await producer.send(self._topic, b"x", key=key, partition=number)
                    self.written[number] += 1
                    sent += 1
                await asyncio.sleep(0.005)


def main() -> int:
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=20)
    options.add_argument("--rate", type=float, default=2000.0, help="records written each second")
    arguments = options.parse_args()
    failed = 0
    with KafkaBroker() as broker, tempfile.TemporaryDirectory() as folder:
        spark = open_session("local[2]")
        spark.sparkContext.setLogLevel("ERROR")
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        for number in range(arguments.runs):
            topic = f"handover-{number}"
            broker.create_topic(topic, PARTITIONS)
            run = _run(
                spark,
                broker.bootstrap_servers,
                topic,
                f"{folder}/{number}",
                arguments.rate,
                in_mid_run=number % 2 == 1,
            )
            failed += bool(run.lost or run.repeated)
            print(
                f"{number + 1:3} {'stopped' if number % 2 else 'ended  '} "
                f"{run.written} written, {run.by_spark} by Spark, {run.by_group} by the group: "
                f"{run.lost} lost, {run.repeated} repeated"
                + (", stopped inside a batch" if run.pending else ""),
                flush=True,
            )
        spark.stop()
    print(f"{arguments.runs - failed} of {arguments.runs} runs without loss and repetition")
    return 1 if failed else 0


def _run(
    spark: SparkSession, address: str, topic: str, folder: str, rate: float, *, in_mid_run: bool
) -> Run:
    with Load(address, topic, rate) as load:
        _wait(lambda: sum(load.written.values()) > rate)
        query = replay_stream(
            spark,
            "benchmarks.spark.handlers:consumer",
            topic=topic,
            checkpoint=f"{folder}/checkpoint",
            sink=folder,
            trigger="0 seconds" if in_mid_run else "availableNow",
            max_offsets_per_trigger=int(20 * rate),
            bootstrap_servers=address,
        )
        if in_mid_run:
            _wait(lambda: _batches(query) >= 2)
            query.stop()
        query.awaitTermination()
        plan = plan_handover(
            f"{folder}/checkpoint",
            group=topic,
            bootstrap=address,
            topic=topic,
            sink=f"{folder}/stream",
        )
        apply_handover(plan, bootstrap=address)
        # The group goes on while the load does.
        by_group = asyncio.run(_go_on(address, topic, load))
    rows = spark.read.parquet(f"{folder}/stream").select("partition", "offset").collect()
    seen = Counter((row[0], row[1]) for row in rows) + by_group
    wanted = {(number, at) for number, count in load.written.items() for at in range(count)}
    return Run(
        len(wanted),
        len(rows),
        by_group.total(),
        len(wanted - seen.keys()),
        sum(count - 1 for count in seen.values()),
        plan.pending is not None,
    )


def _batches(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


async def _go_on(address: str, topic: str, load: Load) -> Counter[tuple[int, int]]:
    """What a live consumer of the group handles: all that is left, and a second more of load."""
    seen: Counter[tuple[int, int]] = Counter()
    last: dict[int, int] = {}
    consumer = Consumer(group_id=topic, bootstrap_servers=address, auto_offset_reset="error")

    @consumer.handler(topic)
    async def handle(record: Record) -> None:
        seen[record.partition, record.offset] += 1
        last[record.partition] = max(record.offset, last.get(record.partition, -1))

    async with asyncio.timeout(_DEADLINE), consumer:
        while not last:  # noqa: ASYNC110 - also waits for another thread's counts
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        await asyncio.to_thread(load.end)
        while any(last.get(number, -1) < count - 1 for number, count in load.written.items()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return seen


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("nothing has moved")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
