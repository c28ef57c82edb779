"""Records to read: a steady stream in a process of its own, or a topic filled beforehand."""

from __future__ import annotations

import asyncio
import time
import zlib
from typing import TYPE_CHECKING, cast

from aiokafka import AIOKafkaProducer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence
    from multiprocessing.synchronize import Event

    from benchmarks.clients.aiokafka_types import Sender


# Records that are waited for together.
_AT_ONCE = 50_000


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
        for start in range(0, count, _AT_ONCE):
            sent = [
                await producer.send(topic, value, partition=number % partitions)
                for number in range(start, min(start + _AT_ONCE, count))
            ]
            await asyncio.gather(*sent)


async def fill_values(bootstrap: str, topic: str, partitions: int, values: Iterable[bytes]) -> None:
    """Write a record of each of these values, spread evenly over the partitions."""
    client = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, max_batch_size=128 * 1024)
    async with cast("Sender", client) as producer:
        sent: list[Awaitable[object]] = []
        for number, value in enumerate(values):
            sent.append(await producer.send(topic, value, partition=number % partitions))
            if len(sent) == _AT_ONCE:
                await asyncio.gather(*sent)
                sent = []
        await asyncio.gather(*sent)


async def fill_batches(
    bootstrap: str, topic: str, partitions: int, count: int, size: int, batch: int
) -> None:
    """Write ``count`` records of ``size`` bytes in record batches of ``batch`` records, by turns to
    each partition."""
    value = b"x" * size
    client = AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=batch * (size + 100))
    async with cast("Sender", client) as producer:
        for number, start in enumerate(range(0, count, batch)):
            builder = producer.create_batch()
            for _ in range(min(batch, count - start)):
                builder.append(timestamp=None, key=None, value=value)
            builder.close()
            sent = await producer.send_batch(builder, topic, partition=number % partitions)
            await sent


async def fill_keyed(
    bootstrap: str,
    topic: str,
    partitions: int,
    keys: Sequence[bytes],
    size: int,
    headers: Sequence[tuple[str, bytes]] = (),
) -> None:
    """Write a record of ``size`` bytes for each of ``keys``; a key's records share a partition."""
    value = b"x" * size
    client = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, max_batch_size=128 * 1024)
    async with cast("Sender", client) as producer:
        for start in range(0, len(keys), _AT_ONCE):
            sent = [
                await producer.send(
                    topic,
                    value,
                    key=key,
                    partition=zlib.crc32(key) % partitions,
                    headers=list(headers),
                )
                for key in keys[start : start + _AT_ONCE]
            ]
            await asyncio.gather(*sent)


def stream_stamped(
    bootstrap: str, topic: str, partitions: int, rate: float, size: int, end: Event
) -> None:
    """Send ``rate`` records a second in all, each with a key that no other has, until ``end``.

    A value begins with the monotonic clock when it was sent, in ns, as 8 bytes. Blocks.
    """
    asyncio.run(_stream_stamped(bootstrap, topic, partitions, rate, b"x" * (size - 8), end))


async def _stream_stamped(
    bootstrap: str, topic: str, partitions: int, rate: float, padding: bytes, end: Event
) -> None:
    client = AIOKafkaProducer(bootstrap_servers=bootstrap, acks=1, linger_ms=0)
    number = 0
    async with cast("Sender", client) as producer:
        start = time.monotonic()
        while not end.is_set():
            # A late tick is not made up for: no burst.
            due = min((time.monotonic() - start) * rate, number + max(1.0, rate / 200))
            while number < due:
                stamp = time.monotonic_ns().to_bytes(8, "big")
                key = b"%d" % number
                _ = await producer.send(
                    topic, stamp + padding, key=key, partition=number % partitions
                )
                number += 1
            start = max(start, time.monotonic() - number / rate - 0.005)
            await asyncio.sleep(0.001)
