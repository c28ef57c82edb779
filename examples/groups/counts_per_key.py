"""Counts per key in SQLite, each record counted once: offsets are kept beside the counts.

A batch of records is counted in one transaction, together with the offset after it. When a
partition is assigned, its lifespan reads that offset and seeks to it, whatever the group has
committed. A member that has lost a partition without knowing it yet cannot write: the lifespan of
the new owner has put its own name beside the offset.

    python examples/groups/counts_per_key.py --bootstrap localhost:9092 --database counts.sqlite

SQLite on a local disk responds within milliseconds, so it is called in the event loop here.
"""

import argparse
import asyncio
import sqlite3
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import closing
from typing import Literal

from asyncrevoke import AssignedPartition, Consumer, HandlerContext, Record

SCHEMA = """
CREATE TABLE IF NOT EXISTS counts (key BLOB PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS positions (
    topic TEXT, partition INTEGER, next_offset INTEGER NOT NULL, owner TEXT NOT NULL,
    PRIMARY KEY (topic, partition)
);
"""
TAKE_OVER = """
INSERT INTO positions VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET owner = excluded.owner RETURNING next_offset
"""
ADVANCE = """
UPDATE positions SET next_offset = ? WHERE topic = ? AND partition = ? AND owner = ?
"""
COUNT = "INSERT INTO counts VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1"


class Counts:
    """What one partition adds to the counts, as long as nobody else has taken it over."""

    def __init__(self, database: sqlite3.Connection, topic: str, partition: int) -> None:
        self._database = database
        self._partition = topic, partition
        self._owner = uuid.uuid4().hex

    def take_over(self, first_offset: int) -> int:
        """Keep former owners from writing; return the offset of the first record to count."""
        with self._database as transaction:
            entry = *self._partition, first_offset, self._owner
            ((next_offset,),) = transaction.execute(TAKE_OVER, entry).fetchall()
        return int(next_offset)

    def add(self, records: Sequence[Record]) -> None:
        """Count these records, and advance the offset, in one transaction."""
        with self._database as transaction:
            position = records[-1].offset + 1, *self._partition, self._owner
            if transaction.execute(ADVANCE, position).rowcount != 1:
                raise RuntimeError(f"another member counts {self._partition} by now")
            transaction.executemany(COUNT, [(record.key or b"",) for record in records])


def make_consumer(
    bootstrap: str,
    topic: str,
    group: str,
    path: str,
    *,
    instance: str | None = None,
    protocol: Literal["classic", "consumer"] = "classic",
) -> Consumer:
    """A consumer that counts the records of the topic by key in the database at ``path``."""
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        group_instance_id=instance,  # after a restart it has its partitions again at once
        order_by="partition",  # one batch of a partition at a time
    )

    @consumer.partition_lifespan
    async def counts(partition: AssignedPartition) -> AsyncGenerator[Counts]:
        with closing(sqlite3.connect(path, timeout=10)) as database:
            database.executescript(SCHEMA)
            own = Counts(database, partition.topic, partition.partition)
            partition.seek(own.take_over(partition.position))
            yield own

    @consumer.handler(topic, batch=True, max_records=50, max_wait=0.05, on_error="pause")
    async def count(records: list[Record], context: HandlerContext[object, object, Counts]) -> None:
        context.partition_state.add(records)

    return consumer


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts per key in SQLite.")
    parser.add_argument("--bootstrap", default="localhost:9092", help="the broker's host:port")
    parser.add_argument("--topic", default="clicks")
    parser.add_argument("--group", default="counts")
    parser.add_argument("--database", default="counts.sqlite", help="the file of the counts")
    parser.add_argument("--instance", help="a name that stays the same after a restart")
    parser.add_argument("--protocol", default="classic", choices=["classic", "consumer"])
    args = parser.parse_args()

    consumer = make_consumer(
        args.bootstrap,
        args.topic,
        args.group,
        args.database,
        instance=args.instance,
        protocol=args.protocol,
    )
    asyncio.run(consumer.run())


if __name__ == "__main__":
    main()
