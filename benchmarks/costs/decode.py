"""What it costs to make records of fetched bytes, and which part of it costs how much.

    python -m benchmarks.costs.decode [--size BYTES] [--records N]

Without a broker, by CPU time: the least of many times, which moves little on a busy machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c

from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.client.protocol.messages import ErrorCode, FetchedPartition
from asyncrevoke.client.protocol.records import decode_batches
from benchmarks.report.surroundings import table

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES = 100


def nanoseconds(work: Callable[[], object]) -> float:
    """The CPU time of one call."""
    least = sys.maxsize
    for _ in range(TIMES):
        began = time.process_time_ns()
        work()
        least = min(least, time.process_time_ns() - began)
    return least


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What it costs to make records of fetched bytes.")
    parser.add_argument("--size", type=int, default=100, help="bytes of each value")
    parser.add_argument("--records", type=int, default=1000, help="of the batch")
    options = parser.parse_args()
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**30)
    for number in range(options.records):
        builder.append(number, 1_700_000_000_000 + number, None, b"x" * options.size, [])
    data = bytes(builder.build())
    fetched = FetchedPartition(
        partition=TopicPartition("topic", 0), error=ErrorCode.none, records=data
    )
    (batch,) = decode_batches(fetched, read_committed=False)

    def parse() -> list[tuple[object, ...]]:
        parsed = DefaultRecordBatch(data)
        return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in parsed]

    def make() -> list[Record]:
        return [Record("topic", 0, n, n, 0, None, data, (), 1) for n in range(options.records)]

    parts: dict[str, Callable[[], object]] = {
        "all of it": lambda: batch.decode("topic", 0, 1, 0),
        "the fields of each record, as tuples": parse,
        "objects of nine fields": make,
        "checksum": lambda: crc32c(memoryview(data)[21:]),
        "checksum, by the parser": lambda: DefaultRecordBatch(data).validate_crc(),
    }
    rows = [[name, f"{nanoseconds(work) / options.records:.0f}"] for name, work in parts.items()]
    print(table([f"{options.records} records of {options.size} bytes", "ns a record"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
