"""Members of a consumer group (KIP-848) whose event loop is blocked for longer than the session of
a real broker."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from broker.groups.blocked_member import BlockedMember, blocked_once
from broker.records.numbered_records import NumberedMember, Numbers, until

from asyncrevoke.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

SESSION = 4.0
SHORT = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": f"{SESSION * 1000:.0f}",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


def sleep() -> None:
    time.sleep(1.4 * SESSION)


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """Its sessions are short: a member's are what the broker says."""
    with KafkaBroker(quick=True, properties=SHORT) as broker:
        yield broker


@pytest.fixture
def numbers(broker: KafkaBroker) -> Numbers:
    topic = f"numbers-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 4)
    address = broker.bootstrap_servers
    return Numbers(address, address, topic, partitions=4)


async def test_the_heartbeat_thread_keeps_a_blocked_member_in_the_group(
    numbers: Numbers,
) -> None:
    member = await blocked_once(numbers, sleep, group_protocol="consumer")
    assert not member.lost
    assert member.handled == await numbers.written()
    assert await numbers.committed() == 80


async def test_without_the_heartbeat_thread_a_blocked_member_is_removed_and_records_repeat(
    numbers: Numbers,
) -> None:
    member = await blocked_once(numbers, sleep, group_protocol="consumer", heartbeat_thread=False)
    assert member.lost
    assert set(member.handled) == set(await numbers.written())


async def test_a_member_that_joins_while_another_is_blocked_waits_and_no_record_repeats(
    numbers: Numbers,
) -> None:
    async with BlockedMember(numbers, group_protocol="consumer") as member:
        await numbers.send(20)
        await until(lambda: member.handled.total() >= 20, "the first records are handled")
        member.block()
        await numbers.send(4)
        await until(member.blocked.is_set, "its loop is blocked")
        other = numbers.consumer(group_protocol="consumer")
        async with NumberedMember(other) as second:
            # The coordinator wants two partitions back, by the thread's heartbeats.
            await asyncio.sleep(1.5 * SESSION)
            assert not other.assignment()
            member.release()
            await until(lambda: len(other.assignment()) == 2, "the partitions are shared")
            await numbers.send(40)
            await until(
                lambda: len(member.handled) + len(second.handled) >= 64, "all records are handled"
            )
    assert not member.lost
    assert member.handled + second.handled == await numbers.written()


async def test_partitions_assigned_to_a_blocked_member_are_read_once_it_continues(
    numbers: Numbers,
) -> None:
    member = BlockedMember(numbers, group_protocol="consumer")
    others = [numbers.consumer(group_protocol="consumer") for _ in range(3)]
    members = [NumberedMember(other) for other in others]

    def handled() -> int:
        return len(member.handled) + sum(len(each.handled) for each in members)

    async with member:
        async with AsyncExitStack() as stack:
            for each in members:
                await stack.enter_async_context(each)
            await until(lambda: all(len(o.assignment()) == 1 for o in others), "one each")
            await numbers.send(20)
            await until(lambda: handled() == 20, "the first records are handled")
            member.block()
            await numbers.send(4)
            await until(member.blocked.is_set, "its loop is blocked")
            # Each that leaves moves the epoch on, and the blocked member is given what it had.
            for each in members:
                await each.stop()
                await asyncio.sleep(0.5 * SESSION)
        member.release()
        await numbers.send(20)
        await until(lambda: handled() == 44, "all records are handled")
    assert not member.lost
    assert sum((each.handled for each in members), member.handled) == await numbers.written()
