"""One chaos run with a share group: members join, faults happen one after another, and then each
record must have been handled, and nothing may be left for the group to deliver."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos.environment.group import CLOSE_TIMEOUT, ChaosGroup
from chaos.environment.proxied_brokers import LOCK
from chaos.environment.traffic import Traffic
from chaos.faults.fault import ChaosEnvironment
from chaos.share.share_checker import ShareResult, Window, calls_by_record, check_share_run

from asyncrevoke.cli.demo.workload import now
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.configs import set_group_options
from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.groups.share_groups import describe_share_group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chaos.environment.proxied_brokers import Stage
    from chaos.faults.fault import Fault

PARTITIONS = 6
MEMBERS = 3
RATE = 100.0
GROUP_OPTIONS = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}
# Seconds to wait for what must happen, without ``slack``.
WITHIN = 60.0
_BETWEEN = 1.0


class ShareOutcome(NamedTuple):
    """What came of a run; ``evidence`` is its folder."""

    name: str
    result: ShareResult
    seconds: float
    longest_exit: float
    evidence: Path

    @property
    def line(self) -> str:
        """One line for people."""
        found = self.result
        return (
            f"{self.name:60} {found.produced:6} {found.lost:5} {found.again:6} "
            f"{found.not_permitted:13} {found.at_once:8} {found.most_calls:6} "
            f"{found.longest_wait:7.1f} {self.longest_exit:6.1f} {self.seconds:4.0f} s"
        )


HEADER = (
    f"{'run':60} {'acked':>6} {'lost':>5} {'again':>6} {'not permitted':>13} {'overlap':>8} "
    f"{'calls':>6} {'wait':>7} {'exit':>6}"
)


async def run_share(
    stage: Stage, seed: int, faults: Sequence[type[Fault]], folder: Path, slack: float = 0.0
) -> ShareOutcome:
    """Run these faults one after another, with a topic and a group of its own. ``slack`` is seconds
    for a busy machine."""
    began = now()
    await stage.restore()
    name = f"share-{'+'.join(fault.name for fault in faults)}-{seed}"
    folder = folder / name
    folder.mkdir(parents=True)
    run = _ShareRun(stage, seed, faults, folder, WITHIN + slack)
    windows, schedule = await run.play()
    group, traffic = run.group, run.traffic
    for member in group.members.values():
        if group.longest_exit > CLOSE_TIMEOUT + 1.0 + slack:
            group.failures.append(f"{member.name} ended {group.longest_exit:.1f} s after SIGTERM")
            break
    calls = calls_by_record(group.events, group.died, now())
    result = check_share_run(traffic.produced, calls, windows, group.failures)
    about = {"seed": seed, "schedule": schedule, **result._asdict()}
    (folder / "run.json").write_text(json.dumps(about, indent=1, default=str))
    return ShareOutcome(name, result, now() - began, group.longest_exit, folder)


class _ShareRun:
    def __init__(
        self,
        stage: Stage,
        seed: int,
        faults: Sequence[type[Fault]],
        folder: Path,
        within: float,
    ) -> None:
        self._stage, self._faults, self._folder, self._within = stage, faults, folder, within
        self._rng = random.Random(seed)
        topic = f"share-{uuid.uuid4().hex[:8]}"
        more: dict[str, Any] = {}
        for fault in faults:
            more.update(fault.options)
        self.traffic = Traffic(stage.direct, topic, RATE, self._rng)
        self.group = ChaosGroup(topic, "share", stage.client_options(), folder, more, "batches")
        self._windows: list[Window] = []
        self._schedule: list[str] = []

    def _note(self, what: str) -> None:
        self._schedule.append(f"{time.time():.3f} {now():.3f} {what}")

    async def play(self) -> tuple[list[Window], list[str]]:
        """Returns when faults may have cost locks, and what happened."""
        stage, group, traffic = self._stage, self.group, self.traffic
        await asyncio.to_thread(stage.create_topic, group.topic, PARTITIONS)
        await asyncio.to_thread(stage.permit, group.topic, group.name)
        async with GroupsClient(ConsumerConfig(bootstrap_servers=stage.direct)) as brokers:
            await set_group_options(brokers, group.name, GROUP_OPTIONS)
        async with stage.network(self._folder / "proxies.log") as proxies:
            world = ChaosEnvironment(
                stage=stage,
                proxies=proxies,
                group=group,
                traffic=traffic,
                rng=self._rng,
                partitions=PARTITIONS,
                members=MEMBERS,
                trimmed=False,
            )
            try:
                await self._play(world)
            finally:
                await world.close()
        return self._windows, self._schedule

    async def _play(self, world: ChaosEnvironment) -> None:
        group, traffic = world.group, world.traffic
        traffic.start()
        for _ in range(MEMBERS):
            await group.join()
        await self._require("all members take part", self._all_take_part(), world)
        await self._caught_up(world)
        for kind in self._faults:
            await asyncio.sleep(_BETWEEN)
            await self._apply(kind(), world)
        await traffic.stop()
        self._note("nothing more is produced")
        await self._caught_up(world)
        await self._nothing_left()
        if not await world.all_end(CLOSE_TIMEOUT + self._within):
            group.failures.append("not all members ended after SIGTERM")
        await self._nothing_left()

    async def _apply(self, fault: Fault, world: ChaosEnvironment) -> None:
        group = world.group
        known, begins = len(group.endings), now()
        await world.undergo(fault, self._note)
        if fault.endings:
            hit: list[str | None] = [ending.member for ending in group.endings[known:]]
            self._windows += [Window(begins, now() + LOCK, member) for member in hit or [None]]
        await self._require("all members take part", self._all_take_part(), world)
        if not await world.recovered(self._within):
            group.failures.append(f"not all was handled {self._within:g} s after {fault.name}")

    def _all_take_part(self) -> Callable[[], bool]:
        """Whether each running member has begun calls since now."""
        since = len(self.group.events)

        def all_do() -> bool:
            self.group.refresh()
            busy = {event.member for event in self.group.events[since:]}
            return all(m.name in busy or m.ended_at is not None for m in self.group.running)

        return all_do

    async def _require(
        self, what: str, condition: Callable[[], bool], world: ChaosEnvironment
    ) -> None:
        if not await world.until(condition, self._within):
            self.group.failures.append(f"not within {self._within:g} s: {what}")
        self._note(what)

    async def _caught_up(self, world: ChaosEnvironment) -> None:
        if not await world.caught_up(self._within):
            self.group.failures.append(f"not all was handled within {self._within:g} s")

    async def _nothing_left(self) -> None:
        """The group has nothing more to deliver, as its coordinator counts."""
        deadline = now() + self._within
        while (lag := await self._lag()) != 0:
            if now() > deadline:
                self.group.failures.append(f"the lag of the group is {lag}")
                return
            await asyncio.sleep(0.5)

    async def _lag(self) -> int | str | None:
        try:
            config = ConsumerConfig(bootstrap_servers=self._stage.direct)
            async with GroupsClient(config) as brokers:
                facts = await describe_share_group(brokers, self.group.name)
        except GroupsError as error:
            return str(error)
        # A deleted topic may still be listed.
        return sum(
            partition.lag or 0
            for partition in facts.partitions
            if partition.topic == self.group.topic
        )
