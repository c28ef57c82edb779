"""Faults of members: processes that come, go, die and freeze, and handlers that misbehave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chaos.environment.group import CLOSE_TIMEOUT
from chaos.environment.proxied_brokers import SESSION_TIMEOUT
from chaos.faults.fault import ChaosEnvironment, Fault
from chaos.invariants.run_checker import Ending
from typing_extensions import override

from asyncrevoke.cli.demo.workload import now

if TYPE_CHECKING:
    from chaos.environment.group import MemberProcess


def some_member(world: ChaosEnvironment) -> MemberProcess:
    """One that runs."""
    return world.rng.choice(world.group.running)


class Join(Fault):
    name = "join"
    title = "a member joins"

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        await world.group.join()


class Leave(Fault):
    name = "leave"
    title = "a member leaves (SIGTERM), another joins"
    seconds = 2.0

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        world.group.stop(some_member(world))

    @override
    async def heal(self, world: ChaosEnvironment) -> None:
        await world.group.join()


class Kill(Fault):
    name = "kill"
    title = "a member is killed (SIGKILL), another joins"
    seconds = 2.0
    endings = True

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        committed = await world.stage.committed(world.group.name)
        world.group.kill(some_member(world), committed)

    @override
    async def heal(self, world: ChaosEnvironment) -> None:
        await world.group.join()


class ShortFreeze(Fault):
    name = "short-freeze"
    title = "a member is frozen (SIGSTOP) for half a session"
    seconds = SESSION_TIMEOUT / 2
    silence = seconds

    def __init__(self) -> None:
        self._member: MemberProcess | None = None

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        self._member = some_member(world)
        world.group.freeze(self._member, None)

    @override
    async def heal(self, world: ChaosEnvironment) -> None:
        assert self._member is not None
        world.group.thaw(self._member)


class LongFreeze(Fault):
    name = "long-freeze"
    title = "a member is frozen (SIGSTOP) beyond its session"
    seconds = SESSION_TIMEOUT + 4
    endings = True

    def __init__(self) -> None:
        self._member: MemberProcess | None = None

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        self._member = some_member(world)
        world.group.freeze(self._member, await world.stage.committed(world.group.name))

    @override
    async def heal(self, world: ChaosEnvironment) -> None:
        assert self._member is not None
        world.group.thaw(self._member)


class Hang(Fault):
    name = "hang"
    title = "handlers hang for 4 s while a member joins"
    seconds = 4.0
    silence = seconds

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for member in world.group.running:
            world.group.command(member, f"hang {self.seconds}")
        await world.group.join()


class HangAtStop(Fault):
    name = "hang-at-stop"
    title = "a handler never returns, and its member is stopped (SIGTERM)"
    seconds = CLOSE_TIMEOUT + 4
    silence = CLOSE_TIMEOUT
    # The record of that handler is for the next owner.
    endings = True

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        member = some_member(world)
        world.group.command(member, "hang 1000000")
        await asyncio.sleep(1.0)
        world.group.stop(member)
        end = now() + CLOSE_TIMEOUT + 5
        world.group.endings.append(Ending("closed", member.name, end, {}))

    @override
    async def heal(self, world: ChaosEnvironment) -> None:
        await world.group.join()


class Block(Fault):
    name = "block"
    title = "a handler blocks the event loop beyond the session"
    seconds = SESSION_TIMEOUT + 3
    silence = seconds

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        world.group.command(some_member(world), f"block {self.seconds}")


class Raise(Fault):
    name = "raise"
    title = "handlers raise, and are retried"

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for member in world.group.running:
            world.group.command(member, "raise 10")


class Cancel(Fault):
    name = "cancel"
    title = "handlers are cancelled by somebody else, and are retried"

    @override
    async def apply(self, world: ChaosEnvironment) -> None:
        for member in world.group.running:
            world.group.command(member, "cancel 10")
