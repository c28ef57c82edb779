"""Handlers of a share group on Apache Kafka: what is accepted, and what another member gets."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from asyncrevoke import Consumer, Producer, Record
from asyncrevoke.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

LOCK = 2.0


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    properties = {
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": str(int(LOCK * 1000)),
        "group.share.min.heartbeat.interval.ms": "1000",
    }
    with KafkaBroker(properties=properties) as broker:
        yield broker


async def write(broker: KafkaBroker, topic: str, count: int, first: int = 0) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await asyncio.gather(
            *(producer.publish(topic, b"%d" % n, key=b"%d" % n) for n in range(first, count))
        )


async def until(seen: Counter[bytes], count: int, within: float = 30.0) -> None:
    async with asyncio.timeout(within):
        while len(seen) < count:  # noqa: ASYNC110 - what handlers count has no event
            await asyncio.sleep(0.02)


async def joined(consumer: Consumer, partitions: int) -> None:
    async with asyncio.timeout(15):
        while consumer.health().assigned < partitions:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.05)


async def test_two_members_handle_each_record_once(broker: KafkaBroker) -> None:
    topic = "once"
    broker.create_topic(topic, 2)
    seen = Counter[bytes]()

    def member() -> Consumer:
        consumer = Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id=topic, group_type="share"
        )

        @consumer.handler(topic)
        async def handle(record: Record) -> None:
            assert record.delivery_count == 1
            await asyncio.sleep(0.005)
            assert record.value is not None
            seen[record.value] += 1

        return consumer

    async with member() as one, member() as two:
        await joined(one, 1)
        await joined(two, 1)
        # The first fetch of a partition sets where a new group begins.
        await asyncio.sleep(0.5)
        await write(broker, topic, 1000)
        await until(seen, 1000)
    async with member() as three:
        await joined(three, 2)
        await asyncio.sleep(LOCK + 1)
    assert len(seen) == 1000
    assert max(seen.values()) == 1


async def test_stopping_ends_running_calls_and_releases_what_has_not_started(
    broker: KafkaBroker,
) -> None:
    topic = "stop"
    broker.create_topic(topic, 1)
    began, ended = Counter[bytes](), Counter[bytes]()
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=topic,
        group_type="share",
        concurrency=4,
    )

    @consumer.handler(topic)
    async def slow(value: bytes) -> None:
        began[value] += 1
        await asyncio.sleep(LOCK * 1.5)
        ended[value] += 1

    async with consumer:
        await joined(consumer, 1)
        await asyncio.sleep(0.5)
        await write(broker, topic, 20)
        await until(began, 4)
    assert began == ended
    assert len(ended) == 4
    other = Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=topic, group_type="share")
    again = Counter[bytes]()

    @other.handler(topic)
    async def fast(value: bytes) -> None:
        again[value] += 1

    async with other:
        await until(again, 16)
        await asyncio.sleep(LOCK + 0.5)
    assert not again.keys() & ended.keys()
    assert max(again.values()) == 1
