# pyright: basic
"""A topic to ClickHouse, each record once: rows with the same offset are one row.

    python examples/lake/to_clickhouse.py --bootstrap localhost:9092 --topic orders --lake orders-ch

The table is a ReplacingMergeTree, ordered by topic, partition and offset: rows that are inserted
again replace the first ones when parts are merged, and SELECT ... FINAL sees one of them before
that. A new owner of a partition reads the largest offset, and seeks behind it.

chdb is ClickHouse in this process, and one process at a time may open the folder. The statements
are the same for a server: pass the batch to clickhouse_connect's client.insert_arrow.
"""

import argparse
import asyncio
from collections.abc import AsyncGenerator
from contextlib import closing
from threading import Lock

import pyarrow
from chdb import session

from asyncrevoke import AssignedPartition, Consumer, HandlerContext

SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    topic String, partition Int32, offset Int64, key Nullable(String), value Nullable(String),
    timestamp DateTime64(6, 'UTC')
) ENGINE = ReplacingMergeTree ORDER BY (topic, partition, offset)
"""
NEXT = """
SELECT if(count() = 0, 0, max(offset) + 1) FROM records
WHERE topic = {topic:String} AND partition = {partition:Int32}
"""
INSERT = """
INSERT INTO records SELECT topic, partition, offset, key, value, timestamp FROM Python(batch)
"""
# A session runs one query at a time.
ONE_AT_A_TIME = Lock()


class Rows:
    """The rows of one partition."""

    def __init__(self, database: session.Session, topic: str, partition: int) -> None:
        self._database = database
        self._partition = {"topic": topic, "partition": partition}

    def read_next(self) -> int:
        """The offset after the last row."""
        with ONE_AT_A_TIME:
            return int(str(self._database.query(NEXT, "CSV", params=self._partition)))

    def write(self, records: pyarrow.RecordBatch) -> None:
        """Insert a batch. If that is repeated, readers with FINAL see its rows once."""
        with ONE_AT_A_TIME:
            # The statement finds it by its name.
            batch = pyarrow.Table.from_batches([records])
            self._database.query(INSERT)
            del batch


def make_consumer(
    bootstrap: str,
    topic: str,
    group: str,
    database: session.Session,
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
        own = Rows(database, partition.topic, partition.partition)
        partition.seek(await asyncio.to_thread(own.read_next))
        yield own

    @consumer.handler(topic, batch=True, max_records=100_000, max_wait=max_wait)
    async def store(
        records: pyarrow.RecordBatch, context: HandlerContext[None, None, Rows]
    ) -> None:
        await asyncio.to_thread(context.partition_state.write, records)

    return consumer


def main() -> None:
    parser = argparse.ArgumentParser(description="A topic to ClickHouse.")
    parser.add_argument("--bootstrap", default="localhost:9092", help="the broker's host:port")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="lake")
    parser.add_argument("--lake", default="orders-ch", help="the folder of chdb")
    parser.add_argument("--instance", help="the group_instance_id (default: a dynamic member)")
    parser.add_argument("--max-wait", type=float, default=60.0, help="seconds between inserts")
    args = parser.parse_args()
    with closing(session.Session(args.lake)) as database:
        database.query(SCHEMA)
        consumer = make_consumer(
            args.bootstrap, args.topic, args.group, database, args.instance, args.max_wait
        )
        asyncio.run(consumer.run())


if __name__ == "__main__":
    main()
