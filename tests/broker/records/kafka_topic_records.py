"""A topic with numbered records, and consumers of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaProducer

from asyncrevoke import (
    Consumer,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions


DEADLINE = 60.0


class TopicRecords:
    """The broker of the session, one topic, and a group of its own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = f"group-of-{topic}"
        self.sent = 0

    def consumer(self, *topics: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        options.setdefault("group_id", self.group)
        options.setdefault("bootstrap_servers", self.bootstrap)
        return Consumer(*(topics or (self.topic,)), **options)

    @asynccontextmanager
    async def producing(self) -> AsyncGenerator[Callable[[int], Awaitable[None]]]:
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap) as producer:

            async def produce(count: int) -> None:
                for number in range(self.sent, self.sent + count):
                    key = b"key-%d" % (number % 17)
                    await producer.send(self.topic, b"%d" % number, key=key)
                self.sent += count
                await producer.flush()

            yield produce

    async def produce(self, count: int) -> None:
        async with self.producing() as produce:
            await produce(count)

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic, number)

    async def committed(self) -> int:
        """Records that the group has committed, over all partitions."""
        async with self.consumer(group_id=None) as reader:
            partitions = await reader.partitions_for_topic(self.topic)
        looker = Consumer(bootstrap_servers=self.bootstrap, group_id=self.group)
        async with looker:
            found = await looker.committed(*(self.partition(number) for number in partitions))
        return sum(offset.offset for offset in found.values() if offset is not None)


async def read(consumer: Consumer, count: int) -> list[bytes]:
    """The values of the next ``count`` records; the last batch does not count yet."""
    values: list[bytes] = []
    async with asyncio.timeout(DEADLINE):
        while len(values) < count:
            values.extend(record.value or b"" for record in (await anext(consumer)).records)
    return values


async def rest(consumer: Consumer) -> list[bytes]:
    """All further records of the partitions that are not paused."""
    values: list[bytes] = []
    async with asyncio.timeout(DEADLINE):
        while not consumer.assignment() or not await _is_at_end(consumer):
            values.extend(record.value or b"" for record in (await consumer.poll(0.2)).records)
        while batch := (await consumer.poll(1)).records:
            values.extend(record.value or b"" for record in batch)
    return values


async def _is_at_end(consumer: Consumer) -> bool:
    ends = await consumer.end_offsets(*consumer.assignment() - consumer.paused())
    return all(consumer.position(tp) == end for tp, end in ends.items())


def numbers(count: int, start: int = 0) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(start, start + count))
