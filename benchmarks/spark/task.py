"""What a record costs in a replay's task: processor time of its process, without Spark.

``python -m benchmarks.spark.task``: 512 handlers that wait 5 ms, then handlers that do nothing.
Processor time tells the same on a machine that has other work, where records per second do not.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time

from asyncrevoke.broker import KafkaBroker
from asyncrevoke.client.columns.arrow import pa
from asyncrevoke.replays.opened_handlers import Target
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.replays.range_task import RangeTask
from benchmarks.spark.topic import PARTITIONS, TOPIC, fill, values_of

_WARM_UP = 2000


def main() -> None:
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=200_000, help="in the partition read")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--concurrency", type=int, default=512)
    options.add_argument("--address", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.address:
        _run(arguments.address, arguments.records, arguments.concurrency)
        return
    with KafkaBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        asyncio.run(fill(broker.bootstrap_servers, arguments.records * PARTITIONS, values_of(100)))
        for seconds in ("0.005", "0"):
            for _ in range(arguments.runs):
                words = [sys.executable, "-m", "benchmarks.spark.task"]
                words += ["--address", broker.bootstrap_servers]
                words += ["--records", str(arguments.records)]
                words += ["--concurrency", str(arguments.concurrency)]
                environment = {**os.environ, "BENCHMARK_SECONDS": seconds}
                subprocess.run(words, env=environment, check=True)


def _run(address: str, records: int, concurrency: int) -> None:
    target = Target("benchmarks.spark.handlers:consumer", "record", address, concurrency)
    task = RangeTask(
        target,
        [[OffsetRange(TOPIC, 0, 0, _WARM_UP)], [OffsetRange(TOPIC, 0, _WARM_UP, records)]],
        isolation_level="read_committed",
        no_progress_timeout=60.0,
        max_errors=None,
        report_to=None,
    )
    _rows(task, 0)
    began, used = time.perf_counter(), time.process_time()
    count = _rows(task, 1)
    seconds, used = time.perf_counter() - began, time.process_time() - used
    print(
        f"handlers of {float(os.environ['BENCHMARK_SECONDS']) * 1000:g} ms, {concurrency} at once: "
        f"{used / count * 1e6:.1f} us of processor time a record, {count / seconds:,.0f}/s",
        flush=True,
    )


def _rows(task: RangeTask, number: int) -> int:
    batch = pa.RecordBatch.from_pydict({"id": [number]})
    return sum(rows.num_rows for rows in task([batch]))


if __name__ == "__main__":
    main()
