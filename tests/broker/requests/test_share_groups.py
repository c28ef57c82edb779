"""The core of a share group's consumer on Apache Kafka, beside a member of librdkafka."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from broker.kafka_release import kafka_release
from broker.requests.share_member import ShareMember

from asyncrevoke import Producer
from asyncrevoke.broker import KafkaBroker
from asyncrevoke.client.errors import InconsistentGroupError, UnsupportedVersionError
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.configs import set_group_options
from asyncrevoke.config import ConsumerConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.client.core.share.acquired_records import AcquiredRecord

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

HAS_SHARE_GROUPS = pytest.mark.skipif(
    kafka_release() < (4, 2), reason="needs Apache Kafka 4.2, which has share groups"
)
# Features, and the sentence, with the previews of share groups.
PREVIEWS: dict[tuple[int, int], list[tuple[dict[str, int], str]]] = {
    (4, 0): [({}, "does not offer ShareGroupHeartbeat, .* share groups need Apache Kafka 4.2")],
    (4, 1): [
        ({}, "share groups are disabled in the cluster"),
        (
            {"share.version": 1},
            "offers ShareFetch 1 to 1, .* share groups need Apache Kafka 4.2 or later",
        ),
    ],
}
LOCK = 2.0
SHORT_LOCKS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(int(LOCK * 1000)),
    "group.share.min.heartbeat.interval.ms": "1000",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(properties=SHORT_LOCKS) as broker:
        yield broker


async def begin_at_the_start(broker: KafkaBroker, group: str) -> None:
    """Let a new group read what is written before its first fetch of a partition too."""
    config = ConsumerConfig(bootstrap_servers=broker.bootstrap_servers)
    async with GroupsClient(config) as brokers:
        await set_group_options(brokers, group, {"share.auto.offset.reset": "earliest"})


async def write(broker: KafkaBroker, topic: str, count: int) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await asyncio.gather(
            *(producer.publish(topic, b"%d" % n, key=b"%d" % n) for n in range(count))
        )


async def work(member: ShareMember, seen: Counter[tuple[int, int]], seconds: float = 0.0) -> None:
    """Accept what is delivered until cancelled."""

    async def one(record: AcquiredRecord) -> None:
        if member.begin(record):
            seen[record.partition, record.offset] += 1
            await asyncio.sleep(seconds)
            member.accept(record)

    async with asyncio.TaskGroup() as calls:
        while True:
            for record in await member.records(1, within=1.0):
                calls.create_task(one(record))


async def until(seen: Counter[tuple[int, int]], count: int, within: float = 40.0) -> None:
    async with asyncio.timeout(within):
        while len(seen) < count:  # noqa: ASYNC110 - what is counted has no event
            await asyncio.sleep(0.02)


@HAS_SHARE_GROUPS
async def test_two_members_share_the_records_of_a_topic(broker: KafkaBroker) -> None:
    topic, servers = "shared", broker.bootstrap_servers
    broker.create_topic(topic, 3)
    seen: list[Counter[tuple[int, int]]] = [Counter(), Counter()]
    await begin_at_the_start(broker, topic)
    async with ShareMember(servers, topic, topic) as one, ShareMember(servers, topic, topic) as two:
        # Both have joined.
        await asyncio.gather(one.records(1, within=4.0), two.records(1, within=4.0))
        working = [
            asyncio.create_task(work(member, counts, 0.005))
            for member, counts in zip((one, two), seen, strict=True)
        ]
        await write(broker, topic, 3000)
        async with asyncio.timeout(40):
            while len(seen[0] | seen[1]) < 3000:  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.02)
        await one.idle()
        await two.idle()
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    assert max((seen[0] + seen[1]).values()) == 1
    assert all(seen)


@HAS_SHARE_GROUPS
async def test_locks_are_renewed_while_a_handler_takes_three_times_as_long(
    broker: KafkaBroker,
) -> None:
    topic = "slow"
    broker.create_topic(topic, 1)
    await begin_at_the_start(broker, topic)
    async with ShareMember(broker.bootstrap_servers, topic, topic) as member:
        await member.records(1, within=3.0)
        await write(broker, topic, 40)
        records = await member.records(40)
        assert all(member.begin(record) for record in records)
        await asyncio.sleep(3 * LOCK)
        assert all(member.accept(record) for record in records)
        await member.idle()
        assert await member.records(1, within=LOCK) == []
        assert "locks of acquired records are lost" not in member.events.names


@HAS_SHARE_GROUPS
async def test_records_of_a_killed_member_are_delivered_again_at_once(broker: KafkaBroker) -> None:
    topic, servers = "killed", broker.bootstrap_servers
    broker.create_topic(topic, 1)
    await begin_at_the_start(broker, topic)
    async with ShareMember(servers, topic, topic) as first:
        await first.records(1, within=3.0)
        await write(broker, topic, 10)
        taken = await first.records(10)
        async with ShareMember(servers, topic, topic) as other:
            assert await other.records(1, within=3.0) == []
            killed_at = time.monotonic()
            await first.kill()
            again = await other.records(10)
            assert time.monotonic() - killed_at < LOCK
            assert [r.offset for r in again] == [r.offset for r in taken]
            assert {other.core.delivery_count(record) for record in again} == {2}


@HAS_SHARE_GROUPS
async def test_a_group_of_another_type_is_named(broker: KafkaBroker) -> None:
    from asyncrevoke import Consumer

    topic = "typed"
    broker.create_topic(topic, 1)
    await write(broker, topic, 3)
    async with Consumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id="typed",
        auto_offset_reset="earliest",
    ) as consumer:
        await consumer.poll(timeout=10)
        async with ShareMember(broker.bootstrap_servers, "typed", topic) as member:
            with pytest.raises(InconsistentGroupError, match="is a group of another type"):
                await member.records(1, within=10.0)


@pytest.mark.parametrize(("features", "sentence"), PREVIEWS.get(kafka_release(), ()))
async def test_previews_of_share_groups_are_named(features: dict[str, int], sentence: str) -> None:
    with KafkaBroker(features=features) as broker:
        broker.create_topic("old", 1)
        async with ShareMember(broker.bootstrap_servers, "g", "old") as member:
            with pytest.raises(UnsupportedVersionError, match=sentence):
                await member.records(1, within=10.0)


@HAS_SHARE_GROUPS
async def test_disabled_share_groups_are_named() -> None:
    with KafkaBroker(features={"share.version": 0}) as broker:
        broker.create_topic("off", 1)
        async with ShareMember(broker.bootstrap_servers, "g", "off") as member:
            with pytest.raises(UnsupportedVersionError, match="share groups are disabled"):
                await member.records(1, within=10.0)
