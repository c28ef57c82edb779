"""Handlers in a script: say what to do with a record, and run.

``run()`` lasts until SIGINT or SIGTERM, then drains: handlers that have started end, their
records are committed, and the group is left.

    python examples/handlers.py --bootstrap localhost:9092 --topic orders --group billing
"""

import argparse
import asyncio
import random

from asyncrevoke import Consumer, Record


def make_consumer(bootstrap: str, topic: str, group: str, max_records: int | None) -> Consumer:
    """A consumer that bills each record of the topic."""
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        concurrency=64,  # handlers at the same time
        order_by="key",  # records of one key one after the other
    )
    billed = 0

    @consumer.handler(topic)
    async def bill(record: Record) -> None:
        nonlocal billed
        await asyncio.sleep(random.uniform(0.0, 0.05))
        print(f"{record.topic}-{record.partition} {record.offset}: {record.value!r}")
        billed += 1
        if billed == max_records:
            consumer.stop()

    return consumer


def main() -> None:
    parser = argparse.ArgumentParser(description="Handlers in a script.")
    parser.add_argument("--bootstrap", default="localhost:9092", help="the broker's host:port")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="billing")
    parser.add_argument("--max-records", type=int, help="end after so many (default: never)")
    args = parser.parse_args()

    consumer = make_consumer(args.bootstrap, args.topic, args.group, args.max_records)
    asyncio.run(consumer.run())


if __name__ == "__main__":
    main()
