"""What planning a micro-batch of a stream costs by the number of partitions, without Spark and
brokers: time, memory, the bytes of the offsets in the checkpoint, and those that tasks get.

``python -m benchmarks.spark.planning``
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
import tracemalloc
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from unittest import mock

from pyspark.sql.streaming.datasource import ReadAllAvailable

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.spark.reading.log_bounds import LogBounds
from asyncrevoke.spark.source.options import SourceOptions
from asyncrevoke.spark.source.stream_reader import LogClient, StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable

_OF_A_TOPIC = 100
_ID = "xtzWWN4bTjitpL3kfd9s5g"
_END = 1_000_000_000_000
_ROWS = 10_000


class Planned(NamedTuple):
    """A batch of some partitions."""

    seconds: float
    peak_bytes: int
    checkpoint_bytes: int
    task_bytes: int
    tasks: int


def main() -> None:
    """Run it."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    options.add_argument("--partitions", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    for count in options.parse_args().partitions:
        planned = plan(count)
        print(
            f"{count:8,} partitions: {planned.seconds * 1000:10,.1f} ms, at most "
            f"{planned.peak_bytes / 2**20:7,.1f} MiB, checkpoint {planned.checkpoint_bytes:10,} "
            f"bytes, {planned.tasks:7,} tasks of {planned.task_bytes:10,} bytes together"
        )


def plan(count: int) -> Planned:
    """Plan a batch of all partitions, each with enough records for a task."""
    first, second = bounds(count, _END), bounds(count, _END + _ROWS)
    reader = StreamReader(SourceOptions.of({"subscribe_pattern": "orders-.*"}), ["value"])
    with mock.patch.object(LogClient, "bounds", side_effect=[first, second, second]):
        start = reader.latestOffset({}, ReadAllAvailable())
        seconds, (end, tasks) = timed(lambda: plan_from(reader, start))
        tracemalloc.start()
        plan_from(reader, start)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    pickled = sum(len(pickle.dumps(task)) for task in tasks)
    return Planned(seconds, peak, len(json.dumps(end)), pickled, len(tasks))


def bounds(count: int, end: int) -> LogBounds:
    """The offsets of so many partitions, in topics of a hundred."""
    partitions = [
        TopicPartition(f"orders-{number // _OF_A_TOPIC}", number % _OF_A_TOPIC)
        for number in range(count)
    ]
    ids = dict.fromkeys((tp.topic for tp in partitions), _ID)
    return LogBounds(ids, dict.fromkeys(partitions, 0), dict.fromkeys(partitions, end))


def plan_from(reader: StreamReader, start: dict[str, object]) -> tuple[dict[str, object], Any]:
    """What Spark asks of the source for a batch."""
    end = reader.latestOffset(start, ReadAllAvailable())
    return end, cast("Any", reader.partitions(start, end))


def timed(run: Callable[[], tuple[dict[str, object], Any]]) -> tuple[float, tuple[Any, Any]]:
    """Processor seconds, and the result."""
    began = time.process_time()
    found = run()
    return time.process_time() - began, found


if __name__ == "__main__":
    main()
