"""A partition with one slow key is revoked, on a real Apache Kafka."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from asyncrevoke import Consumer, Record, TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

DEADLINE = 60.0
PARTITIONS = 2
COUNT = 300  # of each partition, of which every tenth is of the slow key
SLOW = [offset for offset in range(COUNT) if offset % 10 == 0]


async def produce(servers: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for partition in range(PARTITIONS):
            for offset in range(COUNT):
                key = b"slow" if offset in SLOW else b"%d" % offset
                await producer.send(topic, b"", key=key, partition=partition)
        await producer.flush()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(0.02)


class Member:
    """A consumer whose handlers of the slow key wait: for ``first``, then for ``later``."""

    def __init__(self, servers: str, topic: str, assignor: str) -> None:
        self.handled: list[tuple[int, int]] = []
        self.first, self.later = asyncio.Event(), asyncio.Event()
        self.consumer = Consumer(
            bootstrap_servers=servers,
            group_id=topic,
            assignors=(assignor,),
            heartbeat_interval=0.3,
        )

        @self.consumer.handler(topic)
        async def handle(record: Record) -> None:
            if record.key == b"slow":
                await (self.later if record.offset else self.first).wait()
            self.handled.append((record.partition, record.offset))

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self.consumer.assignment())

    @property
    def revoking(self) -> int:
        return self.consumer.health().revoking

    def handled_of(self, partition: int) -> list[int]:
        return [offset for of, offset in self.handled if of == partition]

    def let_all_go(self) -> None:
        self.first.set()
        self.later.set()


@asynccontextmanager
async def running(member: Member) -> AsyncGenerator[None]:
    async with member.consumer:
        try:
            yield
        finally:
            member.let_all_go()


def check_that_keys_are_in_order(*members: Member) -> None:
    """Per partition: the slow key is handled by one member after another."""
    for partition in range(PARTITIONS):
        slow = [
            offset
            for member in members
            for offset in member.handled_of(partition)
            if offset in SLOW
        ]
        assert slow == sorted(slow)


@pytest.mark.kafka_topic(partitions=PARTITIONS)
@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
async def test_the_new_owner_waits_for_running_handlers_only_and_no_record_repeats(
    kafka_broker: RunningBroker, kafka_topic: str, assignor: str
) -> None:
    """The other records of the slow key end only when the new owner has begun."""
    servers = kafka_broker.bootstrap_servers
    await produce(servers, kafka_topic)
    old, new = (Member(servers, kafka_topic, assignor) for _ in range(2))
    new.let_all_go()
    async with running(old):
        quick = PARTITIONS * (COUNT - len(SLOW))
        await until(lambda: len(old.handled) == quick)
        async with running(new):
            await until(lambda: old.revoking > 0)
            assert new.handled == []
            old.first.set()
            await until(lambda: len(new.handled) > 0)
            (moved,) = {partition for partition, _ in new.handled}
            assert old.handled_of(moved).count(0) == 1
            old.later.set()
            total = PARTITIONS * COUNT
            await until(lambda: len(old.handled) + len(new.handled) >= total)
            assert new.handled_of(moved) == SLOW[1:], "the gap, and nothing else"
    times = Counter([*old.handled, *new.handled])
    assert len(times) == total
    assert set(times.values()) == {1}
    check_that_keys_are_in_order(old, new)


@pytest.mark.kafka_topic(partitions=PARTITIONS)
async def test_unstarted_records_are_processed_before_aiokafka_takes_over_and_none_repeats(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    """It shares the group, and reads nothing: what ours leaves undone stays so."""
    servers = kafka_broker.bootstrap_servers
    await produce(servers, kafka_topic)
    foreign = AIOKafkaConsumer(
        kafka_topic,
        bootstrap_servers=servers,
        group_id=kafka_topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    ours, third = (Member(servers, kafka_topic, "range") for _ in range(2))
    third.let_all_go()
    async with foreign:
        await until(lambda: len(foreign.assignment()) == PARTITIONS)
        async with running(ours):
            await until(lambda: len(ours.owned) == 1)
            (partition,) = ours.owned
            await until(lambda: len(ours.handled) == COUNT - len(SLOW))
            async with running(third):
                await until(lambda: ours.revoking > 0)
                ours.first.set()
                await until(lambda: (partition.partition, 0) in ours.handled)
                assert ours.owned == {partition}, "the rest of the slow key is processed first"
                ours.later.set()
                await until(lambda: len(third.owned) + len(ours.owned) > 0 and not ours.revoking)
                assert sorted(ours.handled_of(partition.partition)) == list(range(COUNT))
                found = (await third.consumer.committed(partition))[partition]
                assert found is not None
                assert (found.offset, found.metadata) == (COUNT, "")
    assert not third.handled_of(partition.partition)
    check_that_keys_are_in_order(ours)
