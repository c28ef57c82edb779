"""A member with an assignor of its user joins a group of KafkaJS, whose assigner no other client
has: the example of docs/explanation/mixed-groups.md."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from mixed.neighbours.clients import group_with, running_member

from asyncrevoke import Consumer, TopicPartition
from asyncrevoke.assignors import ASSIGNORS, RebalanceProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from asyncrevoke.assignors import Member
    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.core.assignors.assignor import Assignment

PARTITIONS = 4
pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(120),
    pytest.mark.kafka_topic(partitions=PARTITIONS),
]


class RoundRobinOfKafkaJs:
    name = "RoundRobinAssigner"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, generation: int, owned: Collection[TopicPartition]) -> None:
        return None

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Sequence[Member]
    ) -> Assignment:
        return ASSIGNORS["roundrobin"].assign(partitions, members)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("leads", ["asyncrevoke", "kafkajs"])
async def test_each_member_gets_its_share_by_the_assigner_of_kafkajs(
    tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str, leads: str
) -> None:
    group = group_with("kafkajs", tmp_path, kafka_broker, kafka_topic)
    consumer = Consumer(
        bootstrap_servers=kafka_broker.bootstrap_servers,
        group_id=group.name,
        assignors=(RoundRobinOfKafkaJs(), "cooperative-sticky"),
        heartbeat_interval=0.3,
    )

    @consumer.handler(kafka_topic)
    async def handle(_value: bytes) -> None:
        pass

    async with AsyncExitStack() as stack:
        if leads == "asyncrevoke":
            await stack.enter_async_context(consumer)
            await until(lambda: len(consumer.assignment()) == PARTITIONS)
        member = running_member(group, "kafkajs", RoundRobinOfKafkaJs.name)
        other = await stack.enter_async_context(member)
        if leads != "asyncrevoke":
            await until(lambda: len(other.owned) == PARTITIONS)
            await stack.enter_async_context(consumer)
        await until(lambda: len(consumer.assignment()) == len(other.owned) == PARTITIONS // 2)
        assert len({*consumer.assignment(), *other.owned}) == PARTITIONS
