"""Invoices for orders: readers with read_committed see one for each order, also after a crash.

A result and the offset of its order are committed in one transaction. If the process is killed, the
next one handles the orders again whose transaction was not committed, and their first results are
never visible. So an order may be billed twice, and has one invoice. A static member (--instance)
that restarts gets its partitions back without waiting for the session timeout.

    python examples/groups/exactly_once.py --group billing --instance billing-1

The topics --topic and --invoices must exist. Readers of the invoices need read_committed: Java's
and librdkafka's isolation.level, isolation_level here.
"""

import argparse
import asyncio
import random

from asyncrevoke import Consumer


def make_consumer(
    bootstrap: str, topic: str, invoices: str, group: str, instance: str | None
) -> Consumer:
    """A consumer that writes an invoice for each order of the topic."""
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance,
        processing="exactly_once",
    )

    @consumer.handler(topic, publish_to=invoices)
    async def bill(order: bytes) -> bytes:
        await asyncio.sleep(random.uniform(0.0, 0.05))
        print("billed", order.decode(), flush=True)
        return b"invoice for " + order

    return consumer


def main() -> None:
    parser = argparse.ArgumentParser(description="One visible invoice for each order.")
    parser.add_argument("--bootstrap", default="localhost:9092", help="the broker's host:port")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--invoices", default="invoices", help="the topic that is written")
    parser.add_argument("--group", default="billing")
    parser.add_argument("--instance", help="the group_instance_id (default: a dynamic member)")
    args = parser.parse_args()

    consumer = make_consumer(args.bootstrap, args.topic, args.invoices, args.group, args.instance)
    asyncio.run(consumer.run())


if __name__ == "__main__":
    main()
