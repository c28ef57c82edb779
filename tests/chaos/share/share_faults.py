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


class BrokerFreeze(brokers.BrokerFreeze):
    endings = True
    # Its partitions get other leaders after that of the brokers' session.
    silence = 20.0


class BlackHole(network.BlackHole):
    endings = True
    # Until members give up a connection on which nothing is received.
    silence = 10.0


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


def costs_locks(fault: type[Fault]) -> type[Fault]:
    """The same fault where a lost connection is enough to lose locks."""
    return type(fault.__name__, (fault,), {"endings": True})


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
        costs_locks(brokers.BrokerKill),
        costs_locks(brokers.BrokerRestart),
        BrokerFreeze,
        BlackHole,
        costs_locks(network.ShortOutage),
        network.LongOutage,
        costs_locks(network.LostRequests),
        costs_locks(network.LostResponses),
        costs_locks(network.Delay),
        costs_locks(network.Throttle),
        costs_locks(network.Cut),
        costs_locks(network.Refuse),
        network.SilentBroker,
        LeaderMove,
        topics.PartitionsAdded,
        CreatedAgain,
    )
}
