"""What it costs to make Arrow columns of fetched record batches, whole or by objects for records.

    python -m benchmarks.spark.columns [--records N] [--batch N] [--columns value,offset]

Without a broker or Spark, by CPU time: the least of many times, which moves little on a busy
machine.
"""

from __future__ import annotations

import argparse
import random
from typing import TYPE_CHECKING

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from asyncrevoke.client.columns.batch_columns import BatchColumns
from asyncrevoke.client.columns.record_columns import RecordColumns
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import ErrorCode, FetchedPartition
from asyncrevoke.client.protocol.records import decode_batches
from benchmarks.costs.decode import nanoseconds
from benchmarks.report.surroundings import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type")

LENGTHS: dict[str, Callable[[random.Random], int]] = {
    "100": lambda _: 100,
    "50 to 150": lambda chance: chance.randint(50, 150),
    "0 to 20": lambda chance: chance.randint(0, 20),
    "100 or 101": lambda chance: chance.choice((100, 101)),
    "100, one of 50 has 200": lambda chance: 200 if chance.random() < 0.02 else 100,
    "20 to 2,000": lambda chance: chance.randint(20, 2000),
}


def batches_of(length: Callable[[random.Random], int], records: int, in_batch: int) -> bytes:
    """A fetch of record batches without compression, each record with a key of about five bytes."""
    chance = random.Random(1)
    found: list[bytes] = []
    for first in range(0, records, in_batch):
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**30)
        for number in range(min(in_batch, records - first)):
            key = b"%d" % chance.randrange(100_000)
            builder.append(number, 1_700_000_000_000 + number, key, b"x" * length(chance), [])
        data = bytes(builder.build())
        found.append(first.to_bytes(8, "big") + data[8:])
    return b"".join(found)


def costs(batches: bytes, names: Sequence[str]) -> tuple[float, float]:
    """Nanoseconds by whole batches, and by objects."""
    partition = TopicPartition("topic", 0)
    whole, singly = BatchColumns(partition, names), RecordColumns(names)
    fetched = FetchedPartition(partition=partition, error=ErrorCode.none, records=batches)

    def by_objects() -> None:
        decoded = decode_batches(fetched, read_committed=False)
        records = [each for batch in decoded for each in batch.decode("topic", 0, 1, 0)]
        singly.batch(records)

    def by_batches() -> None:
        decoded = decode_batches(fetched, read_committed=False, whole=True)
        values = [batch.decode("topic", 0, 1, 0)[0].value or b"" for batch in decoded]
        assert list(whole.slices(range(2**62), values))

    return nanoseconds(by_batches), nanoseconds(by_objects)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=150, help="records of a batch")
    parser.add_argument("--columns", default=",".join(NAMES))
    options = parser.parse_args()
    print(f"{options.batch} records a batch, columns {options.columns}")
    rows: list[list[str]] = []
    for name, length in LENGTHS.items():
        found = costs(
            batches_of(length, options.records, options.batch), options.columns.split(",")
        )
        rows.append([name, *(f"{candidate / options.records:.0f}" for candidate in found)])
    print(table(["bytes of a value", "ns a record: whole batches", "objects"], rows))


if __name__ == "__main__":
    main()
