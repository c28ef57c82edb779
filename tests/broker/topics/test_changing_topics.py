"""Topics that change while a group reads them, and a leader that restarts, on a real Kafka."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Literal

import pytest
from broker.records.numbered_records import DEADLINE, NumberedMember, Numbers, until

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(90),
    pytest.mark.kafka_topic(partitions=4),
]

Protocol = Literal["classic", "consumer"]
BOTH_PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture
def numbers(kafka_broker: RunningBroker, kafka_topic: str) -> Numbers:
    address = kafka_broker.bootstrap_servers
    return Numbers(address, address, kafka_topic, 4)


async def add_partitions(broker: RunningBroker, numbers: Numbers, count: int) -> None:
    await asyncio.to_thread(broker.add_partitions, numbers.topic, count)
    numbers.partitions = count


async def create_again(broker: RunningBroker, numbers: Numbers) -> None:
    await asyncio.to_thread(broker.delete_topic, numbers.topic)
    await asyncio.to_thread(broker.create_topic, numbers.topic, numbers.partitions)
    # For a moment the broker still responds for the former one.
    async with asyncio.timeout(DEADLINE):
        while await numbers.written():  # noqa: ASYNC110 - of a broker
            await asyncio.sleep(0.05)


def share(*members: NumberedMember) -> list[int]:
    return sorted(tp.partition for m in members if not m.failed for tp in m.consumer.assignment())


def have_positions(*members: NumberedMember) -> bool:
    consumers = [member.consumer for member in members]
    return all(
        consumer.position(tp) is not None for consumer in consumers for tp in consumer.assignment()
    )


@BOTH_PROTOCOLS
@pytest.mark.parametrize("reset", ["earliest", "latest"])
async def test_added_partitions_are_read_from_their_beginning(
    numbers: Numbers,
    kafka_broker: RunningBroker,
    protocol: Protocol,
    reset: Literal["earliest", "latest"],
) -> None:
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(
                NumberedMember(
                    numbers.consumer(
                        group_protocol=protocol,
                        auto_offset_reset=reset,
                        metadata_max_age=1.0,
                    )
                )
            )
            for _ in range(2)
        ]
        await until(lambda: share(one, two) == [0, 1, 2, 3], "a group of two")
        await until(lambda: have_positions(one, two), "positions")
        await numbers.send(20)
        await add_partitions(kafka_broker, numbers, 8)
        # Written before anybody has heard of the new ones.
        await numbers.send(40)
        await until(lambda: share(one, two) == list(range(8)), "the new partitions have owners")
        everything = await numbers.written()
        await until(lambda: one.handled + two.handled == everything, "each record once")
        assert one.lost == two.lost == set()


@BOTH_PROTOCOLS
async def test_a_topic_created_again_is_read_from_its_beginning_with_earliest(
    numbers: Numbers, kafka_broker: RunningBroker, protocol: Protocol
) -> None:
    async with NumberedMember(
        numbers.consumer(group_protocol=protocol, auto_offset_reset="earliest")
    ) as member:
        await until(lambda: share(member) == [0, 1, 2, 3], "all partitions")
        await numbers.send(40)
        await member.has_all(numbers)
        # A commit names its topic: one that came after the topic was there again would count.
        await member.consumer.commit()
        await create_again(kafka_broker, numbers)
        member.handled.clear()
        # More than there were: an offset of the topic that is gone would skip some.
        await numbers.send(80)
        everything = await numbers.written()
        assert everything.total() == 80
        await until(lambda: member.handled == everything, "each new record once")
        # A coordinator that assigns may have asked for the old ones back before they are missed.
        if protocol == "classic":
            assert {tp.partition for tp in member.lost} == {0, 1, 2, 3}
    assert await numbers.committed() == 80


@BOTH_PROTOCOLS
async def test_a_topic_created_again_is_read_from_its_end_with_latest(
    numbers: Numbers, kafka_broker: RunningBroker, protocol: Protocol
) -> None:
    async with NumberedMember(
        numbers.consumer(group_protocol=protocol, auto_offset_reset="latest")
    ) as member:
        await until(lambda: share(member) == [0, 1, 2, 3], "all partitions")
        while len({partition for partition, _ in member.handled}) < 4:
            await numbers.send(4)
        await member.consumer.commit()
        await create_again(kafka_broker, numbers)
        member.handled.clear()
        while member.handled.total() < 40:  # what comes before the reset is skipped
            await numbers.send(4)
        everything = await numbers.written()
        assert all(count == 1 for count in member.handled.values())
        assert not member.handled - everything


async def test_a_static_leader_restarts_without_a_rebalance(
    numbers: Numbers, kafka_broker: RunningBroker
) -> None:
    def leading() -> NumberedMember:
        return NumberedMember(numbers.consumer(group_instance_id="leader", metadata_max_age=1.0))

    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(leading())
        await until(lambda: share(leader) == [0, 1, 2, 3], "all partitions")
        other = await stack.enter_async_context(NumberedMember(numbers.consumer()))
        await until(lambda: len(share(leader)) == len(share(other)) == 2, "a group of two")
        await numbers.send(20)
        await until(lambda: (leader.handled + other.handled).total() == 20, "20 records")
        held = leader.consumer.assignment()
        generation = other.consumer.group_metadata().generation
        await leader.stop()
        again = await stack.enter_async_context(leading())
        await until(lambda: again.consumer.assignment() == held, "the same share")
        await numbers.send(20)
        everything = await numbers.written()
        await until(
            lambda: leader.handled + other.handled + again.handled == everything,
            "each record once",
        )
        assert other.consumer.group_metadata().generation == generation
        assert again.consumer.group_metadata().generation == generation
        # It leads again: who watches the metadata notices partitions that are added.
        await add_partitions(kafka_broker, numbers, 6)
        await until(lambda: share(again, other) == list(range(6)), "the new ones have owners")
