# pyright: basic
"""A topic to DuckDB, each record once: the next offset of a partition is stored with its rows.

    python examples/lake/to_duckdb.py --bootstrap localhost:9092 --topic orders --lake orders.duckdb

Rows and offset are written in one transaction, which changes the offset only if it is still where
the rows begin. A new owner of the partition reads it, and seeks there. DuckDB permits one
process at a time to write a database, so the group has one member.
"""

import argparse
import asyncio
from collections.abc import AsyncGenerator
from contextlib import closing

import duckdb
import pyarrow

from asyncrevoke import AssignedPartition, Consumer, HandlerContext

SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    key BLOB, value BLOB, partition INTEGER, "offset" BIGINT, timestamp TIMESTAMPTZ
);
CREATE TABLE IF NOT EXISTS positions (
    topic TEXT, partition INTEGER, next BIGINT NOT NULL, PRIMARY KEY (topic, partition)
);
"""
BEGIN = "INSERT INTO positions VALUES (?, ?, 0) ON CONFLICT DO NOTHING"
NEXT = "SELECT next FROM positions WHERE topic = ? AND partition = ?"
ADVANCE = """
UPDATE positions SET next = ? WHERE topic = ? AND partition = ? AND next = ? RETURNING next
"""
INSERT = 'INSERT INTO records SELECT key, value, partition, "offset", timestamp FROM batch'


class Rows:
    """The rows of one partition. It has stored the offsets before ``next``."""

    def __init__(self, database: duckdb.DuckDBPyConnection, topic: str, partition: int) -> None:
        self._database = database
        self._partition = topic, partition
        self.next = 0

    def read_next(self) -> int:
        """The offset after the last row."""
        self._database.execute(BEGIN, self._partition)
        ((self.next,),) = self._database.execute(NEXT, self._partition).fetchall()
        return self.next

    def write(self, records: pyarrow.RecordBatch) -> None:
        """Store a batch and the offset after it in one transaction."""
        end = records.column("offset")[-1].as_py() + 1
        database = self._database
        database.begin()
        try:
            advance = (end, *self._partition, self.next)
            if not database.execute(ADVANCE, advance).fetchall():
                raise RuntimeError(f"{self._partition} is stored beyond {self.next}")
            database.register("batch", pyarrow.Table.from_batches([records]))
            database.execute(INSERT)
            database.commit()
        except BaseException:
            database.rollback()
            raise
        self.next = end


def make_consumer(
    bootstrap: str,
    topic: str,
    group: str,
    database: duckdb.DuckDBPyConnection,
    instance: str | None,
    max_wait: float,
) -> Consumer:
    """A consumer that inserts 100,000 records, or those of ``max_wait`` seconds, at once."""
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
        with closing(database.cursor()) as connection:
            own = Rows(connection, partition.topic, partition.partition)
            partition.seek(await asyncio.to_thread(own.read_next))
            yield own

    @consumer.handler(topic, batch=True, max_records=100_000, max_wait=max_wait)
    async def store(
        records: pyarrow.RecordBatch, context: HandlerContext[None, None, Rows]
    ) -> None:
        await asyncio.to_thread(context.partition_state.write, records)

    return consumer


def main() -> None:
    parser = argparse.ArgumentParser(description="A topic to DuckDB.")
    parser.add_argument("--bootstrap", default="localhost:9092", help="the broker's host:port")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="lake")
    parser.add_argument("--lake", default="orders.duckdb", help="the file of the database")
    parser.add_argument("--instance", help="the group_instance_id (default: a dynamic member)")
    parser.add_argument("--max-wait", type=float, default=60.0, help="seconds between inserts")
    args = parser.parse_args()
    with closing(duckdb.connect(args.lake)) as database:
        database.execute(SCHEMA)
        consumer = make_consumer(
            args.bootstrap, args.topic, args.group, database, args.instance, args.max_wait
        )
        asyncio.run(consumer.run())


if __name__ == "__main__":
    main()
