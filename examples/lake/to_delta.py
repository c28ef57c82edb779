# pyright: basic
"""A topic to a Delta table, each record once: a commit says up to which offset it has a partition.

    python examples/lake/to_delta.py --bootstrap localhost:9092 --topic orders --lake orders-delta

A commit has an application transaction: its application is the partition, its version the offset
after the last row. Delta refuses a commit if another one of the same application was made since the
table was read. So of two members that both believe to own a partition, one stores what comes next,
and the other one stops. A new owner reads the version, and seeks there.
"""

import argparse
import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pyarrow
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from asyncrevoke import AssignedPartition, Consumer, HandlerContext

SCHEMA = pyarrow.schema(
    [
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("timestamp", pyarrow.timestamp("us", "UTC")),
    ]
)


ATTEMPTS = 5


class Rows:
    """The rows of one partition in the table at ``path``."""

    def __init__(self, path: Path, topic: str, partition: int) -> None:
        # A table of its own: it is as old as what this owner has read or committed last.
        try:
            self._table = DeltaTable.create(path, SCHEMA, mode="ignore")
        except CommitFailedError:  # another member has created it at the same time
            self._table = DeltaTable(path)
        self._path = path
        self._application = f"{topic}-{partition}"

    def read_next(self) -> int:
        """The offset after the last row."""
        return self._table.transaction_version(self._application) or 0

    def write(self, records: pyarrow.RecordBatch) -> None:
        """Store a batch in one commit. Raises CommitFailedError if another member was faster."""
        end = records.column("offset")[-1].as_py() + 1
        transaction = Transaction(self._application, end)
        stored = self.read_next()
        for attempt in range(ATTEMPTS):
            try:
                write_deltalake(
                    self._table,
                    records.select(SCHEMA.names),
                    mode="append",
                    commit_properties=CommitProperties(app_transactions=[transaction]),
                )
            except CommitFailedError:
                # Members that create the table at the same time may change it: only rows of this
                # partition are another owner's.
                self._table = DeltaTable(self._path)
                if self.read_next() != stored or attempt == ATTEMPTS - 1:
                    raise
            else:
                return


def make_consumer(
    bootstrap: str, topic: str, group: str, lake: Path, instance: str | None, max_wait: float
) -> Consumer:
    """A consumer that commits 100,000 records, or those of ``max_wait`` seconds, at once."""
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance,  # after a restart it has its partitions again at once
        isolation_level="read_committed",
        order_by="partition",  # one batch of a partition at a time
        max_in_flight=400_000,
    )

    @consumer.partition_lifespan
    async def rows(partition: AssignedPartition) -> AsyncGenerator[Rows]:
        own = await asyncio.to_thread(Rows, lake, partition.topic, partition.partition)
        partition.seek(await asyncio.to_thread(own.read_next))
        yield own

    @consumer.handler(topic, batch=True, max_records=100_000, max_wait=max_wait)
    async def store(
        records: pyarrow.RecordBatch, context: HandlerContext[None, None, Rows]
    ) -> None:
        await asyncio.to_thread(context.partition_state.write, records)

    return consumer


def main() -> None:
    parser = argparse.ArgumentParser(description="A topic to a Delta table.")
    parser.add_argument("--bootstrap", default="localhost:9092", help="the broker's host:port")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="lake")
    parser.add_argument("--lake", default="orders-delta", help="the table's folder")
    parser.add_argument("--instance", help="the group_instance_id (default: a dynamic member)")
    parser.add_argument("--max-wait", type=float, default=60.0, help="seconds between commits")
    args = parser.parse_args()
    lake = Path(args.lake)
    consumer = make_consumer(
        args.bootstrap, args.topic, args.group, lake, args.instance, args.max_wait
    )
    asyncio.run(consumer.run())


if __name__ == "__main__":
    main()
