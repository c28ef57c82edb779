"""Share groups of our members and those of other clients, which join and leave while records are
produced."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

import pytest
from broker.handlers.share.share_topics import member, queue, until
from chaos.environment.traffic import Traffic
from interop.share_members import OtherShareMember, Place, other_share_member

from asyncrevoke import Record  # noqa: TC001 - the handlers are annotated with it
from asyncrevoke.broker import KafkaBroker
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.share_groups import describe_share_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interop.share_members import Client, Mode

    from asyncrevoke import Consumer
    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(150)]

PARTITIONS = 3
RATE = 150.0
CONCURRENCY = 32
# Other clients send no heartbeat sooner, and are told by one what they are assigned.
HEARTBEATS = {
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(properties=HEARTBEATS) as broker:
        yield broker


class ShareGroup:
    """A topic that is written to all the time, and the members of its share group."""

    def __init__(self, broker: RunningBroker, name: str) -> None:
        self.broker, self.name = broker, name
        self.traffic = Traffic(broker.bootstrap_servers, name, RATE, random.Random(5))
        self.handled = Counter[Place]()
        # The highest count of deliveries of each record that was delivered to ours.
        self.delivered: dict[Place, int] = {}
        self.others: list[OtherShareMember] = []
        self._members = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await queue(self.broker, self.name, 0, partitions=PARTITIONS)
        self.traffic.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.traffic.pause()
        await self._members.aclose()

    def ours(self) -> Consumer:
        """A member of ours, to be entered."""
        consumer = member(self.broker, self.name, concurrency=CONCURRENCY)

        @consumer.handler(self.name)
        async def handle(record: Record) -> None:
            place = record.partition, record.offset
            assert record.value is not None
            assert record.delivery_count is not None
            self.delivered[place] = max(self.delivered.get(place, 0), record.delivery_count)
            await asyncio.sleep(float(record.value))
            self.handled[place] += 1

        return consumer

    async def join(self, client: Client, mode: Mode) -> OtherShareMember:
        """A member of another client, which has accepted records."""
        joined = await self._members.enter_async_context(
            other_share_member(client, mode, self.broker.bootstrap_servers, self.name, self.name)
        )
        self.others.append(joined)
        await until(lambda: len(joined.confirmed) > 50, within=60)
        return joined

    async def lag(self) -> int | None:
        """By the coordinator."""
        config = ConsumerConfig(bootstrap_servers=self.broker.bootstrap_servers)
        async with GroupsClient(config) as brokers:
            return (await describe_share_group(brokers, self.name)).lag

    async def finish(self) -> None:
        """Write nothing more, and wait until nothing is left."""
        await self.traffic.stop()
        async with asyncio.timeout(30):
            while await self.lag() != 0:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.2)

    @property
    def written(self) -> set[Place]:
        """What the producer got acknowledged."""
        return {(record.partition.partition, record.offset) for record in self.traffic.produced}


async def handled_by_each(group: ShareGroup, *modes: Mode) -> int:
    """Members of all clients join; then all leave but one of ours. Returns how many have left."""
    async with group.ours(), AsyncExitStack() as later:
        joining = [group.join(client, mode) for client in ("java", "confluent") for mode in modes]
        others = await asyncio.gather(*joining)
        before = len(group.handled)
        await later.enter_async_context(group.ours())
        await until(lambda: len(group.handled) > before + 50)
        for other in others:
            await other.leave()
    return len(others) + 2


def check_group(group: ShareGroup, left: int) -> None:
    """Each record was accepted once, and by a member; leaving alone counts further deliveries."""
    accepted = group.handled.copy()
    for other in group.others:
        accepted.update(other.confirmed)
        assert not other.refused
        # In both modes, what the last poll has returned is released.
        assert not other.unaccepted & other.confirmed.keys()
    assert accepted.keys() == group.written
    assert set(accepted.values()) == {1}
    deliveries = [group.delivered, *(other.delivered for other in group.others)]
    assert max(max(counts.values()) for counts in deliveries) <= 1 + left


async def test_members_of_three_clients_leave_no_record_behind(broker: KafkaBroker) -> None:
    async with ShareGroup(broker, "three") as group:
        left = await handled_by_each(group, "explicit")
        async with group.ours():
            await group.finish()
        check_group(group, left)
        assert set().union(*(other.unaccepted for other in group.others))


@pytest.mark.variant
async def test_members_that_join_and_leave_again_and_again_leave_no_record_behind(
    broker: KafkaBroker,
) -> None:
    async with ShareGroup(broker, "again") as group:
        left = 0
        for _ in range(4):
            left += await handled_by_each(group, "explicit", "implicit")
        async with group.ours():
            await group.finish()
        check_group(group, left)


@pytest.mark.parametrize(
    ("client", "mode"),
    [
        ("confluent", "implicit"),
        pytest.param("confluent", "explicit", marks=pytest.mark.variant),
        pytest.param("java", "implicit", marks=pytest.mark.variant),
        pytest.param("java", "explicit", marks=pytest.mark.variant),
    ],
)
async def test_what_another_client_has_not_accepted_comes_to_ours(
    broker: KafkaBroker, client: Client, mode: Mode
) -> None:
    async with ShareGroup(broker, f"{client}-{mode}") as group:
        other = await group.join(client, mode)
        await other.leave()
        async with group.ours():
            await group.finish()
        check_group(group, left=1)
        assert other.unaccepted
        assert other.unaccepted <= group.handled.keys()
        assert {group.delivered[place] for place in other.unaccepted} == {2}
