"""Records to read: a steady stream in a process of its own, or a topic filled beforehand."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast

from aiokafka import AIOKafkaProducer

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

    from benchmarks.aiokafka_types import Sender


def stream(bootstrap: str, topic: str, partitions: int, rate: float, end: Event) -> None:
    """Send ``rate`` records a second to each partition until ``end`` is set; blocks."""
    asyncio.run(_stream(bootstrap, topic, partitions, 1 / rate, end))


async def _stream(bootstrap: str, topic: str, partitions: int, interval: float, end: Event) -> None:
    client = AIOKafkaProducer(bootstrap_servers=bootstrap, acks=1, linger_ms=0)
    async with cast("Sender", client) as producer:
        due = time.monotonic()
        while not end.is_set():
            for partition in range(partitions):
                _ = await producer.send(topic, b"x" * 100, partition=partition)
            # A late tick is not made up for: a burst would hide a gap of the reader.
            due = max(due + interval, time.monotonic())
            await asyncio.sleep(due - time.monotonic())


async def fill(bootstrap: str, topic: str, partitions: int, count: int, size: int) -> None:
    """Write ``count`` records of ``size`` bytes, spread evenly over the partitions."""
    value = b"x" * size
    client = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, max_batch_size=128 * 1024)
    async with cast("Sender", client) as producer:
        sent = [
            await producer.send(topic, value, partition=number % partitions)
            for number in range(count)
        ]
        await asyncio.gather(*sent)
