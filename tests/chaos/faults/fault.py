"""What every fault of a chaos run is."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from chaos.invariants.evidence import kept_offsets

from asyncrevoke.cli.demo.workload import now

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from chaos.environment.group import ChaosGroup
    from chaos.environment.proxied_brokers import Stage
    from chaos.environment.proxy import Proxy
    from chaos.environment.traffic import Traffic

    from asyncrevoke.journal.format.schema import Content

# How often to look what the log still has, in seconds.
_TRIMMED_EVERY = 3.0
# How often to look what members do.
_LOOK = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosEnvironment:
    """What faults act upon. ``proxies[i]`` stands in front of ``stage.brokers[i]``."""

    stage: Stage
    proxies: list[Proxy]
    group: ChaosGroup
    traffic: Traffic
    rng: random.Random
    partitions: int
    members: int
    trimmed: bool

    async def caught_up(self, within: float) -> bool:
        """Wait until what is acknowledged now has been handled; False if that takes longer than
        ``within`` seconds. Records that retention and compaction have deleted do not count."""
        missing = {(record.partition, record.offset) for record in self.traffic.produced}

        def handled() -> bool:
            self.group.refresh()
            missing.difference_update(self.group.handled)
            return not missing

        if not self.trimmed:
            return await self.until(handled, within)
        deadline = now() + within
        while not await self.until(handled, min(within, _TRIMMED_EVERY)):
            if now() > deadline:
                return False
            missing &= await kept_offsets(self.stage, self.group.topic)
        return True

    async def recovered(self, within: float) -> bool:
        """Wait until records are acknowledged in each partition and then handled; returns False if
        they are not within ``within`` seconds, twice. All members have connections again then."""
        since = now()

        def acknowledged() -> bool:
            records = (record for record in reversed(self.traffic.produced))
            recent = itertools.takewhile(lambda record: record.at > since, records)
            return len({record.partition for record in recent}) >= self.partitions

        return await self.until(acknowledged, within) and await self.caught_up(within)

    async def undergo(self, fault: Fault, note: Callable[[str], None]) -> None:
        """Apply a fault, and heal it when it has lasted."""
        note(f"{fault.name} begins")
        await fault.apply(self)
        healed_at = now() + fault.seconds
        while (left := healed_at - now()) > 0:
            # A member that ends meanwhile has ended now, not when the fault is healed.
            await asyncio.sleep(min(left, _LOOK))
            self.group.refresh()
        await fault.heal(self)
        note(f"{fault.name} is healed")

    async def all_end(self, within: float) -> bool:
        """Stop all members; False if some still run after ``within`` seconds."""
        for member in self.group.running:
            self.group.stop(member)

        def gone() -> bool:
            self.group.refresh()
            return all(member.ended_at is not None for member in self.group.members.values())

        return await self.until(gone, within)

    async def close(self) -> None:
        """End what still runs, and undo what faults have left."""
        await self.group.close()
        await self.traffic.pause()
        await self.stage.restore()
        self.group.refresh()

    async def until(self, done: Callable[[], bool], within: float) -> bool:
        """Wait until something holds; returns False if it does not within ``within`` seconds."""
        deadline = now() + within
        while not done():
            if now() > deadline:
                return False
            await asyncio.sleep(_LOOK)
        return True


class Fault(ABC):
    """One fault: it is applied, lasts ``seconds`` and is healed.

    ``silence`` is for how many of these seconds a partition may get no record because of it,
    whatever its consumers do: the stall that is allowed grows by them.
    """

    name: ClassVar[str]
    # What the matrix in docs/reference/guarantees.md calls it.
    title: ClassVar[str]
    seconds: ClassVar[float] = 0.0
    silence: ClassVar[float] = 0.0
    # Members may be killed, frozen beyond their session, or lose it: records may be repeated.
    endings: ClassVar[bool] = False
    # Members may end by themselves.
    failures: ClassVar[bool] = False
    # The fewest brokers with which it makes sense.
    brokers: ClassVar[int] = 1
    # The topic cannot be compared with journals afterwards; or only what it still has.
    compared: ClassVar[bool] = True
    trimmed: ClassVar[bool] = False
    # Whether it is for runs of its own only, with a topic and members made for it.
    alone: ClassVar[bool] = False
    topic_config: ClassVar[Mapping[str, str]] = {}
    # What the journals have of the content of records.
    content: ClassVar[Content] = "batches"
    options: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    async def apply(self, world: ChaosEnvironment) -> None:
        """Make it happen."""

    async def heal(self, world: ChaosEnvironment) -> None:  # noqa: B027 - some faults leave nothing behind
        """End it."""
