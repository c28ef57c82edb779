"""What a real Apache Kafka does not tell the members of a group that it converts.

The members here are requests, sent one by one: what a coordinator leaves unread depends on their
order. The simulated coordinator follows it (``tests/simulation/test_converting_group.py``).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest

from asyncrevoke.broker import KafkaBroker
from asyncrevoke.config import ConsumerConfig
from asyncrevoke.core.effects import Channel, Node, Replied, Send
from asyncrevoke.protocol import messages
from asyncrevoke.protocol.messages import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ErrorCode
from asyncrevoke.protocol.subscription import Subscription, decode_assignment, encode_subscription
from asyncrevoke.runtime.channels import Channels

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]

_NOT_LOADED = {
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
}
_T = TypeVar("_T", bound=messages.Message)
Partitions = frozenset[int]


class Kafka:
    """A broker, a topic of four partitions, and a group of its own."""

    def __init__(self, channels: Channels, node: Node, topic: str) -> None:
        self.channels = channels
        self.node = node
        self.topic = topic
        self.group = f"group-of-{topic}"

    async def ask(self, message: messages.Request, answer: type[_T]) -> _T:
        replied = await self.channels.request(Send(1, message, self.node, Channel.HEARTBEAT, 20))
        assert isinstance(replied, Replied), replied
        assert isinstance(replied.message, answer)
        return replied.message

    async def find_coordinator(self) -> ErrorCode:
        request = messages.FindCoordinatorRequest(group_id=self.group)
        return (await self.ask(request, messages.FindCoordinatorResponse)).error

    async def put_out(self, member_id: str) -> None:
        """What the end of its session does."""
        request = messages.LeaveGroupRequest(
            group_id=self.group, member_id=member_id, group_instance_id=None
        )
        answer = await self.ask(request, messages.LeaveGroupResponse)
        assert answer.error is ErrorCode.none


class Classic:
    """A classic member, which answers to nothing by itself."""

    def __init__(self, kafka: Kafka, instance_id: str | None = None) -> None:
        self.kafka = kafka
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1

    async def join(self) -> Partitions | ErrorCode:
        """Join and sync: what is assigned, or why nothing is."""
        subscription = encode_subscription(Subscription(topics=(self.kafka.topic,)))
        joined = await self.kafka.ask(
            messages.JoinGroupRequest(
                group_id=self.kafka.group,
                session_timeout=45.0,
                rebalance_timeout=60.0,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocols=(("range", subscription),),
            ),
            messages.JoinGroupResponse,
        )
        self.member_id, self.generation = joined.member_id, joined.generation
        if joined.error is ErrorCode.member_id_required:
            return await self.join()
        if joined.error is not ErrorCode.none:
            return joined.error
        synced = await self.kafka.ask(
            messages.SyncGroupRequest(
                group_id=self.kafka.group,
                generation=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_name="range",
            ),
            messages.SyncGroupResponse,
        )
        if synced.error is ErrorCode.rebalance_in_progress:
            return await self.join()
        if synced.error is not ErrorCode.none:
            return synced.error
        return frozenset(number for _, number in decode_assignment(synced.assignment)[0])

    async def beat(self) -> ErrorCode:
        answer = await self.kafka.ask(
            messages.HeartbeatRequest(
                group_id=self.kafka.group,
                generation=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            ),
            messages.HeartbeatResponse,
        )
        return answer.error


class Modern:
    """A member by KIP-848, which gives up nothing by itself."""

    def __init__(self, kafka: Kafka, member_id: str, instance_id: str | None = None) -> None:
        self.kafka = kafka
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = JOIN_EPOCH
        self.topic_id = b""
        self.assigned: Partitions = frozenset()

    async def beat(self, owned: Partitions | None = None) -> None:
        joins = self.epoch == JOIN_EPOCH
        told = ((self.topic_id, tuple(sorted(owned))),) if owned else ()
        answer = await self.kafka.ask(
            messages.ConsumerGroupHeartbeatRequest(
                group_id=self.kafka.group,
                member_id=self.member_id,
                member_epoch=self.epoch,
                group_instance_id=self.instance_id,
                rebalance_timeout=60.0 if joins else None,
                topics=(self.kafka.topic,) if joins else None,
                owned=() if joins else None if owned is None else told,
            ),
            messages.ConsumerGroupHeartbeatResponse,
        )
        assert answer.error is ErrorCode.none, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = frozenset(n for _, numbers in answer.assignment for n in numbers)
            for topic_id, _ in answer.assignment:
                self.topic_id = topic_id

    async def leave(self, *, for_good: bool = True) -> None:
        self.epoch = LEAVE_EPOCH if for_good else LEAVE_STATIC_EPOCH
        await self.beat()


@asynccontextmanager
async def _connected(broker: RunningBroker, topic: str) -> AsyncGenerator[Kafka]:
    servers = broker.bootstrap_servers
    host, _, port = servers.split(",", maxsplit=1)[0].rpartition(":")
    channels = Channels(ConsumerConfig(bootstrap_servers=servers))
    kafka = Kafka(channels, Node(-1, host, int(port)), topic)
    async with asyncio.timeout(30):
        while await kafka.find_coordinator() in _NOT_LOADED:
            pass
        while await Classic(kafka).beat() in _NOT_LOADED:
            pass
    try:
        yield kafka
    finally:
        await channels.close()


@pytest.fixture
async def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> AsyncIterator[Kafka]:
    async with _connected(kafka_broker, kafka_topic) as kafka:
        yield kafka


async def _until(beat: Callable[[], Awaitable[object]], done: Callable[[], bool]) -> None:
    """Beat until it is done: the broker makes assignments at most once a second."""
    async with asyncio.timeout(30):
        while not done():
            await beat()
            await asyncio.sleep(0.1)


async def test_what_a_member_waits_for_when_a_static_one_converts_the_group_is_read_by_nobody(
    kafka: Kafka,
) -> None:
    everything = frozenset(range(4))
    static, waiting = Modern(kafka, "by-epochs", "static"), Classic(kafka)
    await _until(static.beat, lambda: static.assigned == everything)
    await static.beat(everything)
    assert await waiting.join() == frozenset()
    await _until(static.beat, lambda: len(static.assigned) == 2)
    kept = static.assigned
    while await waiting.beat() is ErrorCode.rebalance_in_progress:
        assert await waiting.join() == frozenset()
    # It waits; what it waits for becomes free, and it has not asked again.
    await static.beat(kept)
    assert static.epoch == waiting.generation

    # The group becomes a classic one, without a rebalance, and one by KIP-848 again.
    await static.leave(for_good=False)
    back = Classic(kafka, "static")
    assert await back.join() == kept
    assert back.generation == waiting.generation
    assert await waiting.beat() is ErrorCode.none
    again = Modern(kafka, "by-epochs-again", "static")
    await again.beat()
    assert again.assigned == kept
    assert again.epoch == waiting.generation
    for _ in range(3):
        assert await waiting.beat() is ErrorCode.none
        await again.beat(kept)
    # The coordinator takes it for the owner of what it was never told.
    assert await waiting.join() == everything - kept


async def test_a_member_that_was_put_out_is_taken_for_a_new_one_of_the_same_id(
    kafka: Kafka,
) -> None:
    modern, member = Modern(kafka, "by-epochs"), Classic(kafka)
    await _until(modern.beat, lambda: bool(modern.assigned))
    assert await member.join() == frozenset()
    member_id = member.member_id
    await kafka.put_out(member_id)
    assert await member.beat() is ErrorCode.unknown_member_id
    assert isinstance(await member.join(), frozenset)
    assert member.member_id == member_id


@pytest.mark.slow
async def test_the_rebalance_of_a_group_made_classic_is_forgotten_with_its_coordinator() -> None:
    everything = frozenset(range(4))
    with KafkaBroker() as broker:
        await asyncio.to_thread(broker.create_topic, "orders", 4)
        async with _connected(broker, "orders") as kafka:
            modern, member = Modern(kafka, "by-epochs"), Classic(kafka)
            await _until(modern.beat, lambda: modern.assigned == everything)
            await modern.beat(everything)
            assert await member.join() == frozenset()
            await _until(modern.beat, lambda: len(modern.assigned) == 2)
            await modern.beat(modern.assigned)
            rest = everything - modern.assigned
            assert await member.beat() is ErrorCode.rebalance_in_progress
            assert await member.join() == rest
            assert await member.beat() is ErrorCode.none
            await modern.leave()
            assert await member.beat() is ErrorCode.rebalance_in_progress
        await asyncio.to_thread(broker.restart)
        async with _connected(broker, "orders") as kafka:
            member.kafka = kafka
            # It waits for no JoinGroup any more, and nobody has the other half.
            for _ in range(3):
                assert await member.beat() is ErrorCode.none
