"""What asyncrevoke does on a server, one function for each capability."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from broker.servers.programs.world import PARTITIONS, RECORDS, SESSION_TIMEOUT, World, expect_all

from asyncrevoke import Consumer, HandlerContext, Record, Retry, RetryTopic, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

OPTIONS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "session_timeout": SESSION_TIMEOUT,
    "close_timeout": 10.0,
}


def consumer(world: World, *topics: str, **options: Any) -> Consumer:
    chosen: dict[str, Any] = {"group_id": world.group, **OPTIONS, **options}
    if chosen.get("group_protocol") == "consumer":
        del chosen["session_timeout"]  # it is the broker's
    return Consumer(*topics, bootstrap_servers=world.bootstrap, **chosen)


async def read(member: Consumer, values: list[int], count: int) -> None:
    """Poll until ``values`` has ``count``."""
    while len(values) < count:
        batch = await member.poll(timeout=0.5)
        values += [int(record.value or b"") for record in batch.records]


async def read_and_end(member: Consumer, values: list[int], count: int) -> None:
    """Iterate until ``values`` has ``count``; all of them are done then, and committed."""
    async for batch in member:
        values += [int(record.value or b"") for record in batch.records]
        if len(values) >= count:
            member.stop()


async def loop(world: World, **options: Any) -> None:
    topic = world.topic(records=RECORDS)
    values: list[int] = []
    async with consumer(world, topic, **options) as member:
        await read(member, values, RECORDS)
    expect_all(values, range(RECORDS))


async def kip848(world: World) -> None:
    await loop(world, group_protocol="consumer")


async def auto(world: World) -> None:
    await loop(world, group_protocol="auto")


async def two_members(world: World) -> None:
    topic = world.topic()
    values: list[int] = []
    stopped = asyncio.Event()

    async def poll(member: Consumer, until: asyncio.Event) -> None:
        while not until.is_set():
            batch = await member.poll(timeout=0.2)
            values.extend(int(record.value or b"") for record in batch.records)

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - of the members
            await asyncio.sleep(0.05)

    half = PARTITIONS // 2
    async with consumer(world, topic) as first, asyncio.TaskGroup() as tasks:
        ended = asyncio.Event()
        tasks.create_task(poll(first, ended))
        await until(lambda: len(first.assignment()) == PARTITIONS)
        async with consumer(world, topic) as second:
            polling = tasks.create_task(poll(second, stopped))
            await until(lambda: len(first.assignment()) == len(second.assignment()) == half)
            await asyncio.to_thread(world.produce, topic, range(RECORDS))
            await until(lambda: len(values) >= RECORDS)
            stopped.set()
            await polling
        begun = time.monotonic()
        await until(lambda: len(first.assignment()) == PARTITIONS)
        took = time.monotonic() - begun
        await asyncio.to_thread(world.produce, topic, range(RECORDS, 2 * RECORDS))
        await until(lambda: len(values) >= 2 * RECORDS)
        ended.set()
    expect_all(values, range(2 * RECORDS))
    assert took < 20, f"the group noticed after {took:.0f} s that a member had left"


async def restart(world: World) -> None:
    topic = world.topic(records=RECORDS)
    values: list[int] = []
    for wanted in (RECORDS // 2, RECORDS):
        async with consumer(world, topic, max_poll_records=10) as member:
            await read_and_end(member, values, wanted)
    expect_all(values, range(RECORDS))


async def seek_by_time(world: World) -> None:
    topic = world.topic()
    now = int(time.time() * 1000)
    world.produce(topic, range(RECORDS), timestamp=now - 3_600_000)
    world.produce(topic, range(RECORDS, 2 * RECORDS), timestamp=now - 60_000)
    values: list[int] = []
    async with consumer(world, topic, commit_mode="manual") as member:
        owned = await member.wait_for_assignment()
        found = await member.offsets_for_times(dict.fromkeys(owned, now - 600_000))
        for partition, at in found.items():
            assert at is not None, "no offset for a time with records after it"
            member.seek(partition, at.offset)
        await read(member, values, RECORDS)
    expect_all(values, range(RECORDS, 2 * RECORDS))


async def pattern(world: World) -> None:
    matched = re.compile(f"(a|b)-{world.name}")
    values: list[int] = []
    world.topic("a", records=RECORDS)
    member = consumer(world, metadata_max_age=1.0)
    member.subscribe(pattern=matched)
    async with member:
        await read(member, values, RECORDS)
        expect_all(values, range(RECORDS))
        await asyncio.to_thread(lambda: world.topic("b", records=RECORDS))
        await read(member, values, 2 * RECORDS)
    expect_all(values[RECORDS:], range(RECORDS))


async def static_member(world: World) -> None:
    topic = world.topic(records=RECORDS)
    values: list[int] = []
    for wanted in (RECORDS // 2, RECORDS):
        async with consumer(world, topic, group_instance_id="only", max_poll_records=10) as member:
            await read_and_end(member, values, wanted)
    expect_all(values, range(RECORDS))


# --- handlers -----------------------------------------------------------------------------------


async def handle(
    member: Consumer, done: Callable[[], bool], work: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Run until ``done``."""
    running = asyncio.create_task(member.run())
    try:
        while not done() and not running.done():  # noqa: ASYNC110 - of the handlers
            await asyncio.sleep(0.05)
        if work is not None:
            await work()
    finally:
        member.stop()
        await running


