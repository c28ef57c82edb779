"""Consumer groups whose coordinator assigns (KIP-848), on a real Apache Kafka."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer

from asyncrevoke import (
    BrokerPattern,
    Consumer,
    FatalError,
    InconsistentGroupError,
    TopicPartition,
    UnsupportedVersionError,
)
from asyncrevoke.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
    from typing import Self, Unpack

    from asyncrevoke import PollResult
    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.config import ConsumerOptions

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]

DEADLINE = 60.0


class Kafka:
    """A broker, one topic of four partitions, and a group of its own."""

    def __init__(self, broker: RunningBroker, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.group = f"group-of-{topic}"
        self.sent = 0

    def member(self, *topics: str, **options: Unpack[ConsumerOptions]) -> Member:
        options.setdefault("group_protocol", "consumer")
        options.setdefault("group_id", self.group)
        options.setdefault("bootstrap_servers", self.broker.bootstrap_servers)
        return Member(Consumer(*(topics or (self.topic,)), **options))

    @asynccontextmanager
    async def producing(self) -> AsyncGenerator[Callable[[int], Awaitable[None]]]:
        async with AIOKafkaProducer(bootstrap_servers=self.broker.bootstrap_servers) as producer:

            async def produce(count: int) -> None:
                for number in range(self.sent, self.sent + count):
                    await producer.send(self.topic, b"%d" % number, partition=number % 4)
                self.sent += count
                await producer.flush()

            yield produce

    async def committed(self) -> int:
        """Records that the group has committed, over all partitions."""
        partitions = [TopicPartition(self.topic, number) for number in range(4)]
        looker = Consumer(bootstrap_servers=self.broker.bootstrap_servers, group_id=self.group)
        async with looker:
            found = await looker.committed(*partitions)
        return sum(offset.offset for offset in found.values() if offset is not None)


class Member:
    """A consumer in a loop of its own, which writes down what it gets."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.values: list[bytes] = []
        self.arrivals: defaultdict[TopicPartition, list[float]] = defaultdict(list)
        self.revoked: set[TopicPartition] = set()
        self.lost: set[TopicPartition] = set()
        # Delayed in each step as long as they stand here.
        self.keep: set[TopicPartition] = set()
        self.keep_all = False
        self._task: asyncio.Task[None] | None = None

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return self.consumer.assignment()

    @property
    def epoch(self) -> int:
        return self.consumer.group_metadata().generation

    async def __aenter__(self) -> Self:
        await self.consumer.start()
        self._task = asyncio.create_task(self._loop())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.consumer.stop()
        assert self._task is not None
        await self._task
        await self.consumer.aclose()

    async def _loop(self) -> None:
        async for batch in self.consumer:
            self._take(batch)

    def _take(self, batch: PollResult) -> None:
        now = time.monotonic()
        for record in batch.records:
            self.values.append(record.value or b"")
            self.arrivals[record.topic_partition].append(now)
        self.revoked |= batch.to_be_revoked
        self.lost |= batch.lost
        if self.keep_all:
            self.keep |= batch.to_be_revoked
        self.keep -= batch.lost
        if kept := self.keep & batch.to_be_revoked:
            self.consumer.delay_revoke(kept)


@pytest.fixture
def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> Kafka:
    return Kafka(kafka_broker, kafka_topic)


async def until(condition: Callable[[], object], within: float = DEADLINE) -> None:
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - a condition on a real broker has no event
            await asyncio.sleep(0.01)


async def shared(*members: Member) -> None:
    """Until these members have the four partitions among them, in equal parts."""

    def fair() -> bool:
        parts = [member.assigned for member in members]
        together = {tp for part in parts for tp in part}
        return len(together) == 4 == sum(map(len, parts)) and all(
            len(part) == 4 // len(members) for part in parts
        )

    await until(fair)


def reading(member: Member) -> set[str]:
    """The topics of its partitions, if the positions of all are known."""
    position = member.consumer.position
    if any(position(tp) is None for tp in member.assigned):
        return set()
    return {tp.topic for tp in member.assigned}


def numbers(count: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(count))


# -- members that come and go


