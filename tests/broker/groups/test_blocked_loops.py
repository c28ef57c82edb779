"""A member whose event loop is blocked for longer than its session, on a real broker."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import TYPE_CHECKING

import pytest
from broker.groups.blocked_member import (
    SESSION,
    BlockedMember,
    blocked_once,
    compute,
    sleep,
    threads,
)
from broker.records.numbered_records import DEADLINE, NumberedMember, Numbers, until

from asyncrevoke import Consumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.broker import KafkaCluster, RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


@pytest.fixture
def numbers(kafka_broker: RunningBroker, kafka_topic: str) -> Numbers:
    address = kafka_broker.bootstrap_servers
    return Numbers(address, address, kafka_topic, partitions=4)


@pytest.mark.parametrize("block", [sleep, compute])
async def test_the_heartbeat_thread_keeps_a_blocked_member_in_the_group(
    numbers: Numbers, block: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "asyncrevoke"):
        member = await blocked_once(numbers, block)
    assert not member.lost
    assert len(member.members) == 1
    assert member.handled == await numbers.written()
    assert await numbers.committed() == 80
    blocked = [r.getMessage() for r in caplog.records if "event loop blocked" in r.getMessage()]
    (here,) = [line for line in blocked if block.__name__ in line]
    assert "blocked_member.py:" in here
    assert not threads()


async def test_without_the_heartbeat_thread_a_blocked_member_is_removed_and_records_repeat(
    numbers: Numbers,
) -> None:
    member = await blocked_once(numbers, sleep, heartbeat_thread=False)
    assert member.lost
    assert len(member.members) == 2
    assert set(member.handled) == set(await numbers.written())


async def test_the_heartbeat_thread_stops_at_max_poll_interval(
    numbers: Numbers,
) -> None:
    member = await blocked_once(
        numbers, lambda: time.sleep(6.0), session_timeout=2.0, max_poll_interval=3.0
    )
    assert member.lost
    assert len(member.members) == 2


async def test_a_rebalance_while_a_member_is_blocked_loses_and_repeats_nothing(
    numbers: Numbers,
) -> None:
    async with BlockedMember(numbers) as member:
        await numbers.send(20)
        await until(lambda: member.handled.total() >= 20, "the first records are handled")
        member.block()
        await numbers.send(4)
        await until(member.blocked.is_set, "its loop is blocked")
        other = numbers.consumer(session_timeout=SESSION, heartbeat_interval=0.5)
        async with NumberedMember(other) as second:
            # It waits for the blocked one, longer than the session of that lasts.
            await asyncio.sleep(1.5 * SESSION)
            assert not other.assignment()
            member.release()
            await until(lambda: len(other.assignment()) == 2, "the partitions are shared")
            await numbers.send(40)
            await until(
                lambda: len(member.handled) + len(second.handled) >= 64, "all records are handled"
            )
    assert not member.lost
    assert len(member.members) == 1
    assert member.handled + second.handled == await numbers.written()


async def test_a_blocked_member_stays_in_the_group_when_the_coordinator_moves(
    kafka_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"numbers-{uuid.uuid4().hex[:8]}"
    kafka_cluster.create_topic(topic, 6)
    address = kafka_cluster.bootstrap_servers
    numbers = Numbers(address, address, topic, partitions=6)
    async with BlockedMember(numbers, session_timeout=10.0) as member:
        await numbers.send(30)
        await until(lambda: member.handled.total() >= 30, "the first records are handled")
        member.block()
        await numbers.send(6)
        await until(member.blocked.is_set, "its loop is blocked")
        (gone,) = (
            broker
            for broker in kafka_cluster.brokers
            if broker.bootstrap_servers == member.coordinator
        )
        try:
            with caplog.at_level(logging.INFO, "asyncrevoke"):
                await asyncio.to_thread(gone.stop)
                await until(lambda: "blocked" in caplog.text, "the thread has taken over")
                numbers.around = ",".join(
                    broker.bootstrap_servers
                    for broker in kafka_cluster.brokers
                    if broker is not gone
                )
                await coordinated_by_another(numbers, gone.bootstrap_servers)
                # Several heartbeats of the thread go to the old one.
                await asyncio.sleep(2.0)
                member.release()
                await until(member.runs_again.is_set, "its loop runs again")
                await numbers.send(30)
                await until(lambda: len(member.handled) >= 66, "all records are handled")
        finally:
            await asyncio.to_thread(kafka_cluster.start)
    assert not member.lost
    assert len(member.members) == 1
    assert member.handled == await numbers.written()
    assert "heartbeat from the thread failed; sending one from the event loop" in caplog.text


async def coordinated_by_another(numbers: Numbers, gone: str) -> None:
    """Wait until the brokers that are left name another coordinator, and it responds."""
    looker = Consumer(bootstrap_servers=numbers.around, group_id=numbers.group)
    async with looker, asyncio.timeout(DEADLINE):
        while looker.health().coordinator in (None, gone):
            await looker.committed(TopicPartition(numbers.topic, 0))
