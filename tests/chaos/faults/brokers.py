"""Faults of brokers: killed, restarted, frozen; of several, the group's coordinator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chaos.faults.fault import ChaosEnvironment, Fault
from typing_extensions import override

if TYPE_CHECKING:
    from asyncrevoke.broker import KafkaBroker

# A broker's own time to come back, on a busy machine.
_START = 10.0


class _OfCoordinator(Fault):
    async def coordinator(self, world: ChaosEnvironment) -> KafkaBroker:
        return await world.stage.coordinator(world.group.name)


class BrokerKill(_OfCoordinator):
    name = "broker-kill"
    title = "the coordinator is killed (SIGKILL) and started again"
    seconds = 3.0
    silence = seconds + _START

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        broker = await self.coordinator(world)
        await asyncio.to_thread(broker.kill)

    @override
    async def heal(self, world: ChaosEnvironment) -> None:
        await asyncio.to_thread(world.stage.start)


class BrokerRestart(_OfCoordinator):
    name = "broker-restart"
    title = "the coordinator is restarted"
    silence = _START

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        broker = await self.coordinator(world)
        await asyncio.to_thread(broker.stop)

    @override
    async def heal(self, world: ChaosEnvironment) -> None:
        await asyncio.to_thread(world.stage.start)


class ShortBrokerFreeze(_OfCoordinator):
    name = "short-broker-freeze"
    title = "the only broker is frozen (SIGSTOP) for 3 s"
    seconds = 3.0
    silence = seconds

    def __init__(self) -> None:
        self._broker: KafkaBroker | None = None

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        self._broker = await self.coordinator(world)
        self._broker.pause()

    @override
    async def heal(self, world: ChaosEnvironment) -> None:
        assert self._broker is not None
        self._broker.resume()
        # A cluster may have fenced it meanwhile.
        await asyncio.to_thread(world.stage.start)


class BrokerFreeze(ShortBrokerFreeze):
    name = "broker-freeze"
    title = "the coordinator of three brokers is frozen (SIGSTOP) for 30 s"
    seconds = 30.0
    silence = 0.0
    brokers = 3
