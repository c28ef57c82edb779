"""Members of groups that are requests, sent one by one to a real Apache Kafka.

What a coordinator makes of them depends on their order, which no client lets one choose.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Channel, Node, Replied, Send
from asyncrevoke.client.groups.requests import committed
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.protocol.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ErrorCode,
)
from asyncrevoke.client.protocol.subscription import (
    Subscription,
    decode_assignment,
    encode_subscription,
)
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from asyncrevoke.broker import RunningBroker

_NOT_LOADED = {
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
}
_T = TypeVar("_T", bound=messages.KafkaMessage)
Partitions = frozenset[int]


class GroupRequests:
    """A broker, a topic of four partitions, and a group of its own."""

    def __init__(self, channels: Channels, node: Node, topic: str) -> None:
        self.channels = channels
        self.node = node
        self.topic = topic
        self.group = f"group-of-{topic}"

    async def ask(self, message: messages.Request, response_type: type[_T]) -> _T:
        replied = await self.channels.request(Send(1, message, self.node, Channel.HEARTBEAT, 20))
        assert isinstance(replied, Replied), replied
        assert isinstance(replied.message, response_type)
        return replied.message

    async def find_coordinator(self) -> ErrorCode:
        request = messages.FindCoordinatorRequest(group_id=self.group)
        return (await self.ask(request, messages.FindCoordinatorResponse)).error

    async def committed_offsets_error(self) -> ErrorCode:
        """The error of the response with the group's committed offsets."""
        request = committed(self.group)
        return (await self.ask(request, messages.OffsetFetchResponse)).error

    async def evict(self, member_id: str) -> None:
        """What the end of its session does."""
        request = messages.LeaveGroupRequest(
            group_id=self.group, member_id=member_id, group_instance_id=None
        )
        response = await self.ask(request, messages.LeaveGroupResponse)
        assert response.error is ErrorCode.none


class RequestedClassicMember:
    """A classic member, which reacts to no response by itself."""

    def __init__(self, kafka: GroupRequests, instance_id: str | None = None) -> None:
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
        response = await self.kafka.ask(
            messages.HeartbeatRequest(
                group_id=self.kafka.group,
                generation=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            ),
            messages.HeartbeatResponse,
        )
        return response.error


class RequestedKip848Member:
    """A member by KIP-848, which gives up nothing by itself."""

    def __init__(
        self, kafka: GroupRequests, member_id: str, instance_id: str | None = None
    ) -> None:
        self.kafka = kafka
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = JOIN_EPOCH
        self.topic_id = b""
        self.assigned: Partitions = frozenset()

    async def ask(
        self, owned: Partitions | None = None, *, full: bool = False
    ) -> messages.ConsumerGroupHeartbeatResponse:
        """Send a heartbeat, and do not pass its response to the member."""
        joins = self.epoch == JOIN_EPOCH
        full = full or joins
        told = ((self.topic_id, tuple(sorted(owned))),) if owned else ()
        return await self.kafka.ask(
            messages.ConsumerGroupHeartbeatRequest(
                group_id=self.kafka.group,
                member_id=self.member_id,
                member_epoch=self.epoch,
                group_instance_id=self.instance_id,
                rebalance_timeout=60.0 if full else None,
                topics=(self.kafka.topic,) if full else None,
                owned=() if joins else None if owned is None else told,
            ),
            messages.ConsumerGroupHeartbeatResponse,
        )

    async def beat(self, owned: Partitions | None = None) -> None:
        """Send a heartbeat, and do what its response says."""
        response = await self.ask(owned)
        assert response.error is ErrorCode.none, response
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = frozenset(n for _, numbers in response.assignment for n in numbers)
            for topic_id, _ in response.assignment:
                self.topic_id = topic_id

    async def leave(self, *, for_good: bool = True) -> None:
        self.epoch = LEAVE_EPOCH if for_good else LEAVE_STATIC_EPOCH
        await self.beat()


@asynccontextmanager
async def connected(broker: RunningBroker, topic: str) -> AsyncGenerator[GroupRequests]:
    servers = broker.bootstrap_servers
    host, _, port = servers.split(",", maxsplit=1)[0].rpartition(":")
    channels = Channels(ConsumerConfig(bootstrap_servers=servers))
    kafka = GroupRequests(channels, Node(-1, host, int(port)), topic)
    async with asyncio.timeout(30):
        while await kafka.find_coordinator() in _NOT_LOADED:
            pass
        # Not by a Heartbeat: a coordinator that is loading responds to that without an error.
        while await kafka.committed_offsets_error() in _NOT_LOADED:
            pass
    try:
        yield kafka
    finally:
        await channels.close()


async def until(beat: Callable[[], Awaitable[object]], done: Callable[[], bool]) -> None:
    """Beat until it is done: the broker makes assignments at most once a second."""
    async with asyncio.timeout(30):
        while not done():
            await beat()
            await asyncio.sleep(0.1)
