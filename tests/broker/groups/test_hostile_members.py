"""A member of a real group that makes up what it tells the leader."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import pytest
from broker.groups.members_by_request import RequestedClassicMember, connected
from broker.records.numbered_records import NumberedMember, Numbers, until

from asyncrevoke.client.core.io.effects import Channel, Replied, Send
from asyncrevoke.client.core.io.outbox import LARGE_FROM
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.protocol.subscription import Subscription, encode_subscription

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(90),
    pytest.mark.kafka_topic(partitions=4),
]


def names_that_cannot_be(topic: str) -> bytes:
    return encode_subscription(Subscription(topics=("", ".", "a b", "missing", topic)))


def claims_of_everything(topic: str) -> bytes:
    """So many that the leader computes beside its event loop."""
    owned = tuple(TopicPartition(topic, number) for number in range(2 * LARGE_FROM))
    return encode_subscription(
        Subscription(topics=(topic,), owned=owned, generation=2**31 - 1, rack="x" * 1000)
    )


@pytest.mark.parametrize("metadata", [names_that_cannot_be, claims_of_everything])
async def test_an_invalid_subscription_of_one_member_does_not_end_the_group_leader(
    kafka_broker: RunningBroker, kafka_topic: str, metadata: Callable[[str], bytes]
) -> None:
    address = kafka_broker.bootstrap_servers
    numbers = Numbers(address, address, kafka_topic, 4)
    leader = NumberedMember(numbers.consumer(auto_offset_reset="earliest", heartbeat_interval=0.5))
    async with connected(kafka_broker, kafka_topic) as kafka, leader:
        await numbers.send(40)
        await leader.has(40)
        hostile = RequestedClassicMember(kafka)
        joined = await _join(hostile, metadata(kafka_topic))
        assert joined.error is ErrorCode.none
        assert joined.leader != hostile.member_id
        synced = await kafka.ask(
            messages.SyncGroupRequest(
                group_id=kafka.group,
                generation=hostile.generation,
                member_id=hostile.member_id,
                group_instance_id=None,
                protocol_name="cooperative-sticky",
            ),
            messages.SyncGroupResponse,
        )
        assert synced.error in (ErrorCode.none, ErrorCode.rebalance_in_progress)
        await kafka.evict(hostile.member_id)
        await _goes_on(leader, numbers)


async def test_a_subscription_that_brokers_cannot_decode_ends_no_other_member(
    kafka_broker: RunningBroker, kafka_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "asyncrevoke")
    address = kafka_broker.bootstrap_servers
    numbers = Numbers(address, address, kafka_topic, 4)
    member = NumberedMember(numbers.consumer(auto_offset_reset="earliest", heartbeat_interval=0.5))
    async with connected(kafka_broker, kafka_topic) as kafka, member:
        await numbers.send(40)
        await member.has(40)
        hostile = RequestedClassicMember(kafka)
        unreadable = struct.pack(">hi", 1, 2**31 - 1)
        join = asyncio.create_task(_join(hostile, unreadable))
        # The broker completes no join of the group, and tells everybody that it does not know why.
        await until(
            lambda: member.failed or join.done() or "unknown_server_error" in caplog.text,
            "a response to a JoinGroup",
        )
        await kafka.evict(hostile.member_id)
        await _goes_on(member, numbers)
        join.cancel()
        await asyncio.wait([join])


async def _goes_on(member: NumberedMember, numbers: Numbers) -> None:
    """The member has all partitions again, and reads them."""
    await until(lambda: len(member.consumer.assignment()) == 4 or member.failed, "all of it")
    await numbers.send(40)
    await member.has(80)


async def _join(hostile: RequestedClassicMember, metadata: bytes) -> messages.JoinGroupResponse:
    """Join over a connection of its own, because the response may take long."""
    kafka = hostile.kafka
    request = messages.JoinGroupRequest(
        group_id=kafka.group,
        session_timeout=45.0,
        rebalance_timeout=60.0,
        member_id=hostile.member_id,
        group_instance_id=None,
        protocols=(("cooperative-sticky", metadata),),
    )
    replied = await kafka.channels.request(Send(1, request, kafka.node, Channel.JOIN, 60))
    assert isinstance(replied, Replied), replied
    response = replied.message
    assert isinstance(response, messages.JoinGroupResponse)
    hostile.member_id, hostile.generation = response.member_id, response.generation
    if response.error is ErrorCode.member_id_required:
        return await _join(hostile, metadata)
    return response
