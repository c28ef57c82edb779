"""What a reader with ``read_committed`` sees of the results: how many, and how late."""

from __future__ import annotations

import statistics
import time
import traceback
from typing import TYPE_CHECKING

from benchmarks.workload.handler_work import CATCHING_UP

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.synchronize import Event

    from confluent_kafka import Consumer

    from benchmarks.workload.stall_member import Pipe

COUNTING = "counting"


def count_visible(bootstrap: str, topic: str, partitions: int) -> int:
    """How many records of a topic ``read_committed`` shows."""
    from confluent_kafka import KafkaError, KafkaException

    reader = _reader(bootstrap, topic, partitions)
    found, at_end = 0, set[int]()
    try:
        while len(at_end) < partitions:
            for message in reader.consume(10_000, 0.1):
                error = message.error()
                if error is None:
                    found += 1
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    at_end.add(message.partition() or 0)
                else:
                    raise KafkaException(error)
    finally:
        reader.close()
    return found


def watch(bootstrap: str, topic: str, partitions: int, count: int, pipe: Pipe) -> None:
    """Take the delays of ``count`` results since their values were stamped; blocks.

    Those of the first seconds do not count. Sends "counting" after these, then the delays in
    seconds, or a traceback.
    """
    try:
        _watch(_reader(bootstrap, topic, partitions), count, pipe)
    except Exception:  # noqa: BLE001 - it is told in the other process
        pipe.send(traceback.format_exc())


def _watch(reader: Consumer, count: int, pipe: Pipe) -> None:
    delays: list[float] = []
    counts_from = 0
    counting = False
    while len(delays) < count:
        message = reader.poll(1.0)
        if message is None or message.error() is not None:
            continue
        now, value = time.monotonic_ns(), message.value() or b""
        if not counts_from:
            counts_from = now + int(CATCHING_UP * 1e9)
        if now >= counts_from:
            if not counting:
                counting = True
                pipe.send(COUNTING)
            delays.append((now - int.from_bytes(value[:8], "big")) / 1e9)
    pipe.send(delays)


def collect(bootstrap: str, topic: str, partitions: int, end: Event, pipe: Pipe) -> None:
    """Note when results become visible, and when they were handled, until ``end`` is set; blocks.

    The value of a result is that of :mod:`benchmarks.exactly_once.stall_members`. Sends the member
    and the partition of the first result of each; then the times of handling, and those of
    becoming visible, in seconds by member and partition; or a traceback.
    """
    try:
        _collect(_reader(bootstrap, topic, partitions), end, pipe)
    except Exception:  # noqa: BLE001 - it is told in the other process
        pipe.send(traceback.format_exc())


def _collect(reader: Consumer, end: Event, pipe: Pipe) -> None:
    handled: dict[tuple[str, int], list[float]] = {}
    visible: dict[tuple[str, int], list[float]] = {}
    while not end.is_set():
        message = reader.poll(0.1)
        if message is None or message.error() is not None:
            continue
        now = time.monotonic()
        member, partition, at = (message.value() or b"").decode().split()
        of_partition = member, int(partition)
        if of_partition not in handled:
            handled[of_partition], visible[of_partition] = [], []
            pipe.send([*of_partition])
        handled[of_partition].append(int(at) / 1e9)
        visible[of_partition].append(now)
    for times in handled.values():
        times.sort()
    pipe.send((handled, visible))


def percentiles(delays: Sequence[float]) -> tuple[float, float, float]:
    """The median, the 99th percentile and the highest."""
    hundredths = statistics.quantiles(delays, n=100)
    return hundredths[49], hundredths[98], max(delays)


def _reader(bootstrap: str, topic: str, partitions: int) -> Consumer:
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    return reader
