"""A tracked task group: your loop, many tasks, and the library keeps count.

Records of one key are worked on one after the other, different keys at the same time. Offsets are
committed as tasks end, without gaps. A partition that the group wants back stays until its tasks
have ended, while the others keep flowing.

    python examples/task_group.py --bootstrap localhost:9092 --topic orders --group billing
"""

import argparse
import asyncio
import random

from asyncrevoke import Consumer, Record


async def bill(record: Record) -> None:
    """Your work: anything that awaits."""
    await asyncio.sleep(random.uniform(0.0, 0.05))
    print(f"{record.topic}-{record.partition} {record.offset}: {record.value!r}")


async def consume(consumer: Consumer, max_records: int | None) -> int:
    """Bill records as they come, and return how many were billed."""
    submitted = 0
    async with consumer, consumer.task_group(concurrency=64, order_by="key") as tasks:
        async for batch in consumer:
            for record in batch.records:
                # Waits for room. False: the partition was lost, its next owner bills this one.
                submitted += await tasks.submit(bill, record)
            if max_records is not None and submitted >= max_records:
                consumer.stop()
    return submitted  # leaving the task group has waited for all of them


def main() -> None:
    parser = argparse.ArgumentParser(description="A tracked task group.")
    parser.add_argument("--bootstrap", default="localhost:9092", help="the broker's host:port")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="billing")
    parser.add_argument("--max-records", type=int, help="end after so many (default: never)")
    args = parser.parse_args()

    consumer = Consumer(args.topic, bootstrap_servers=args.bootstrap, group_id=args.group)
    print(f"billed {asyncio.run(consume(consumer, args.max_records))} orders")


if __name__ == "__main__":
    main()
