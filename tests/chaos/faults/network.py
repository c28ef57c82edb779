"""Faults of the network between members and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from chaos.environment.proxied_brokers import SESSION_TIMEOUT
from chaos.environment.proxy import BOTH, Direction
from chaos.faults.fault import ChaosEnvironment, Fault
from typing_extensions import override

if TYPE_CHECKING:
    from chaos.environment.proxy import Proxy


class _OfNetwork(Fault):
    # Members lose their way to all brokers, or to one of them.
    everywhere: ClassVar[bool] = True

    def proxies(self, world: ChaosEnvironment) -> list[Proxy]:
        return world.proxies if self.everywhere else [world.rng.choice(world.proxies)]

    @override
    async def heal(self, world: ChaosEnvironment) -> None:
        for proxy in world.proxies:
            await proxy.heal()


class BlackHole(_OfNetwork):
    name = "black-hole"
    title = "what is sent on existing connections vanishes; new ones work"
    seconds = SESSION_TIMEOUT + 5

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for proxy in self.proxies(world):
            proxy.black_hole()


class ShortOutage(_OfNetwork):
    name = "short-outage"
    title = "no packet passes for half a session"
    seconds = SESSION_TIMEOUT / 2
    silence = seconds

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for proxy in self.proxies(world):
            proxy.hold(*BOTH)


class LongOutage(ShortOutage):
    name = "long-outage"
    title = "no packet passes for longer than the session"
    seconds = SESSION_TIMEOUT + 4
    silence = seconds
    endings = True


class LostRequests(_OfNetwork):
    name = "lost-requests"
    title = "for half a session no packet reaches the brokers"
    seconds = SESSION_TIMEOUT / 2
    silence = seconds

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for proxy in self.proxies(world):
            proxy.hold(Direction.TO_BROKER)


class LostResponses(_OfNetwork):
    name = "lost-responses"
    title = "for half a session no packet reaches the members"
    seconds = SESSION_TIMEOUT / 2
    silence = seconds

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for proxy in self.proxies(world):
            proxy.hold(Direction.TO_CLIENT)


class Delay(_OfNetwork):
    name = "delay"
    title = "packets take a quarter of a session each way"
    seconds = 10.0
    silence = seconds

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for proxy in self.proxies(world):
            proxy.delay(SESSION_TIMEOUT / 4, *BOTH)


class Throttle(_OfNetwork):
    name = "throttle"
    title = "each connection carries 4 kB/s"
    seconds = 8.0
    silence = seconds

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for proxy in self.proxies(world):
            proxy.throttle(4000, *BOTH)


class Cut(_OfNetwork):
    name = "cut"
    title = "every connection ends in the middle of a response"
    seconds = 2.0

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for proxy in self.proxies(world):
            proxy.cut()


class Refuse(_OfNetwork):
    name = "refuse"
    title = "all connections end, and new ones are refused for 3 s"
    seconds = 3.0
    silence = seconds

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for proxy in self.proxies(world):
            await proxy.refuse()


class SilentBroker(_OfNetwork):
    name = "silent-broker"
    title = "no packet passes between members and one of three brokers"
    seconds = 20.0
    # Its partitions have no other leader: the cluster itself is well.
    silence = seconds
    brokers = 3
    everywhere = False
    endings = True

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for proxy in self.proxies(world):
            proxy.hold(*BOTH)
