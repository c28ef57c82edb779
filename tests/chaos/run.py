"""One chaos run: members join, faults happen one after another, every invariant is checked."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos.environment.group import CLOSE_TIMEOUT, ChaosGroup
from chaos.environment.traffic import Traffic
from chaos.faults.fault import ChaosEnvironment
from chaos.invariants.evidence import keep, observe_run
from chaos.invariants.run_checker import RunResult, check_run
from chaos.scenario import Scenario

from asyncrevoke.cli.demo.workload import now

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.environment.proxied_brokers import Stage
    from chaos.invariants.run_checker import RunObservations

    from asyncrevoke.journal.format.schema import Content

PARTITIONS = 6
MEMBERS = 3
RATE = 150.0
# How long to wait, in seconds; longer than what is allowed, so that stalls are measured.
JOINED_WITHIN = 60.0
CAUGHT_UP_WITHIN = 60.0
GONE_WITHIN = CLOSE_TIMEOUT + 60.0
_BETWEEN = 1.0


class Outcome(NamedTuple):
    """What came of a run; ``evidence`` is a folder."""

    scenario: Scenario
    check_run: RunResult
    seconds: float
    evidence: Path

    @property
    def line(self) -> str:
        """One line for people."""
        found = self.check_run
        return (
            f"{self.scenario.name:60} {found.produced:6} {found.lost:5} {found.unhandled:9} "
            f"{found.repeated:9} {found.not_permitted:13} {found.out_of_order:6} "
            f"{found.longest_stall:7.1f} {found.longest_exit:6.1f} {found.audit:13} "
            f"{self.seconds:4.0f} s"
        )


HEADER = (
    f"{'run':60} {'acked':>6} {'lost':>5} {'unhandled':>9} {'repeated':>9} "
    f"{'not permitted':>13} {'order':>6} {'stall':>7} {'exit':>6} {'audit':13}"
)


async def run(
    stage: Stage,
    scenario: Scenario,
    folder: Path,
    *,
    slack: float = 0.0,
    always: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Outcome:
    """Run a scenario with a topic and a group of its own.

    ``folder`` gets the evidence: that of a failed run is complete, with ``always`` that of any.
    ``options`` are consumer options of all members, beside those of the faults. Where no fault ends
    a member or makes the topic anew, partitions have lifespans, which must store each record once.
    """
    began = now()
    await stage.restore()
    folder = folder / scenario.name
    folder.mkdir(parents=True)
    topic = f"chaos-{uuid.uuid4().hex[:8]}"
    more = dict(options or {})
    for fault in scenario.faults:
        more.update(fault.options)
    config = {
        name: value for fault in scenario.faults for name, value in fault.topic_config.items()
    }
    await asyncio.to_thread(stage.create_topic, topic, PARTITIONS, None, config)
    logged_from = [broker.log_path.stat().st_size for broker in stage.brokers]
    rng = random.Random(scenario.seed)
    trimmed = any(fault.trimmed for fault in scenario.faults)
    content: Content = "batches"
    if any(fault.content == "records" for fault in scenario.faults):
        content = "records"
    schedule: list[str] = []
    async with stage.network(folder / "proxies.log") as proxies:
        traffic = Traffic(stage.direct, topic, RATE, rng)
        group = ChaosGroup(
            *(topic, scenario.protocol, stage.client_options(), folder, more, content),
            has_lifespans=not any(f.endings or not f.compared for f in scenario.faults),
        )
        world = ChaosEnvironment(
            stage=stage,
            proxies=proxies,
            group=group,
            traffic=traffic,
            rng=rng,
            partitions=PARTITIONS,
            members=MEMBERS,
            trimmed=trimmed,
        )
        await asyncio.to_thread(stage.permit, topic, group.name)
        try:
            await _play(scenario, world, schedule)
        finally:
            await world.close()
        observations: RunObservations = await observe_run(
            stage,
            group,
            traffic,
            compared=all(fault.compared for fault in scenario.faults),
            trimmed=trimmed,
        )
    found = check_run(observations, scenario.allowed(slack))
    if found.faults or always:
        about = {
            "seed": scenario.seed,
            "protocol": scenario.protocol,
            "brokers": len(stage.brokers),
            "schedule": schedule,
        }
        await asyncio.to_thread(keep, folder, stage, observations, found, about, logged_from)
    return Outcome(scenario, found, now() - began, folder)


async def _play(scenario: Scenario, world: ChaosEnvironment, schedule: list[str]) -> None:
    def note(what: str) -> None:
        schedule.append(f"{time.time():.3f} {now():.3f} {what}")

    group, traffic = world.group, world.traffic
    traffic.start()
    for _ in range(MEMBERS):
        await group.join()

    def joined() -> bool:
        group.refresh()
        return all(member.owned or member.ended_at is not None for member in group.running)

    if not await world.until(joined, JOINED_WITHIN):
        group.failures.append(f"not all members owned a partition after {JOINED_WITHIN:g} s")
    # What had piled up meanwhile is handled in one burst, which a kill would repeat.
    if not await world.caught_up(CAUGHT_UP_WITHIN):
        group.failures.append(f"members did not catch up within {CAUGHT_UP_WITHIN:g} s")
    note("all members own partitions and have caught up")
    for kind in scenario.faults:
        await asyncio.sleep(_BETWEEN)
        await world.undergo(kind(), note)
        if not await world.until(joined, JOINED_WITHIN):
            note(f"not all members owned a partition {JOINED_WITHIN:g} s later")
        if not await world.recovered(CAUGHT_UP_WITHIN):
            note(f"not all was handled {CAUGHT_UP_WITHIN:g} s later")
    await traffic.stop()
    note("nothing more is produced")
    if not await world.caught_up(CAUGHT_UP_WITHIN):
        note(f"not all was handled {CAUGHT_UP_WITHIN:g} s later")
    if not await world.all_end(GONE_WITHIN):
        group.failures.append(f"not all members had ended {GONE_WITHIN:g} s after SIGTERM")
    note("all members have ended")
