"""Faults of topics: created again, more partitions, retention, compaction, transactions, access."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from chaos.environment.administration import Administration
from chaos.environment.proxied_brokers import SESSION_TIMEOUT
from chaos.faults.fault import ChaosEnvironment, Fault
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.environment.group import MemberProcess

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.journal.format.schema import Content

Resource: TypeAlias = Literal["topic", "group"]

_PATIENCE = 30.0
# Metadata are looked up so often, in seconds, where new partitions or topics are to be found.
_METADATA_AGE = 2.0


def ends(world: ChaosEnvironment) -> dict[TopicPartition, int]:
    """Where the log of each partition ends, by what is acknowledged."""
    found: dict[TopicPartition, int] = {}
    for record in world.traffic.produced:
        found[record.partition] = max(found.get(record.partition, 0), record.offset + 1)
    return found


class PartitionsAdded(Fault):
    name = "partitions-added"
    title = "partitions are added to the topic"
    seconds = 5.0
    options: ClassVar[Mapping[str, Any]] = {"metadata_max_age": _METADATA_AGE}

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        await asyncio.to_thread(world.stage.add_partitions, world.group.topic, 9)


class CreatedAgain(Fault):
    name = "created-again"
    title = "the topic is deleted and created again"
    # The partitions of the former topic are lost.
    endings = True
    compared = False
    alone = True
    options: ClassVar[Mapping[str, Any]] = {"metadata_max_age": _METADATA_AGE}

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        await world.traffic.stop()
        if not await world.caught_up(_PATIENCE):
            world.group.failures.append("not all records of the former topic were handled")
        committed: Mapping[TopicPartition, int] = {}
        for _ in range(int(_PATIENCE / 0.2)):
            committed = await world.stage.committed(world.group.name)
            if committed == ends(world):
                break
            await asyncio.sleep(0.2)
        else:
            world.group.failures.append("not all records of the former topic were committed")
        topic = world.group.topic
        await asyncio.to_thread(world.stage.delete_topic, topic)
        # Its records and those of the next one share offsets: from now on they have another name.
        world.group.rename(f"{topic} (deleted)", committed)
        world.traffic.rename(f"{topic} (deleted)")
        await asyncio.to_thread(world.stage.create_topic, topic, world.partitions)
        world.traffic.start()


class RetentionBehind(Fault):
    name = "retention-behind"
    title = "retention deletes what is committed"

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        committed = await world.stage.committed(world.group.name)
        await Administration(world.stage.direct).delete_records(committed)


class _WhileFrozen(Fault):
    """All members are frozen for less than a session: they lag behind."""

    seconds = SESSION_TIMEOUT / 2
    silence = seconds

    def __init__(self) -> None:
        self._members: list[MemberProcess] = []

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        self._members = world.group.running
        for member in self._members:
            world.group.freeze(member, None)

    @override
    async def heal(self, world: ChaosEnvironment) -> None:
        for member in self._members:
            world.group.thaw(member)


class RetentionAhead(_WhileFrozen):
    name = "retention-ahead"
    title = "retention deletes what members have not read yet"
    trimmed = True
    alone = True

    @override
    async def heal(self, world: ChaosEnvironment) -> None:
        before = {place: max(0, end - 20) for place, end in ends(world).items()}
        await Administration(world.stage.direct).delete_records(before)
        await super().heal(world)


class Compaction(_WhileFrozen):
    name = "compaction"
    title = "compaction takes records away before members have read them"
    trimmed = True
    # Batches are not what they were.
    content: ClassVar[Content] = "records"
    alone = True
    topic_config: ClassVar[Mapping[str, str]] = {
        "cleanup.policy": "compact",
        "segment.ms": "500",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "500",
    }


class Aborted(Fault):
    name = "aborted"
    title = "transactions are aborted (read_committed)"
    options: ClassVar[Mapping[str, Any]] = {"isolation_level": "read_committed"}

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for _ in range(4):
            await world.traffic.aborted(50)
            await asyncio.sleep(0.5)


class _Withdrawn(Fault):
    seconds = 8.0
    silence = seconds
    # A consumer may end with an error: its supervisor starts another one.
    endings = True
    failures = True
    alone = True
    resource: ClassVar[Resource]

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        name = world.group.topic if self.resource == "topic" else world.group.name
        await Administration(world.stage.direct).withdraw(self.resource, name)

    @override
    async def heal(self, world: ChaosEnvironment) -> None:
        await asyncio.to_thread(world.stage.permit, world.group.topic, world.group.name)
        world.group.refresh()
        for _ in range(world.members - len(world.group.running)):
            await world.group.join()


class TopicWithdrawn(_Withdrawn):
    name = "topic-withdrawn"
    title = "the right to read the topic is withdrawn for 8 s"
    resource: ClassVar[Resource] = "topic"


class GroupWithdrawn(_Withdrawn):
    name = "group-withdrawn"
    title = "the right to use the group is withdrawn for 8 s"
    resource: ClassVar[Resource] = "group"
