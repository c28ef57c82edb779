"""Groups with processing="exactly_once" that a member of aiokafka or librdkafka joins or leads,
which reads neither completion maps nor stable offsets."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Literal

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from broker.handlers.test_handlers_on_a_real_broker import until
from broker.requests.read_committed import PARTITIONS, read_committed
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer

from asyncrevoke import Consumer, Record, TopicPartition
from asyncrevoke.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

WARNING = "members of other clients are in a group with processing='exactly_once'"

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        yield broker


class Group:
    """Our member, and what it and a member of another client have handled."""

    def __init__(
        self, broker: KafkaBroker, topic: str, protocol: Literal["classic", "consumer"]
    ) -> None:
        self.broker, self.topic = broker, topic
        for name in (topic, f"{topic}-out"):
            broker.create_topic(name, PARTITIONS)
        self.sent = 0
        self.handled: set[int] = set()
        self.handled_elsewhere: set[int] = set()
        self.consumer = Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id=topic,
            group_protocol=protocol,
            processing="exactly_once",
            transaction_interval=0.02,
            heartbeat_interval=0.2,
            assignors=("roundrobin",) if protocol == "classic" else ("cooperative-sticky",),
        )

        @self.consumer.handler(topic, publish_to=f"{topic}-out")
        async def handle(record: Record) -> bytes | None:
            number = int(record.value or b"")
            await asyncio.sleep(0.4 if number % 40 < PARTITIONS else 0.001)
            self.handled.add(number)
            return record.value

    def write(self, count: int) -> None:
        """Numbers; later ones of a partition are handled before a slow one."""
        producer = ConfluentProducer({"bootstrap.servers": self.broker.bootstrap_servers})
        for number in range(self.sent, self.sent + count):
            producer.produce(
                self.topic, b"%d" % number, key=b"%d" % number, partition=number % PARTITIONS
            )
        assert producer.flush(30) == 0
        self.sent += count

    async def committed_maps(self, done: Callable[[], bool]) -> set[str]:
        """The metadata of all commits that are seen until then."""
        partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        found: set[str] = set()
        async with asyncio.timeout(60):
            while not done():
                committed = await self.consumer.committed(*partitions)
                found |= {one.metadata for one in committed.values() if one is not None}
                await asyncio.sleep(0.02)
        return found

    @asynccontextmanager
    async def aiokafka(self) -> AsyncGenerator[AIOKafkaConsumer]:
        """A member of aiokafka."""
        member = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.broker.bootstrap_servers,
            group_id=self.topic,
            client_id="other",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
        )
        async with member:
            reading = asyncio.create_task(self._read(member))
            try:
                yield member
            finally:
                reading.cancel()
                await asyncio.wait((reading,))

    async def _read(self, member: AIOKafkaConsumer) -> None:
        async for record in member:
            self.handled_elsewhere.add(int(record.value))

    @asynccontextmanager
    async def librdkafka(self) -> AsyncGenerator[ConfluentConsumer]:
        """A member of librdkafka with KIP-848."""
        member = ConfluentConsumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": self.topic,
                "group.protocol": "consumer",
                "isolation.level": "read_uncommitted",
                "auto.offset.reset": "earliest",
            }
        )
        member.subscribe([self.topic])
        reading = asyncio.create_task(asyncio.to_thread(self._consume, member))
        try:
            yield member
        finally:
            self._is_over = True
            await reading

    _is_over = False

    def _consume(self, member: ConfluentConsumer) -> None:
        while not self._is_over:
            for message in member.consume(100, 0.1):
                assert message.error() is None, message.error()
                self.handled_elsewhere.add(int(message.value() or b""))
        member.close()

    def has_handled_all(self) -> bool:
        return len(self.handled | self.handled_elsewhere) == self.sent

    def check(self) -> None:
        """Our results are visible once, and nothing is left."""
        results = read_committed(self.broker, f"{self.topic}-out")
        assert set(results.values()) == {1}
        visible = {int(value) for value in results}
        assert visible == self.handled
        assert len(visible | self.handled_elsewhere) == self.sent


async def test_our_leader_names_members_of_other_clients_and_commits_no_maps(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(broker, "led-by-us", "classic")
    caplog.set_level(logging.WARNING, "asyncrevoke")
    group.write(400)
    async with group.consumer:
        maps = await group.committed_maps(group.has_handled_all)
        assert maps > {""}, "alone, it lists records beyond an unfinished one"
        async with group.aiokafka() as other:
            await until(lambda: bool(other.assignment()))
            assert any(WARNING in line and "other-" in line for line in caplog.messages)
            group.write(400)
            maps = await group.committed_maps(group.has_handled_all)
            assert maps == {""}
    group.check()


async def test_a_member_that_another_client_leads_commits_no_maps(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(broker, "led-by-aiokafka", "classic")
    caplog.set_level(logging.WARNING, "asyncrevoke")
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(group.aiokafka())
        await until(lambda: bool(other.assignment()))
        await stack.enter_async_context(group.consumer)
        await until(lambda: bool(group.consumer.assignment()))
        assert any(WARNING in line and "other-" in line for line in caplog.messages)
        group.write(400)
        assert await group.committed_maps(group.has_handled_all) == {""}
        assert group.handled
    group.check()


async def test_a_kip_848_member_commits_no_maps_as_it_does_not_know_the_others(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(broker, "kip-848", "consumer")
    caplog.set_level(logging.WARNING, "asyncrevoke")
    group.write(200)
    async with group.consumer:
        assert await group.committed_maps(group.has_handled_all) <= {""}
        async with group.librdkafka() as other:
            await until(lambda: bool(other.assignment()))
            group.write(400)
            assert await group.committed_maps(group.has_handled_all) == {""}
            assert group.handled_elsewhere
    assert not any(WARNING in line for line in caplog.messages)
    group.check()
