"""Three brokers that are restarted one after another, while members join and leave."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from broker.records.numbered_records import NumberedMember, Numbers, Place, until

from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from asyncrevoke import Consumer
    from asyncrevoke.broker import KafkaCluster

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(180)]


def handled_by(members: list[NumberedMember]) -> Counter[Place]:
    total: Counter[Place] = Counter()
    for member in members:
        total.update(member.handled)
    return total


async def test_a_rolling_broker_restart_while_members_join_and_leave_loses_and_repeats_nothing(
    kafka_cluster: KafkaCluster,
) -> None:
    topic = f"numbers-{uuid.uuid4().hex[:8]}"
    kafka_cluster.create_topic(topic, 6)
    address = kafka_cluster.bootstrap_servers
    numbers = Numbers(address, address, topic, partitions=6)
    members: list[NumberedMember] = []
    restarted = False

    def consumer() -> Consumer:
        # A coordinator that takes over may know a member that has left: it waits for its session.
        return numbers.consumer(commit_interval=0.2, request_timeout=5.0, session_timeout=12.0)

    async def come_and_go() -> int:
        visits = 0
        while not restarted:
            async with NumberedMember(consumer(), tasks=True) as visitor:
                members.append(visitor)
                await until(lambda: len(visitor.handled) >= 20 or visitor.failed, "20 records", 60)
            visits += 1
        return visits

    async with NumberedMember(consumer(), tasks=True) as resident:
        members.append(resident)
        async with numbers.trickling():
            await resident.has(100)
            coming_and_going = asyncio.create_task(come_and_go())
            for broker in kafka_cluster.brokers:
                await asyncio.to_thread(broker.stop)
                # What is led elsewhere now flows before the next one goes.
                await resident.has(len(resident.handled) + 100)
                await asyncio.to_thread(kafka_cluster.start)
                await resident.has(len(resident.handled) + 100)
            restarted = True
            visits = await coming_and_going
        written = await numbers.written()
        await until(
            lambda: len(handled_by(members)) >= written.total() or resident.failed,
            "all records are handled",
        )
        # A visitor that had handled all of its records leaves none to wait for.
        everything = frozenset(TopicPartition(topic, number) for number in range(6))
        await until(
            lambda: resident.consumer.assignment() == everything or resident.failed,
            "the resident is assigned what the last visitor had",
        )
    assert visits >= 1
    assert handled_by(members) == written
    assert not any(member.lost for member in members)
    assert await numbers.committed() == written.total()
