"""What confluent-kafka does on a server, one function for each capability that it has."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from broker.servers.programs.world import (
    DEADLINE,
    PARTITIONS,
    RECORDS,
    SESSION_TIMEOUT,
    World,
    expect_all,
)
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from collections.abc import Callable


def consumer(world: World, **options: Any) -> Any:
    if "group.protocol" not in options:
        options["session.timeout.ms"] = int(SESSION_TIMEOUT * 1000)
    return Consumer(
        {
            "bootstrap.servers": world.bootstrap,
            "group.id": world.group,
            "auto.offset.reset": "earliest",
            **options,
        }
    )


def poll(member: Any, values: list[int], most: int = 100) -> None:
    read = member.consume(most, 0.2)
    values.extend(int(message.value()) for message in read if not message.error())


def until(condition: Callable[[], bool], step: Callable[[], None]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "nothing more happened"
        step()


def loop(world: World, **options: Any) -> None:
    topic = world.topic(records=RECORDS)
    values: list[int] = []
    member = consumer(world, **options)
    member.subscribe([topic])
    until(lambda: len(values) >= RECORDS, lambda: poll(member, values))
    member.close()
    expect_all(values, range(RECORDS))


def kip848(world: World) -> None:
    loop(world, **{"group.protocol": "consumer"})


def two_members(world: World) -> None:
    topic = world.topic()
    values: list[int] = []
    options = {"partition.assignment.strategy": "cooperative-sticky"}
    first, second = consumer(world, **options), consumer(world, **options)
    half = PARTITIONS // 2

    def both() -> None:
        poll(first, values)
        poll(second, values)

    first.subscribe([topic])
    until(lambda: len(first.assignment()) == PARTITIONS, lambda: poll(first, values))
    second.subscribe([topic])
    until(lambda: len(first.assignment()) == len(second.assignment()) == half, both)
    world.produce(topic, range(RECORDS))
    until(lambda: len(values) >= RECORDS, both)
    second.close()
    until(lambda: len(first.assignment()) == PARTITIONS, lambda: poll(first, values))
    world.produce(topic, range(RECORDS, 2 * RECORDS))
    until(lambda: len(values) >= 2 * RECORDS, lambda: poll(first, values))
    first.close()
    expect_all(values, range(2 * RECORDS))


def restart(world: World, **options: Any) -> None:
    topic = world.topic(records=RECORDS)
    values: list[int] = []
    for wanted, most in ((RECORDS // 2, 10), (RECORDS, 100)):
        member = consumer(world, **options)
        member.subscribe([topic])
        until(lambda: len(values) >= wanted, lambda: poll(member, values, most))  # noqa: B023
        member.close()
    expect_all(values, range(RECORDS))


def static_member(world: World) -> None:
    restart(world, **{"group.instance.id": "only"})


def seek_by_time(world: World) -> None:
    topic = world.topic()
    now = int(time.time() * 1000)
    world.produce(topic, range(RECORDS), timestamp=now - 3_600_000)
    world.produce(topic, range(RECORDS, 2 * RECORDS), timestamp=now - 60_000)
    values: list[int] = []
    member = consumer(world)
    times = [TopicPartition(topic, number, now - 600_000) for number in range(PARTITIONS)]
    member.assign(member.offsets_for_times(times, timeout=20))
    until(lambda: len(values) >= RECORDS, lambda: poll(member, values))
    member.close()
    expect_all(values, range(RECORDS, 2 * RECORDS))


def pattern(world: World) -> None:
    values: list[int] = []
    world.topic("a", records=RECORDS)
    member = consumer(world, **{"topic.metadata.refresh.interval.ms": 1000})
    member.subscribe([f"^(a|b)-{re.escape(world.name)}$"])
    until(lambda: len(values) >= RECORDS, lambda: poll(member, values))
    world.topic("b", records=RECORDS)
    until(lambda: len(values) >= 2 * RECORDS, lambda: poll(member, values))
    member.close()
    expect_all(values[RECORDS:], range(RECORDS))


def results(world: World) -> None:
    out = world.topic("out")
    producer = Producer({"bootstrap.servers": world.bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(out, b"%d" % number)
    assert producer.flush(20) == 0, "the records were not produced"
    expect_all(world.values(out, RECORDS), range(RECORDS))


def topics(world: World) -> None:
    name = f"made-{world.name}"
    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    admin.create_topics([NewTopic(name, 3, 1)], request_timeout=20)[name].result()
    assert len(admin.list_topics(name, timeout=20).topics[name].partitions) == 3


def groups(world: World) -> None:
    topic = world.topic(records=RECORDS)
    values: list[int] = []
    admin: Any = AdminClient({"bootstrap.servers": world.bootstrap})
    member = consumer(world)
    member.subscribe([topic])
    until(lambda: len(values) >= RECORDS, lambda: poll(member, values))
    found: Any = admin.describe_consumer_groups([world.group])[world.group].result()
    assert found.state.name == "STABLE", found.state
    member.close()
    listed: Any = admin.list_consumer_groups().result()
    names: list[str] = [each.group_id for each in listed.valid]
    assert world.group in names


CAPABILITIES: dict[str, Callable[[World], None]] = {
    "loop": loop,
    "two_members": two_members,
    "restart": restart,
    "seek_by_time": seek_by_time,
    "pattern": pattern,
    "static_member": static_member,
    "results": results,
    "kip848": kip848,
    "topics": topics,
    "groups": groups,
}
