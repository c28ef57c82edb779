# pyright: basic
"""A topic to Parquet files, each record once: a file has an interval of offsets of one partition.

    python examples/lake/to_parquet.py --bootstrap localhost:9092 --topic orders --lake orders

The name of a file has the offset where the files before it end. It is written under another name,
and linked to its own, which fails if that exists. So of two members that both believe to own a
partition, one stores what comes next, and the other one stops. Where a file ends is in its
metadata; a new owner of the partition reads that from the last file, and seeks there.
"""

import argparse
import asyncio
import os
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

import pyarrow
from pyarrow import parquet

from asyncrevoke import AssignedPartition, Consumer, HandlerContext


class Files:
    """The files of one partition. It has stored the offsets before ``next``."""

    def __init__(self, folder: Path, topic: str, partition: int) -> None:
        self._folder = folder
        self._stem = f"{topic}-{partition}"
        self.next = 0

    def read_next(self) -> int:
        """Where the last file ends."""
        self._folder.mkdir(parents=True, exist_ok=True)
        names = sorted(self._folder.glob(f"{self._stem}-{'[0-9]' * 20}.parquet"))
        if names:
            self.next = int(parquet.read_metadata(names[-1]).metadata[b"next"])
        return self.next

    def write(self, records: pyarrow.RecordBatch) -> None:
        """Store a batch as one file. Raises FileExistsError if another member was faster."""
        end = records.column("offset")[-1].as_py() + 1
        # Readers ignore a name that does not end with .parquet.
        unfinished = self._folder / f".{self._stem}-{uuid.uuid4().hex}.tmp"
        try:
            with parquet.ParquetWriter(unfinished, records.schema, compression="zstd") as writer:
                writer.write_batch(records)
                writer.add_key_value_metadata({"first": str(self.next), "next": str(end)})
            os.link(unfinished, self._folder / f"{self._stem}-{self.next:020}.parquet")
        finally:
            unfinished.unlink(missing_ok=True)
        self.next = end


def make_consumer(
    bootstrap: str, topic: str, group: str, lake: Path, instance: str | None, max_wait: float
) -> Consumer:
    """A consumer that writes a file for 100,000 records, or for those of ``max_wait`` seconds."""
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance,  # after a restart it has its partitions again at once
        isolation_level="read_committed",
        order_by="partition",  # one batch of a partition at a time
        max_in_flight=400_000,
    )

    @consumer.partition_lifespan
    async def files(partition: AssignedPartition) -> AsyncGenerator[Files]:
        own = Files(lake, partition.topic, partition.partition)
        partition.seek(await asyncio.to_thread(own.read_next))
        yield own

    @consumer.handler(topic, batch=True, max_records=100_000, max_wait=max_wait)
    async def store(
        records: pyarrow.RecordBatch, context: HandlerContext[None, None, Files]
    ) -> None:
        await asyncio.to_thread(context.partition_state.write, records)

    return consumer


def main() -> None:
    parser = argparse.ArgumentParser(description="A topic to Parquet files.")
    parser.add_argument("--bootstrap", default="localhost:9092", help="the broker's host:port")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="lake")
    parser.add_argument("--lake", default="orders", help="the folder")
    parser.add_argument("--instance", help="the group_instance_id (default: a dynamic member)")
    parser.add_argument("--max-wait", type=float, default=60.0, help="the age of a file in seconds")
    args = parser.parse_args()
    lake = Path(args.lake)
    consumer = make_consumer(
        args.bootstrap, args.topic, args.group, lake, args.instance, args.max_wait
    )
    asyncio.run(consumer.run())


if __name__ == "__main__":
    main()
