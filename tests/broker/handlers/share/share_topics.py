"""Topics and members of share groups on a broker with short locks."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING

from asyncrevoke import Consumer, Producer
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.configs import set_group_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.config import Acquire
    from asyncrevoke.journal import Journal

LOCK = 2.0
SHORT_LOCKS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(int(LOCK * 1000)),
    "group.share.min.heartbeat.interval.ms": "1000",
}


async def write(broker: RunningBroker, topic: str, count: int) -> None:
    """Write so many records with the values ``b"0"``, ``b"1"``, ..."""
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await asyncio.gather(
            *(producer.publish(topic, b"%d" % n, key=b"%d" % n) for n in range(count))
        )


async def queue(
    broker: RunningBroker,
    name: str,
    count: int,
    partitions: int = 1,
    options: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """A topic with so many records, and a share group of the same name that begins with them."""
    broker.create_topic(name, partitions)
    async with GroupsClient(ConsumerConfig(bootstrap_servers=broker.bootstrap_servers)) as brokers:
        values = {"share.auto.offset.reset": "earliest", **options}
        await set_group_options(brokers, name, values)
    await write(broker, name, count)


def member(
    broker: RunningBroker,
    group: str,
    concurrency: int = 64,
    max_in_flight: int | None = None,
    acquire: Acquire = "exact",
    journal: Journal | None = None,
) -> Consumer:
    """A consumer of a share group."""
    return Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        group_type="share",
        concurrency=concurrency,
        acquire=acquire,
        journal=journal,
        max_in_flight=2 * concurrency if max_in_flight is None else max_in_flight,
    )


async def until(condition: Callable[[], bool], within: float = 30.0) -> None:
    """Wait until this is true."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - what handlers count has no event
            await asyncio.sleep(0.02)


async def left(broker: RunningBroker, group: str, seconds: float = 1.0) -> list[bytes]:
    """The values that another member of the group gets. A member that has left has no locks."""
    values: list[bytes] = []
    consumer = member(broker, group)

    @consumer.handler(group)
    async def keep(value: bytes) -> None:
        values.append(value)

    async with consumer:
        await until(lambda: consumer.health().assigned > 0)
        await asyncio.sleep(seconds)
    return sorted(values)
