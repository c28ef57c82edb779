"""Faults of chaos runs with share groups. ``endings`` says that locks may be lost: what a member
had acquired may be delivered again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from broker.topics.partition_replicas import move_leader
from chaos.environment.proxied_brokers import LOCK
from chaos.faults import brokers, members, network, topics
from chaos.faults.fault import ChaosEnvironment, Fault
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kill(members.Kill):
    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        world.group.kill(members.some_member(world), {})


class ShortFreeze(members.ShortFreeze):
    title = "a member is frozen (SIGSTOP) for 1 s"
    seconds = 1.0
    silence = seconds


class LongFreeze(members.LongFreeze):
    title = "a member is frozen (SIGSTOP) for longer than its locks"
    seconds = LOCK + 4

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        self._member = members.some_member(world)
        world.group.freeze(self._member, {})


class Hang(members.Hang):
    title = "handlers take twice the lock while a member joins"
    seconds = 2 * LOCK


class Block(members.Block):
    title = "a handler blocks the event loop for longer than the locks"
    seconds = LOCK + 3
    silence = seconds
    endings = True


class BrokerKill(brokers.BrokerKill):
    endings = True


class BrokerRestart(brokers.BrokerRestart):
    endings = True


class BrokerFreeze(brokers.BrokerFreeze):
    endings = True
    # Its partitions get other leaders after that of the brokers' session.
    silence = 20.0


class BlackHole(network.BlackHole):
    endings = True
    # Until members give up a connection on which nothing is received.
    silence = 10.0


class ShortOutage(network.ShortOutage):
    endings = True


class LostRequests(network.LostRequests):
    endings = True


class LostResponses(network.LostResponses):
    endings = True


class Delay(network.Delay):
    endings = True


class Throttle(network.Throttle):
    endings = True


class Cut(network.Cut):
    endings = True


class Refuse(network.Refuse):
    endings = True


class LeaderMove(Fault):
    name = "leader-move"
    title = "other brokers become leaders of all partitions"
    seconds = 2.0
    silence = 5.0
    endings = True
    brokers = 3

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for number in range(world.partitions):
            await asyncio.to_thread(move_leader, world.stage, world.group.topic, number)


class CreatedAgain(Fault):
    name = "created-again"
    title = "the topic is deleted and created again"
    endings = True
    alone = True
    options: ClassVar[Mapping[str, Any]] = topics.CreatedAgain.options

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        await world.traffic.stop()
        if not await world.caught_up(60.0):
            world.group.failures.append("not all records of the former topic were handled")
        topic = world.group.topic
        await asyncio.to_thread(world.stage.delete_topic, topic)
        # Its records and those of the next one share offsets: from now on they have another name.
        world.group.rename(f"{topic} (deleted)", {})
        world.traffic.rename(f"{topic} (deleted)")
        await asyncio.to_thread(world.stage.create_topic, topic, world.partitions)
        world.traffic.start()


FAULTS: dict[str, type[Fault]] = {
    fault.name: fault
    for fault in (
        members.Join,
        members.Leave,
        Kill,
        ShortFreeze,
        LongFreeze,
        Hang,
        members.HangAtStop,
        Block,
        members.Raise,
        members.Cancel,
        BrokerKill,
        BrokerRestart,
        BrokerFreeze,
        BlackHole,
        ShortOutage,
        network.LongOutage,
        LostRequests,
        LostResponses,
        Delay,
        Throttle,
        Cut,
        Refuse,
        network.SilentBroker,
        LeaderMove,
        topics.PartitionsAdded,
        CreatedAgain,
    )
}
