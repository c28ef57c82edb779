"""Orders billed into SQLite, each once, however often its record is delivered.

Kafka delivers at least once: what a killed process had not committed comes again. So each bill is
stored with where its record was, (topic, partition, offset), under a unique constraint, and in the
same transaction as the balance that it changes. A record that comes again changes nothing.

    python examples/billing.py --bootstrap localhost:9092 --topic orders --database billing.sqlite

A record's value is JSON: {"customer": "c1", "cents": 250}.
"""

import argparse
import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from asyncrevoke import Consumer, HandlerContext, Retry

SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS bills (
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,
    customer TEXT NOT NULL,
    cents INTEGER NOT NULL,
    PRIMARY KEY (topic, partition, "offset")
);
CREATE TABLE IF NOT EXISTS balances (
    customer TEXT PRIMARY KEY,
    cents INTEGER NOT NULL CHECK (cents >= 0)
);
"""


@dataclass
class Order:
    """The value of a record."""

    customer: str
    cents: int


class Accounts:
    """Bills and balances in one database."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._one_writer = anyio.CapacityLimiter(1)  # as SQLite has it

    async def bill(self, order: Order, key: tuple[str, int, int]) -> bool:
        """False if this record was billed before."""
        # In a thread, since SQLite waits for the disk. A cancelled handler (its partition was
        # lost) still waits for it: a transaction is never left half way.
        return await anyio.to_thread.run_sync(self._bill, order, key, limiter=self._one_writer)

    def _bill(self, order: Order, key: tuple[str, int, int]) -> bool:
        with self._database:  # one transaction: both tables change, or none
            added = self._database.execute(
                "INSERT INTO bills VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*key, order.customer, order.cents),
            )
            if not added.rowcount:
                return False
            self._database.execute(
                "INSERT INTO balances VALUES (:customer, :cents)"
                " ON CONFLICT (customer) DO UPDATE SET cents = cents + :cents",
                {"customer": order.customer, "cents": order.cents},
            )
        return True


@asynccontextmanager
async def accounts(path: Path) -> AsyncGenerator[Accounts]:
    with closing(sqlite3.connect(path, check_same_thread=False)) as database:
        database.executescript(SCHEMA)
        yield Accounts(database)


def make_consumer(
    bootstrap: str,
    topic: str,
    group: str,
    instance: str | None,
    path: Path,
    max_records: int | None,
) -> Consumer:
    """A consumer that bills each order of the topic once."""
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance,
        resources=accounts(path),
    )
    handled = 0

    # A database that is locked by somebody else for a while is worth another attempt.
    @consumer.handler(topic, retry=Retry(attempts=5, retry_on=sqlite3.OperationalError))
    async def bill(order: Order, context: HandlerContext[Accounts]) -> None:
        nonlocal handled
        new = await context.state.bill(order, context.idempotency_key)
        print("billed" if new else "billed before", *context.idempotency_key, flush=True)
        handled += 1
        if handled == max_records:
            consumer.stop()

    return consumer


def main() -> None:
    parser = argparse.ArgumentParser(description="Orders billed into SQLite, each once.")
    parser.add_argument("--bootstrap", default="localhost:9092", help="the broker's host:port")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="billing")
    parser.add_argument(
        "--instance", help="a name that a restarted process keeps: it has its partitions at once"
    )
    parser.add_argument("--database", type=Path, default=Path("billing.sqlite"))
    parser.add_argument("--max-records", type=int, help="end after so many (default: never)")
    args = parser.parse_args()

    consumer = make_consumer(
        args.bootstrap, args.topic, args.group, args.instance, args.database, args.max_records
    )
    asyncio.run(consumer.run())


if __name__ == "__main__":
    main()
