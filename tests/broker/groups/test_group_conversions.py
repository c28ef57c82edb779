"""What a real Apache Kafka does not tell the members of a group that it converts.

The simulated coordinator follows it (``tests/simulation/brokers/test_converting_group.py``).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import pytest
from broker.groups.members_by_request import (
    GroupRequests,
    Partitions,
    RequestedClassicMember,
    RequestedKip848Member,
    connected,
    until,
)
from broker.kafka_release import kafka_release

from asyncrevoke.broker import KafkaBroker
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


@pytest.fixture
async def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> AsyncIterator[GroupRequests]:
    async with connected(kafka_broker, kafka_topic) as kafka:
        yield kafka


class ConvertedGroup(NamedTuple):
    """A group that a static member made a classic one, and one by KIP-848 again."""

    static: RequestedKip848Member
    static_owns: Partitions
    waiting: RequestedClassicMember
    """It sent no heartbeat since the static member released the other partitions for it."""
    generation: int
    """Of all members, before the group is converted the second time."""


async def group_that_was_converted_twice(kafka: GroupRequests) -> ConvertedGroup:
    everything = frozenset(range(4))
    static, waiting = (
        RequestedKip848Member(kafka, "by-epochs", "static"),
        RequestedClassicMember(kafka),
    )
    await until(static.beat, lambda: static.assigned == everything)
    await static.beat(everything)
    assert await waiting.join() == frozenset()
    await until(static.beat, lambda: len(static.assigned) == 2)
    kept = static.assigned
    while await waiting.beat() is ErrorCode.rebalance_in_progress:
        assert await waiting.join() == frozenset()
    await static.beat(kept)
    assert static.epoch == waiting.generation

    await static.leave(for_good=False)
    back = RequestedClassicMember(kafka, "static")
    assert await back.join() == kept
    assert back.generation == waiting.generation
    assert await waiting.beat() is ErrorCode.none
    again = RequestedKip848Member(kafka, "by-epochs-again", "static")
    await again.beat()
    assert again.assigned == kept
    return ConvertedGroup(again, kept, waiting, waiting.generation)


@pytest.mark.skipif(
    kafka_release() < (4, 1), reason="needs Apache Kafka 4.1: 4.0 starts a rebalance"
)
async def test_a_partition_that_a_member_awaits_when_the_group_is_converted_has_no_owner(
    kafka: GroupRequests,
) -> None:
    static, kept, waiting, generation = await group_that_was_converted_twice(kafka)
    assert static.epoch == generation
    for _ in range(3):
        assert await waiting.beat() is ErrorCode.none
        await static.beat(kept)
    # The coordinator takes it for the owner of what it was never told.
    assert await waiting.join() == frozenset(range(4)) - kept


@pytest.mark.skipif(
    kafka_release() >= (4, 1), reason="needs Apache Kafka 4.0: later ones start no rebalance"
)
async def test_kafka_4_0_starts_a_rebalance_when_a_static_member_converts_the_group_by_kip_848(
    kafka: GroupRequests,
) -> None:
    static, kept, waiting, generation = await group_that_was_converted_twice(kafka)
    assert static.epoch == generation + 1
    assert await waiting.beat() is ErrorCode.rebalance_in_progress
    assert await waiting.join() == frozenset(range(4)) - kept
    assert waiting.generation == static.epoch


async def test_a_removed_member_joins_again_as_a_new_member_with_its_old_id(
    kafka: GroupRequests,
) -> None:
    modern, member = RequestedKip848Member(kafka, "by-epochs"), RequestedClassicMember(kafka)
    await until(modern.beat, lambda: bool(modern.assigned))
    assert await member.join() == frozenset()
    member_id = member.member_id
    await kafka.evict(member_id)
    assert await member.beat() is ErrorCode.unknown_member_id
    assert isinstance(await member.join(), frozenset)
    assert member.member_id == member_id


@pytest.mark.slow
async def test_a_coordinator_restart_drops_the_rebalance_of_a_group_converted_to_classic() -> None:
    everything = frozenset(range(4))
    with KafkaBroker() as broker:
        await asyncio.to_thread(broker.create_topic, "orders", 4)
        async with connected(broker, "orders") as kafka:
            modern, member = (
                RequestedKip848Member(kafka, "by-epochs"),
                RequestedClassicMember(kafka),
            )
            await until(modern.beat, lambda: modern.assigned == everything)
            await modern.beat(everything)
            assert await member.join() == frozenset()
            await until(modern.beat, lambda: len(modern.assigned) == 2)
            await modern.beat(modern.assigned)
            rest = everything - modern.assigned
            assert await member.beat() is ErrorCode.rebalance_in_progress
            assert await member.join() == rest
            assert await member.beat() is ErrorCode.none
            await modern.leave()
            assert await member.beat() is ErrorCode.rebalance_in_progress
        await asyncio.to_thread(broker.restart)
        async with connected(broker, "orders") as kafka:
            member.kafka = kafka
            # It waits for no JoinGroup any more, and nobody has the other half.
            for _ in range(3):
                assert await member.beat() is ErrorCode.none
