"""What a rolling deploy costs: ``python -m simulation.cluster.rolling_deploy``.

Theory of operation. A group has come to rest; then each of its members is replaced. At most
``unavailable`` members are away at a time: one stops (it finishes its work and commits), its
successor starts a while after it has closed, and counts as back once it has been given partitions.
All oracles watch, so that a repeated or lost record ends the run. Partitions that take no new
records, because they are being revoked or have no owner, are counted ten times a second.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from simulation.cluster.simulated_cluster import SimulatedCluster
from simulation.invariants.oracle_state import Violation
from simulation.members.consumer_style import ConsumerStyle, WorkTime
from simulation.schedules.schedule import Disturbance, GroupMode, MemberPlan, Schedule

from asyncrevoke.testing.fake_kafka.group_state import GroupState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulation.members.application import Application

_ASSIGNORS = {GroupMode.EAGER: "range"}
_SAMPLE = 0.1
_PATIENCE = 1800.0
_MODES = (GroupMode.EAGER, GroupMode.COOPERATIVE, GroupMode.CONSUMER)


@dataclasses.dataclass(frozen=True, slots=True)
class Deploy:
    """A rolling deploy. Times in seconds, ``records`` a second over all partitions."""

    members: int = 500
    partitions: int = 5_000
    unavailable: int = 25
    restart: float = 3.0
    records: float = 500.0
    brokers: int = 3
    seed: int = 1

    def schedule(self, mode: GroupMode, *, static: bool) -> Schedule:
        """Members that all start within two seconds, and nothing else."""
        assignors = (_ASSIGNORS.get(mode, "cooperative-sticky"),)
        work_time = WorkTime(0.05, 1.0, 0.02)
        plans = (
            MemberPlan(2.0 * n / self.members, ConsumerStyle.TASKS, work_time)
            for n in range(self.members)
        )
        return Schedule(
            seed=self.seed,
            mode=mode,
            disturbance=Disturbance.NONE,
            brokers=self.brokers,
            topics=(self.partitions,),
            duration=_PATIENCE,
            members=tuple(plans),
            incidents=(),
            assignors=assignors,
            later_assignors=assignors,
            static=static,
            produce_every=2 * 2.5 / self.records,
            initial_delay=3.0 if mode is not GroupMode.CONSUMER else 1.0,
            session_timeout=45.0,
            rebalance_timeout=60.0,
        )


@dataclasses.dataclass(slots=True)
class Cost:
    """What it came to. ``stalled`` are partition-seconds, ``longest`` the longest stall."""

    mode: GroupMode
    static: bool
    rebalances: int = 0
    seconds: float = 0.0
    stalled: float = 0.0
    longest: float = 0.0
    records: int = 0
    repeated: int = 0
    lost: int = 0
    took: float = 0.0

    def row(self, partitions: int) -> list[str]:
        """The line of the table."""
        return [
            {GroupMode.CONSUMER: "KIP-848"}.get(self.mode, self.mode.name),
            "static" if self.static else "dynamic",
            f"{self.rebalances:,}",
            f"{self.seconds:,.0f} s",
            f"{self.stalled:,.0f}",
            f"{self.stalled / partitions:.2f} s",
            f"{self.longest:.1f} s",
            f"{self.records:,}",
            str(self.repeated),
            str(self.lost),
        ]


HEADER = (
    "protocol",
    "members",
    "rebalances",
    "deploy takes",
    "partition-seconds of stall",
    "a partition",
    "longest",
    "records",
    "repeated",
    "lost",
)


class RollingDeploy(SimulatedCluster):
    """A world in which all members are replaced once."""

    def __init__(self, deploy: Deploy, mode: GroupMode, *, static: bool) -> None:
        super().__init__(deploy.schedule(mode, static=static))
        self._deploy = deploy
        self._cost = Cost(mode, static)
        self._old: deque[Application] = deque()
        self._away = 0
        self._coming: dict[int, Application] = {}
        self._stalled: dict[int, float] = {}
        self._measuring = False

    def pace_options(self) -> Mapping[str, object]:
        """The defaults, but for longer waits at quiet partitions, which cost the simulation most
        of its time."""
        return {"fetch_max_wait": 2.0}

    def deploy(self) -> Cost:
        """Run it, and say what it cost."""
        cost, clock = self._cost, self.clock
        started = time.perf_counter()
        for plan in self.schedule.members:
            clock.at(plan.at, partial(self._begin, plan))
        clock.run_until(clock.now + 3.0)
        self.producing_until = _PATIENCE
        self.produce()
        self._rest("the group has not come to rest")
        before, begun = self.group.rebalances, clock.now
        done = self.state.counts["done"]
        self._old.extend(self.live())
        self._measuring = True
        self._sample()
        while self._old or self._away:
            self._replace()
            self._step("not all members have been replaced")
        self._rest("the group has not come to rest after it")
        self._measuring = False
        cost.rebalances = self.group.rebalances - before
        cost.seconds = clock.now - begun
        cost.records = self.state.counts["done"] - done
        self.producing_until = clock.now
        while self.checker.deliveries.missing():
            self._step("records were not worked on")
        cost.repeated = sum(self.state.duplicates.values())
        cost.lost = self.state.counts["lost partitions"]
        cost.took = time.perf_counter() - started
        return cost

    def _begin(self, plan: MemberPlan) -> None:
        self.join(plan.style, plan.work_time)

    def _step(self, complaint: str) -> None:
        if self.clock.now > _PATIENCE:
            raise Violation("deploy", f"{complaint} after {_PATIENCE:.0f} s")
        self.clock.run_until(self.clock.now + 0.25)
        for client in [c for c in self._coming if self.state.views[c].held]:
            del self._coming[client]
            self._away -= 1

    def _rest(self, complaint: str) -> None:
        """All partitions have owners, and nobody has to give one up: after a follow-up too."""
        quiet = 0
        while quiet < 4:
            self._step(complaint)
            at_rest = self.group.state is GroupState.STABLE and not self._unowned()
            quiet = quiet + 1 if at_rest else 0

    def _replace(self) -> None:
        while self._old and self._away < self._deploy.unavailable:
            self._away += 1
            application = self._old.popleft()
            application.on_closed = partial(self._closed, application)
            application.stop()

    def _closed(self, application: Application) -> None:
        self.clock.after(self._deploy.restart, partial(self._start_again, application))

    def _start_again(self, application: Application) -> None:
        instance_id = application.member.config.group_instance_id
        new = self.join(application.style, application.work_time, instance_id=instance_id)
        self._coming[new.member.client] = new

    def _unowned(self) -> set[int]:
        """The partitions that take no records."""
        taking = {
            partition.partition
            for application in self.applications.values()
            if application.member.alive and not application.ending
            for partition, holding in self.state.views[application.member.client].held.items()
            if holding.revoking_since is None
        }
        return set(range(self._deploy.partitions)) - taking

    def _sample(self) -> None:
        now, stalled = self.clock.now, self._unowned()
        self._cost.stalled += len(stalled) * _SAMPLE
        for partition in list(self._stalled):
            if partition not in stalled:
                since = self._stalled.pop(partition)
                self._cost.longest = max(self._cost.longest, now - since)
        for partition in stalled:
            self._stalled.setdefault(partition, now)
        if self._measuring:
            self.clock.after(_SAMPLE, self._sample)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m simulation.cluster.rolling_deploy",
        description="Replace every member of a simulated group, and count what it costs.",
    )
    for name, value in dataclasses.asdict(Deploy()).items():
        kind = float if isinstance(value, float) else int
        parser.add_argument(f"--{name}", type=kind, default=value, help=f"{value} by default")
    choices = [mode.value for mode in _MODES]
    parser.add_argument("--protocol", choices=choices, help="all of them, if left out")
    members = parser.add_mutually_exclusive_group()
    members.add_argument("--static", action="store_true", help="static members only")
    members.add_argument("--dynamic", action="store_true", help="dynamic members only")
    return parser.parse_args()


def main() -> int:
    """Run, print a table in Markdown, and return the exit code: 1 if a record was repeated."""
    options = _parse()
    deploy = Deploy(**{f.name: getattr(options, f.name) for f in dataclasses.fields(Deploy)})
    print("| " + " | ".join(HEADER) + " |")
    print("| " + " | ".join("---" for _ in HEADER) + " |")
    failed = False
    for mode in _MODES if options.protocol is None else (GroupMode(options.protocol),):
        for static in (False, True):
            if options.dynamic if static else options.static:
                continue
            cost = RollingDeploy(deploy, mode, static=static).deploy()
            failed |= cost.repeated > 0 or cost.lost > 0
            print("| " + " | ".join(cost.row(deploy.partitions)) + " |", flush=True)
            print(f"{cost.took:.0f} s", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
