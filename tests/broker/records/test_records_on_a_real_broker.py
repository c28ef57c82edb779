"""Single records, batches and seeks on a real Apache Kafka, while the group rebalances."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer

from asyncrevoke import Consumer, ConsumerClosedError, IllegalStateError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke import Record
    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.config import GroupProtocol

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

DEADLINE = 45.0


@dataclass
class Reader:
    """One member that changes between records and batches, and what it was given."""

    consumer: Consumer
    seen: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def take(self, record: Record) -> None:
        self.seen.append((record.partition, record.offset))

    async def by_record(self, count: int) -> None:
        records = self.consumer.records()
        for _ in range(count):
            self.take(await anext(records))

    async def by_batch(self) -> None:
        for record in (await self.consumer.poll(0.1, max_records=5)).records:
            self.take(record)

    async def until_stopped(self) -> None:
        try:
            while True:
                await self.by_record(7)
                await self.by_batch()
        except (StopAsyncIteration, ConsumerClosedError):
            return

    async def seek_back(self, topic: str) -> tuple[TopicPartition, int, int]:
        """Read the last three records of a partition again; that, and its positions."""
        while True:
            await self.by_record(1)
            partition = TopicPartition(topic, self.seen[-1][0])
            position = self.seen[-1][1] + 1
            sought = max(0, position - 3)
            try:
                assert self.consumer.position(partition) == position
                self.consumer.seek(partition, sought)
            except IllegalStateError:
                continue  # the group is about to take it, or has
            return partition, sought, position


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - the test's deadline bounds it
        await asyncio.sleep(0.05)


class Trickle:
    """Produces a few records at a time until it is ended."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent = 0
        self.ending = False
        self._bootstrap = bootstrap
        self._topic = topic

    async def run(self) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap) as producer:
            while not self.ending:
                for _ in range(10):
                    await producer.send(self._topic, b"x", key=b"key-%d" % (self.sent % 40))
                    self.sent += 1
                await producer.flush()
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_records_are_read_once_across_a_rebalance_a_seek_and_changes_of_iteration_style(
    kafka_broker: RunningBroker, kafka_topic: str, protocol: GroupProtocol
) -> None:
    bootstrap = kafka_broker.bootstrap_servers
    trickle = Trickle(bootstrap, kafka_topic)
    producing = asyncio.create_task(trickle.run())

    def member() -> Consumer:
        return Consumer(
            kafka_topic,
            bootstrap_servers=bootstrap,
            group_id=f"group-of-{kafka_topic}",
            group_protocol=protocol,
            commit_interval=0.1,
        )

    first, second = Reader(member()), Reader(member())
    async with asyncio.timeout(DEADLINE), first.consumer, AsyncExitStack() as later:
        await first.by_record(30)
        # Not before: a member that joins first and does not poll would keep all partitions.
        await later.enter_async_context(second.consumer)
        # The first one goes on while the group gives partitions of its own to the second one.
        reading = asyncio.create_task(second.until_stopped())
        while not second.seen:
            await first.by_record(1)
            await first.by_batch()
        partition, sought, position = await first.seek_back(kafka_topic)
        before = len(first.seen)
        going_on = asyncio.create_task(first.until_stopped())
        await until(lambda: (partition.partition, sought) in first.seen[before:])
        trickle.ending = True
        await producing
        await until(lambda: len(set(first.seen + second.seen)) == trickle.sent)
        first.consumer.stop()
        second.consumer.stop()
        await asyncio.gather(reading, going_on)

    # What followed the seek begins with the record that was sought, and nothing else came twice.
    after = [offset for number, offset in first.seen[before:] if number == partition.partition]
    assert after[: position - sought] == list(range(sought, position))
    twice = Counter({(partition.partition, offset): 1 for offset in range(sought, position)})
    assert Counter(first.seen + second.seen) - Counter(set(first.seen + second.seen)) == twice
    async with Consumer(bootstrap_servers=bootstrap, group_id=f"group-of-{kafka_topic}") as looker:
        partitions = await looker.partitions_for_topic(kafka_topic)
        found = await looker.committed(*(TopicPartition(kafka_topic, n) for n in partitions))
    assert sum(at.offset for at in found.values() if at is not None) == trickle.sent
