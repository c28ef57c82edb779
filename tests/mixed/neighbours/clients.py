"""The other clients, with the assignors that each has in common with this library."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mixed.group import Client, MixedGroup
from mixed.neighbours.programs import program

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from mixed.group import MixedMember

    from asyncrevoke.broker import RunningBroker

ASSIGNORS: dict[Client, tuple[str, ...]] = {
    "franz-go": ("range", "roundrobin", "sticky", "cooperative-sticky"),
    "sarama": ("range", "roundrobin", "sticky", "cooperative-sticky"),
    "kafka-go": ("range", "roundrobin"),
    "platformatic": ("roundrobin",),
    "kafkajs": ("roundrobin",),  # its only assigner under the name that all others use
    "java": ("range", "roundrobin", "sticky", "cooperative-sticky"),
    "librdkafka": ("range", "roundrobin", "cooperative-sticky"),
    "kafka-python": ("range", "roundrobin", "cooperative-sticky"),
}
_IN_PYTHON_OR_JAVA = ("ours", "java", "librdkafka", "kafka-python")


def group_with(
    client: Client, folder: Path, kafka_broker: RunningBroker, kafka_topic: str
) -> MixedGroup:
    programs: dict[Client, list[str]] = (
        {} if client in _IN_PYTHON_OR_JAVA else {client: program(client)}
    )
    return MixedGroup(folder, kafka_broker.bootstrap_servers, kafka_topic, programs)


@asynccontextmanager
async def running_member(
    group: MixedGroup, client: Client, assignor: str
) -> AsyncGenerator[MixedMember]:
    """A member of a group to which nothing is produced; killed when the block ends."""
    member = await group.join(client, assignor)
    try:
        yield member
    finally:
        member.kill()
        await member.wait()
        await member.reading
