"""The loop of KIP-983: partitions are released in two steps, and the others keep flowing.

A task of your own works on each record and acknowledges it. When the group wants a partition back,
the loop learns of the revocation first, and delays it for as long as tasks of that partition run.

    python examples/kip983_loop.py --bootstrap localhost:9092 --topic orders --group billing
"""

import argparse
import asyncio
import random
from collections import defaultdict

from asyncrevoke import Consumer, Record, TopicPartition


async def bill(record: Record) -> None:
    """Your work: anything that awaits."""
    await asyncio.sleep(random.uniform(0.0, 0.05))
    print(f"{record.topic}-{record.partition} {record.offset}: {record.value!r}")


async def consume(consumer: Consumer, max_records: int | None) -> int:
    """Bill records as they come, and return how many were billed."""
    running: defaultdict[TopicPartition, set[asyncio.Task[None]]] = defaultdict(set)
    billed = 0

    async def work(record: Record) -> None:
        nonlocal billed
        await bill(record)
        consumer.ack(record)  # committed for you, as far as everything before it is done too
        billed += 1
        if billed == max_records:
            consumer.stop()

    # The task group stands inside, so that all tasks have ended when the consumer leaves the group.
    async with consumer, asyncio.TaskGroup() as tasks:
        async for records, to_be_revoked, lost in consumer:
            for record in records:
                task = tasks.create_task(work(record))
                of_partition = running[record.topic_partition]
                of_partition.add(task)
                task.add_done_callback(of_partition.discard)

            if busy := {partition for partition in to_be_revoked if running[partition]}:
                consumer.delay_revoke(busy)  # ours for one more step; then we are asked again

            for partition in lost:  # somebody else's by now: what we still do would not count
                for task in running.pop(partition, ()):
                    task.cancel()
    return billed


def main() -> None:
    parser = argparse.ArgumentParser(description="The loop of KIP-983.")
    parser.add_argument("--bootstrap", default="localhost:9092", help="the broker's host:port")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="billing")
    parser.add_argument("--max-records", type=int, help="end after so many (default: never)")
    args = parser.parse_args()

    consumer = Consumer(
        args.topic,
        bootstrap_servers=args.bootstrap,
        group_id=args.group,
        commit_mode="ack",  # a record counts when it is acknowledged, in any order
        auto_delay_revoke=False,  # whether a revoke is delayed is this loop's decision
    )
    print(f"billed {asyncio.run(consume(consumer, args.max_records))} orders")


if __name__ == "__main__":
    main()