async def test_kip848_members_share_the_partitions_and_no_record_repeats(kafka: Kafka) -> None:
    first, second = kafka.member(), kafka.member()
    async with kafka.producing() as produce, first:
        await produce(100)
        await until(lambda: len(first.values) == 100)
        async with second:
            await shared(first, second)
            await until(lambda: first.epoch == second.epoch > 0)
            await produce(100)
            await until(lambda: len(first.values) + len(second.values) == kafka.sent)
        await shared(first)
        await produce(100)
        await until(lambda: len(first.values) + len(second.values) == kafka.sent)
    assert Counter(first.values + second.values) == numbers(kafka.sent)
    assert second.values
    assert len(first.revoked) == 2
    assert first.lost == second.lost == set()
    assert await kafka.committed() == kafka.sent


async def test_kept_partitions_are_read_and_committed_while_a_revocation_is_delayed(
    kafka: Kafka,
) -> None:
    first, second = kafka.member(commit_interval=0.1), kafka.member()
    first.keep_all = True
    async with kafka.producing() as produce, first:
        await shared(first)
        async with second:
            await until(lambda: first.keep)
            kept = first.assigned - first.keep
            epoch, began, before = first.epoch, time.monotonic(), len(first.values)
            slowest = 0.0
            async with asyncio.timeout(DEADLINE):
                while (turn := time.monotonic()) - began < 3.0:
                    await produce(8)
                    await asyncio.sleep(0.005)
                    slowest = max(slowest, time.monotonic() - turn)
            # Their owner has not acknowledged: nobody has got them, and no epoch has moved.
            assert first.epoch == epoch
            assert second.assigned == frozenset()
            assert len(first.values) > before
            gaps = [
                later - earlier
                for tp in kept
                for earlier, later in zip(first.arrivals[tp], first.arrivals[tp][1:], strict=False)
            ]
            assert max(gaps) < 1.5 + 2 * slowest
            await until(lambda: len(first.values) == kafka.sent // 2)
            flowing = sum(len(first.arrivals[tp]) for tp in kept)
            async with asyncio.timeout(DEADLINE):
                while await kafka.committed() < flowing:
                    pass
            moving = set(first.keep)
            first.keep.clear()
            first.keep_all = False
            await shared(first, second)
            assert second.assigned == moving
            await until(lambda: len(first.values) + len(second.values) == kafka.sent)
    assert Counter(first.values + second.values) == numbers(kafka.sent)
    assert await kafka.committed() == kafka.sent


async def test_at_the_deadline_only_overdue_partitions_are_lost(kafka: Kafka) -> None:
    first = kafka.member(rebalance_timeout=4.0)
    second = kafka.member()
    first.keep_all = True
    async with kafka.producing() as produce, first:
        await produce(40)
        await until(lambda: len(first.values) == 40)
        async with second:
            await until(lambda: len(first.keep) == 2)
            stuck = set(first.keep)
            kept = first.assigned - stuck
            await until(lambda: first.lost)
            assert first.lost == stuck
            assert first.assigned == kept
            await shared(first, second)
            await produce(40)
            await until(lambda: len(first.values) + len(second.values) >= kafka.sent)
            # Two more rebalance timeouts: the broker had no reason to fence anybody.
            await asyncio.sleep(8)
            assert first.lost == stuck
            assert first.assigned == kept
    assert set(first.values + second.values) == set(numbers(kafka.sent))


async def test_a_removed_member_loses_its_partitions_and_joins_again(kafka: Kafka) -> None:
    member = kafka.member()
    async with kafka.producing() as produce, member:
        await shared(member)
        await produce(20)
        await until(lambda: len(member.values) == 20)
        member_id, epoch = member.consumer.group_metadata().member_id, member.epoch
        await _remove(kafka, member_id)
        await until(lambda: len(member.lost) == 4)
        await shared(member)
        assert member.epoch > epoch
        assert member.consumer.group_metadata().member_id == member_id
        await produce(20)
        await until(lambda: set(member.values) == set(numbers(40)))


async def _remove(kafka: Kafka, member_id: str) -> None:
    """An epoch of -1 in the member's name, as an administrator might send it."""
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.effects import Channel, Node, Send
    from asyncrevoke.client.protocol.messages import LEAVE_EPOCH, ConsumerGroupHeartbeatRequest
    from asyncrevoke.client.runtime.net.channels import Channels

    config = ConsumerConfig(bootstrap_servers=kafka.broker.bootstrap_servers)
    ((host, port),) = config.addresses
    channels = Channels(config)
    message = ConsumerGroupHeartbeatRequest(
        group_id=kafka.group,
        member_id=member_id,
        member_epoch=LEAVE_EPOCH,
        group_instance_id=None,
    )
    await channels.request(Send(1, message, Node(-1, host, port), Channel.HEARTBEAT, 10))
    await channels.close()


async def test_a_static_member_that_restarts_keeps_its_partitions_and_no_others_move(
    kafka: Kafka,
) -> None:
    other = kafka.member()
    async with kafka.producing() as produce, other:
        async with kafka.member(group_instance_id="one") as before:
            await shared(other, before)
            had = before.assigned
        epoch = other.epoch
        async with kafka.member(group_instance_id="one") as after:
            await shared(other, after)
            assert after.assigned == had
            assert other.epoch == epoch
            await produce(40)
            await until(lambda: len(other.values) + len(after.values) == 40)
    assert other.lost == set()


async def test_joining_waits_while_the_instance_id_is_in_use(kafka: Kafka) -> None:
    successor = kafka.member(group_instance_id="one")
    async with kafka.member(group_instance_id="one") as member:
        await shared(member)
        await successor.__aenter__()
        await asyncio.sleep(2)
        assert successor.assigned == frozenset()
        assert len(member.assigned) == 4
    await shared(successor)
    await successor.__aexit__()
    assert member.lost == set()


# -- what the broker decides


async def test_the_broker_resolves_a_pattern_and_topics_that_no_longer_match_are_revoked(
    kafka: Kafka,
) -> None:
    first, other = f"{kafka.topic}-a", f"{kafka.topic}-b"
    for topic in (first, other):
        kafka.broker.create_topic(topic, 2)
    consumer = Consumer(
        pattern=BrokerPattern(f"{kafka.topic}-[a]"),
        bootstrap_servers=kafka.broker.bootstrap_servers,
        group_id=kafka.group,
        group_protocol="consumer",
    )
    async with Member(consumer) as member:
        await until(lambda: reading(member) == {first})
        assert len(member.assigned) == 2
        assert consumer.subscription() == {first}
        consumer.subscribe(pattern=BrokerPattern(f"{kafka.topic}-b"))
        await until(lambda: reading(member) == {other})
        consumer.subscribe(first)
        await until(lambda: reading(member) == {first})
        assert len(member.assigned) == 2
        assert {tp.topic for tp in member.revoked} == {first, other}
        await consumer.unsubscribe()
        assert member.assigned == frozenset()
        consumer.subscribe(other)
        await until(lambda: len(member.assigned) == 2)
    assert member.lost == set()


async def test_the_server_side_assignor_can_be_chosen(kafka: Kafka) -> None:
    other = f"{kafka.topic}-b"
    kafka.broker.create_topic(other, 4)
    topics = (kafka.topic, other)
    async with (
        kafka.member(*topics, server_assignor="range") as first,
        kafka.member(*topics, server_assignor="range") as second,
    ):
        await until(lambda: len(first.assigned) == len(second.assigned) == 4)
        for member in (first, second):
            by_topic = [{tp.partition for tp in member.assigned if tp.topic == t} for t in topics]
            assert by_topic[0] == by_topic[1]


async def _rejected(consumer: Consumer) -> FatalError:
    async with asyncio.timeout(DEADLINE), consumer:
        with pytest.raises(FatalError) as raised:
            await anext(consumer)
    return raised.value


async def test_an_unsupported_server_side_assignor_is_an_error_that_names_the_fix(
    kafka: Kafka,
) -> None:
    error = await _rejected(kafka.member(server_assignor="best").consumer)
    assert isinstance(error, InconsistentGroupError)
    assert "server_assignor='best'" in str(error)
    assert "group.consumer.assignors" in str(error)


async def test_a_pattern_that_is_not_re2_is_an_error_that_names_the_fix(kafka: Kafka) -> None:
    consumer = Consumer(
        pattern=BrokerPattern("(?<=x)y"),
        bootstrap_servers=kafka.broker.bootstrap_servers,
        group_id=kafka.group,
        group_protocol="consumer",
    )
    error = await _rejected(consumer)
    assert isinstance(error, InconsistentGroupError)
    assert "RE2" in str(error)


# -- the classic protocol beside it


async def test_auto_uses_the_consumer_protocol_if_the_broker_supports_it(kafka: Kafka) -> None:
    async with kafka.member(group_protocol="auto") as member, kafka.producing() as produce:
        await shared(member)
        # By KIP-848 the client names the member; by the classic protocol the broker does.
        assert member.consumer.group_metadata().member_id.startswith("asyncrevoke-")
        assert member.epoch >= 1
        await produce(8)
        await until(lambda: len(member.values) == 8)


async def test_a_classic_group_is_converted_and_back_while_it_runs(kafka: Kafka) -> None:
    classic = kafka.member(group_protocol="classic")
    modern = kafka.member(group_protocol="consumer")
    async with kafka.producing() as produce, classic:
        await produce(100)
        await until(lambda: len(classic.values) == 100)
        async with modern:
            await shared(classic, modern)
            await produce(100)
            await until(lambda: len(classic.values) + len(modern.values) == kafka.sent)
            assert modern.values
        await shared(classic)
        await produce(100)
        await until(lambda: len(classic.values) + len(modern.values) == kafka.sent)
    assert Counter(classic.values + modern.values) == numbers(kafka.sent)
    assert classic.lost == modern.lost == set()
    assert await kafka.committed() == kafka.sent


async def test_a_classic_member_that_delays_keeps_its_partitions_in_a_converted_group(
    kafka: Kafka,
) -> None:
    classic = kafka.member(group_protocol="classic")
    modern = kafka.member(group_protocol="consumer")
    classic.keep_all = True
    async with kafka.producing() as produce, classic:
        await shared(classic)
        async with modern:
            await until(lambda: len(classic.keep) == 2)
            kept = classic.assigned - classic.keep
            before = sum(len(classic.arrivals[tp]) for tp in kept)
            await produce(100)
            await until(lambda: sum(len(classic.arrivals[tp]) for tp in kept) == before + 50)
            assert modern.assigned == frozenset()
            classic.keep_all = False
            classic.keep.clear()
            await shared(classic, modern)
            await until(lambda: len(classic.values) + len(modern.values) == kafka.sent)
    assert Counter(classic.values + modern.values) == numbers(kafka.sent)
    assert classic.lost == modern.lost == set()


@pytest.fixture(scope="module")
def classic_broker() -> Iterator[KafkaBroker]:
    """One whose coordinator has the consumer protocol switched off."""
    settings = {"group.coordinator.rebalance.protocols": "classic"}
    with KafkaBroker(quick=True, properties=settings) as broker:
        yield broker


@pytest.fixture
def classic_kafka(classic_broker: KafkaBroker, request: pytest.FixtureRequest) -> Kafka:
    topic = f"topic-{abs(hash(request.node.name))}"
    classic_broker.create_topic(topic, 4)
    return Kafka(classic_broker, topic)


async def test_auto_uses_the_classic_protocol_if_the_broker_lacks_the_consumer_protocol(
    classic_kafka: Kafka,
) -> None:
    first = classic_kafka.member(group_protocol="auto")
    second = classic_kafka.member(group_protocol="auto")
    async with classic_kafka.producing() as produce, first:
        await produce(40)
        await until(lambda: len(first.values) == 40)
        async with second:
            await shared(first, second)
            await produce(40)
            await until(lambda: len(first.values) + len(second.values) == 80)
    assert Counter(first.values + second.values) == numbers(80)
    assert await classic_kafka.committed() == 80


async def test_a_broker_without_the_consumer_protocol_is_an_error_that_names_the_fix(
    classic_kafka: Kafka,
) -> None:
    error = await _rejected(classic_kafka.member().consumer)
    assert isinstance(error, UnsupportedVersionError)
    assert "group.coordinator.rebalance.protocols" in str(error)
    assert '"auto"' in str(error)


async def test_a_cluster_with_group_version_0_is_told_to_raise_it() -> None:
    with KafkaBroker(features={"group.version": 0}) as broker:
        broker.create_topic("orders")
        async with Consumer(
            "orders",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="billing",
            group_protocol="consumer",
        ) as consumer:
            with pytest.raises(UnsupportedVersionError) as raised:
                await anext(aiter(consumer))
    assert "the brokers must have the feature group.version=1" in str(raised.value)
    assert "rebalance.protocols" not in str(raised.value)
