"""Groups with processing="exactly_once" that have members of other clients: classic groups that a
member of aiokafka joins or leads, which reads neither completion maps nor stable offsets, and
groups of KIP-848 with one of librdkafka, which reads stable offsets."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

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
    from collections.abc import AsyncGenerator, Iterator

    from asyncrevoke.client.config import GroupProtocol

WARNING = "members of other clients are in a group with processing='exactly_once'"

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        yield broker


class Group:
    """Our member, and what it and a member of another client have handled."""

    def __init__(
        self, broker: KafkaBroker, topic: str, protocol: GroupProtocol = "classic"
    ) -> None:
        self.broker, self.topic = broker, topic
        for name in (topic, f"{topic}-out"):
            broker.create_topic(name, PARTITIONS)
        self.sent = 0
        # Slow records wait for it.
        self.go_on = asyncio.Event()
        self.handled: set[int] = set()
        self.handled_elsewhere: set[int] = set()
        options: dict[str, Any] = {"assignors": ("roundrobin",)} if protocol == "classic" else {}
        self.consumer = Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id=topic,
            group_protocol=protocol,
            processing="exactly_once",
            transaction_interval=0.02,
            heartbeat_interval=0.2,
            **options,
        )

        @self.consumer.handler(topic, publish_to=f"{topic}-out")
        async def handle(record: Record) -> bytes | None:
            number = int(record.value or b"")
            if number % 40 < PARTITIONS:
                await self.go_on.wait()
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

    async def committed_maps(self) -> set[str]:
        """The metadata of the present commits, without empty ones."""
        partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        committed = await self.consumer.committed(*partitions)
        return {one.metadata for one in committed.values() if one is not None} - {""}

    async def fast_ones_are_handled(self) -> None:
        """Until all records but slow ones are handled."""
        fast = {number for number in range(self.sent) if number % 40 >= PARTITIONS}
        await until(lambda: fast <= self.handled | self.handled_elsewhere)

    async def slow_ones_are_handled(self) -> None:
        """Let them go on."""
        self.go_on.set()
        await until(lambda: len(self.handled | self.handled_elsewhere) == self.sent)
        self.go_on.clear()

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
        while True:
            value = cast("bytes", (await anext(member)).value)
            self.handled_elsewhere.add(int(value))

    @asynccontextmanager
    async def librdkafka(self) -> AsyncGenerator[ConfluentConsumer]:
        """A member of librdkafka, under KIP-848."""
        member = ConfluentConsumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": self.topic,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
            }
        )
        member.subscribe([self.topic])
        leaving = asyncio.Event()

        async def read() -> None:
            while not leaving.is_set():
                message = await asyncio.to_thread(member.poll, 0.1)
                if message is not None:
                    assert message.error() is None
                    self.handled_elsewhere.add(int(message.value() or b""))

        reading = asyncio.create_task(read())
        try:
            yield member
        finally:
            leaving.set()
            await asyncio.wait((reading,))
            await asyncio.to_thread(member.close)
        reading.result()

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
    group = Group(broker, "led-by-us")
    caplog.set_level(logging.WARNING, "asyncrevoke")
    group.write(400)
    async with group.consumer:
        await group.fast_ones_are_handled()
        # Alone, it lists records beyond an unfinished one.
        async with asyncio.timeout(30):
            while not await group.committed_maps():  # noqa: ASYNC110 - the broker's
                await asyncio.sleep(0.05)
        await group.slow_ones_are_handled()
        async with group.aiokafka() as other:
            await until(lambda: bool(other.assignment()))
            assert any(WARNING in line and "other-" in line for line in caplog.messages)
            group.write(400)
            await group.fast_ones_are_handled()
            # Several transactions later.
            await asyncio.sleep(0.5)
            assert not await group.committed_maps()
            await group.slow_ones_are_handled()
    group.check()


async def test_a_member_that_another_client_leads_commits_no_maps(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(broker, "led-by-aiokafka")
    caplog.set_level(logging.WARNING, "asyncrevoke")
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(group.aiokafka())
        await until(lambda: bool(other.assignment()))
        await stack.enter_async_context(group.consumer)
        await until(lambda: bool(group.consumer.assignment()))
        assert any(WARNING in line and "other-" in line for line in caplog.messages)
        group.write(400)
        await group.fast_ones_are_handled()
        await asyncio.sleep(0.5)
        assert not await group.committed_maps()
        assert group.handled
        await group.slow_ones_are_handled()
    group.check()


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours first", "librdkafka first"])
async def test_members_of_librdkafka_share_a_kip848_group(
    broker: KafkaBroker, *, ours_first: bool
) -> None:
    group = Group(broker, f"kip848-{'ours' if ours_first else 'librdkafka'}-first", "consumer")
    group.go_on.set()
    group.write(400)
    async with AsyncExitStack() as stack:
        if ours_first:
            await stack.enter_async_context(group.consumer)
            await until(lambda: len(group.handled) == 400)
        async with group.librdkafka() as other:
            await until(lambda: bool(other.assignment()))
            if not ours_first:
                await until(lambda: len(group.handled_elsewhere) == 400)
                await stack.enter_async_context(group.consumer)
            await until(lambda: bool(group.consumer.assignment() and other.assignment()))
            owned = {(each.topic, each.partition) for each in group.consumer.assignment()}
            assert len(owned) + len(other.assignment()) == PARTITIONS
            group.write(400)
            await until(lambda: len(group.handled | group.handled_elsewhere) == 800)
        before = len(group.handled)
        group.write(400)
        # It has all partitions again, and nothing is handled by both.
        await until(lambda: len(group.handled) == before + 400)
    assert not group.handled & group.handled_elsewhere
    group.check()