async def committed(member: Consumer, topic: str) -> int:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found = await member.committed(*places)
    return sum(candidate.offset for candidate in found.values() if candidate is not None)


async def handlers(world: World) -> None:
    topic = world.topic(records=RECORDS)
    values: list[int] = []
    member = consumer(world, concurrency=16, order_by="key")

    @member.handler(topic)
    async def take(record: Record) -> None:
        await asyncio.sleep(0.01)
        values.append(int(record.value or b""))

    await handle(member, lambda: len(values) >= RECORDS)
    expect_all(values, range(RECORDS))
    async with consumer(world) as looker:
        found = await committed(looker, topic)
        assert found == RECORDS, f"{found} of {RECORDS} records are committed"


async def results(world: World) -> None:
    topic, out = world.topic(records=RECORDS), world.topic("out")
    handled: list[int] = []
    member = consumer(world)

    @member.handler(topic, publish_to=out)
    async def take(record: Record) -> bytes:
        handled.append(record.offset)
        return record.value or b""

    await handle(member, lambda: len(handled) >= RECORDS)
    expect_all(await asyncio.to_thread(world.values, out, RECORDS), range(RECORDS))


async def retry_topic(world: World) -> None:
    topic, again, dead = world.topic(records=RECORDS), world.topic("again"), world.topic("dead")
    handled: set[int] = set()
    given_up: list[int] = []
    member = consumer(world)

    @member.handler(
        topic,
        retry=Retry(attempts=1),
        retry_topic=RetryTopic(again, delay=0.5, attempts=2),
        dead_letter=dead,
    )
    async def take(record: Record, context: HandlerContext) -> None:
        value = int(record.value or b"")
        # Of ten records one is handled at its third call, and one never.
        if value % 10 == 0 or (value % 10 == 1 and context.attempt < 3):
            if value % 10 == 0 and context.attempt == 3:
                given_up.append(value)
            raise ValueError(value)
        handled.add(value)

    tenth = RECORDS // 10
    await handle(member, lambda: len(handled) >= RECORDS - tenth and len(given_up) >= tenth)
    letters = await asyncio.to_thread(world.values, dead, tenth)
    expect_all(sorted(letters), range(0, RECORDS, 10))


async def completion_map(world: World) -> None:
    """Of a member that is killed while one handler runs, only the record of that one repeats."""
    topic = world.topic(partitions=1, records=RECORDS)
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "broker.servers.programs.killed_member", world.bootstrap, topic),
        stdout=asyncio.subprocess.PIPE,
    )
    assert victim.stdout is not None
    place = TopicPartition(topic, 0)
    try:
        first = {int(await victim.stdout.readline()) for _ in range(RECORDS)}
        async with consumer(world, group_id=topic) as looker:
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                found = (await looker.committed(place))[place]
                if found is not None and found.metadata:
                    break
                await asyncio.sleep(0.2)
    finally:
        victim.kill()
        await victim.wait()
    await asyncio.to_thread(world.produce, topic, range(RECORDS, RECORDS + 1), partition=0)
    handled: list[int] = []
    member = consumer(world, group_id=topic, group_instance_id="only", order_by=None)

    @member.handler(topic)
    async def take(record: Record) -> None:
        handled.append(record.offset)

    await handle(member, lambda: RECORDS in handled)
    repeated = first & set(handled)
    assert first | set(handled) == set(range(RECORDS + 1)), "records were not handled"
    assert repeated == {0}, f"{len(repeated)} of {RECORDS} records were repeated after the kill"


# --- the command line ---------------------------------------------------------------------------


async def command(world: World, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "asyncrevoke", *arguments),
        *("--bootstrap-servers", world.bootstrap),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0, f"asyncrevoke {arguments[0]}: {printed.strip()[-300:]}"
    return printed


async def topics_command(world: World) -> None:
    name = f"made-{world.name}"
    await command(world, "topics", "create", name, "--partitions", "3")
    async with consumer(world, allow_missing_topics=True) as member:
        assert len(await member.partitions_for_topic(name)) == 3


async def groups_command(world: World) -> None:
    topic = world.topic(records=RECORDS)
    values: list[int] = []
    async with consumer(world, topic, commit_interval=0.2) as member:
        await read(member, values, RECORDS)
        await member.poll(timeout=0.5)
        printed = await command(world, "groups", world.group)
        assert topic in printed, printed
        assert "Stable" in printed, printed
    printed = await command(world, "groups")
    assert world.group in printed, printed


CAPABILITIES: dict[str, Callable[[World], Awaitable[None]]] = {
    "loop": loop,
    "two_members": two_members,
    "restart": restart,
    "seek_by_time": seek_by_time,
    "pattern": pattern,
    "static_member": static_member,
    "handlers": handlers,
    "results": results,
    "retry_topic": retry_topic,
    "completion_map": completion_map,
    "kip848": kip848,
    "auto": auto,
    "topics": topics_command,
    "groups": groups_command,
}
