"""What aiokafka does on a server, one function for each capability that it has."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from broker.servers.programs.world import PARTITIONS, RECORDS, World, expect_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def consumer(world: World, *topics: str, **options: Any) -> Any:
    chosen: dict[str, Any] = {
        "bootstrap_servers": world.bootstrap,
        "group_id": world.group,
        "auto_offset_reset": "earliest",
        **options,
    }
    return AIOKafkaConsumer(*topics, **chosen)


async def read(member: Any, values: list[int], count: int, most: int | None = None) -> None:
    while len(values) < count:
        batches = await member.getmany(timeout_ms=300, max_records=most)
        values += [int(each.value) for batch in batches.values() for each in batch]


async def loop(world: World) -> None:
    topic = world.topic(records=RECORDS)
    values: list[int] = []
    async with consumer(world, topic) as member:
        await read(member, values, RECORDS)
    expect_all(values, range(RECORDS))


async def two_members(world: World) -> None:
    topic = world.topic()
    values: list[int] = []

    async def poll(member: Any) -> None:
        while True:
            await read(member, values, len(values) + 1)

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - of the members
            await asyncio.sleep(0.05)

    half = PARTITIONS // 2
    first, second = consumer(world, topic), consumer(world, topic)
    async with first:
        polling = [asyncio.create_task(poll(first))]
        await until(lambda: len(first.assignment()) == PARTITIONS)
        async with second:
            polling.append(asyncio.create_task(poll(second)))
            await until(lambda: len(first.assignment()) == len(second.assignment()) == half)
            await asyncio.to_thread(world.produce, topic, range(RECORDS))
            await until(lambda: len(values) >= RECORDS)
            polling[1].cancel()
        await until(lambda: len(first.assignment()) == PARTITIONS)
        await asyncio.to_thread(world.produce, topic, range(RECORDS, 2 * RECORDS))
        await until(lambda: len(values) >= 2 * RECORDS)
        polling[0].cancel()
    expect_all(values, range(2 * RECORDS))


async def restart(world: World, **options: Any) -> None:
    topic = world.topic(records=RECORDS)
    values: list[int] = []
    async with consumer(world, topic, **options) as member:
        await read(member, values, RECORDS // 2, most=10)
    async with consumer(world, topic, **options) as member:
        await read(member, values, RECORDS)
    expect_all(values, range(RECORDS))


async def static_member(world: World) -> None:
    await restart(world, group_instance_id="only")


async def seek_by_time(world: World) -> None:
    topic = world.topic()
    now = int(time.time() * 1000)
    world.produce(topic, range(RECORDS), timestamp=now - 3_600_000)
    world.produce(topic, range(RECORDS, 2 * RECORDS), timestamp=now - 60_000)
    values: list[int] = []
    async with consumer(world, topic, enable_auto_commit=False) as member:
        while len(member.assignment()) < PARTITIONS:  # noqa: ASYNC110 - of the member
            await asyncio.sleep(0.05)
        owned = member.assignment()
        found = await member.offsets_for_times(dict.fromkeys(owned, now - 600_000))
        for partition, at in found.items():
            assert at is not None, "no offset for a time with records after it"
            member.seek(partition, at.offset)
        await read(member, values, RECORDS)
    expect_all(values, range(RECORDS, 2 * RECORDS))


async def pattern(world: World) -> None:
    values: list[int] = []
    world.topic("a", records=RECORDS)
    member = consumer(world, metadata_max_age_ms=1000)
    member.subscribe(pattern=f"^(a|b)-{re.escape(world.name)}$")
    async with member:
        await read(member, values, RECORDS)
        await asyncio.to_thread(lambda: world.topic("b", records=RECORDS))
        await read(member, values, 2 * RECORDS)
    expect_all(values[RECORDS:], range(RECORDS))


async def results(world: World) -> None:
    out = world.topic("out")
    async with AIOKafkaProducer(
        bootstrap_servers=world.bootstrap, enable_idempotence=True
    ) as producer:
        sent: list[Any] = [await producer.send(out, b"%d" % number) for number in range(RECORDS)]
        await asyncio.gather(*sent)
    expect_all(await asyncio.to_thread(world.values, out, RECORDS), range(RECORDS))


async def topics(world: World) -> None:
    name = f"made-{world.name}"
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=world.bootstrap)
    await admin.start()
    try:
        made = await admin.create_topics([NewTopic(name, 3, 1)])
        errors = [topic_error[1] for topic_error in made.topic_errors]
        assert errors == [0], f"error {errors}"
        found: Any = {"partitions": ()}
        while len(found["partitions"]) < 3:  # another broker may not know the topic yet
            (found,) = await admin.describe_topics([name])
    finally:
        await admin.close()


async def groups(world: World) -> None:
    topic = world.topic(records=RECORDS)
    values: list[int] = []
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=world.bootstrap)
    await admin.start()
    try:
        async with consumer(world, topic) as member:
            await read(member, values, RECORDS)
            (described,) = await admin.describe_consumer_groups([world.group])
            (found,) = described.groups
            assert found[2] == "Stable", found
        assert world.group in [group[0] for group in await admin.list_consumer_groups()]
    finally:
        await admin.close()


CAPABILITIES: dict[str, Callable[[World], Awaitable[None]]] = {
    "loop": loop,
    "two_members": two_members,
    "restart": restart,
    "seek_by_time": seek_by_time,
    "pattern": pattern,
    "static_member": static_member,
    "results": results,
    "topics": topics,
    "groups": groups,
}
