"""Running schedules, alone or many, and making a failing one small."""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.cluster.simulated_cluster import SimulatedCluster
from simulation.invariants.oracle_state import Violation
from simulation.schedules.scenario_run import ScenarioRun
from simulation.schedules.schedule import Disturbance, GroupMode, Schedule, draw
from simulation.transactions.transactional_cluster import TransactionalCluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_MOST_SHRINK_RUNS = 60


@dataclass(slots=True)
class ScheduleOutcome:
    """How one schedule ended. ``failure`` is None if no oracle objected."""

    seed: int
    failure: str | None = None
    invariant: str = ""
    alarms: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    duplicates: Counter[str] = field(default_factory=Counter[str])
    trace: str = ""
    digest: str = ""


def run(schedule: Schedule, *, digest: bool = False) -> ScheduleOutcome:
    """Run a schedule. An exception out of a core is a failure like any other.

    With ``digest``, the outcome has a digest of all that left the cores (I15).
    """
    kind = SimulatedCluster if schedule.transactions is None else TransactionalCluster
    world = kind(schedule)
    if digest:
        world.state.digest = hashlib.sha256()
    return run_world(world)


def run_world(world: SimulatedCluster) -> ScheduleOutcome:
    """Run a new world's schedule, as :func:`run` does."""
    outcome = ScheduleOutcome(world.schedule.seed)
    try:
        ScenarioRun(world).run()
    except Violation as violation:
        outcome.failure, outcome.invariant = str(violation), violation.invariant
    except Exception as error:  # noqa: BLE001 - a core must never raise, whatever it is
        outcome.failure, outcome.invariant = _where(error), "raised"
    world.end()
    if outcome.failure is not None:
        outcome.trace = format_trace(world)
    if world.state.digest is not None:
        outcome.digest = world.state.digest.hexdigest()
    outcome.alarms = world.clock.happened
    outcome.counts = world.state.counts
    outcome.counts["rebalances"] = world.group.rebalances
    outcome.duplicates = world.state.duplicates
    return outcome


def _where(error: Exception) -> str:
    import traceback

    return "".join(traceback.format_exception(error))


def format_trace(world: SimulatedCluster) -> str:
    """The last things that happened, one a line."""
    return "\n".join(
        f"{at:9.4f} {'world' if client < 0 else f'client {client}':9} {what}"
        for at, client, what in world.state.trace
    )


def shrink(schedule: Schedule) -> Schedule:
    """Drop incidents, disturbances and members as long as the same invariant still fails."""
    wanted = run(schedule).invariant
    runs = 0
    progress = True
    while progress and runs < _MOST_SHRINK_RUNS:
        progress = False
        for smaller in _smaller(schedule):
            runs += 1
            if run(smaller).invariant == wanted:
                schedule, progress = smaller, True
                break
            if runs >= _MOST_SHRINK_RUNS:
                break
    return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    for incident in schedule.incidents:
        yield schedule.without(incident)
    if schedule.loss:
        yield dataclasses.replace(schedule, loss=0.0)
    if schedule.slow:
        yield dataclasses.replace(schedule, slow=0.0)
    if schedule.static:
        yield dataclasses.replace(schedule, static=False)
    for index in range(1, len(schedule.members)):
        left = schedule.members[:index] + schedule.members[index + 1 :]
        yield dataclasses.replace(schedule, members=left)
    if schedule.topics[0] > 1:
        yield dataclasses.replace(schedule, topics=(schedule.topics[0] - 1, *schedule.topics[1:]))


@dataclass(slots=True)
class Summary:
    """What many schedules came to."""

    schedules: int = 0
    alarms: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter[str])
    duplicates: Counter[str] = field(default_factory=Counter[str])
    failures: list[ScheduleOutcome] = field(default_factory=list[ScheduleOutcome])

    def add(self, outcome: ScheduleOutcome) -> None:
        """Count one more schedule."""
        self.schedules += 1
        self.alarms += outcome.alarms
        self.counts.update(outcome.counts)
        self.duplicates.update(outcome.duplicates)
        if outcome.failure is not None:
            self.failures.append(outcome)

    def describe(self) -> str:
        """The summary for people."""
        head = (
            f"{self.schedules} schedules, {len(self.failures)} failed, {self.alarms} events, "
            f"{self.seconds:.1f} s, {self.schedules / max(self.seconds, 1e-9):.1f} schedules/s"
        )
        lines = [
            head,
            "  " + ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items())),
            f"  duplicates, all permitted: {sum(self.duplicates.values())}",
        ]
        lines += [f"    {count:6}  {cause}" for cause, count in self.duplicates.most_common()]
        return "\n".join(lines)


Job = tuple[Callable[..., Schedule], int, GroupMode | None, Disturbance | None]


def _run_job(job: Job) -> ScheduleOutcome:
    draw_one, *what = job
    return run(draw_one(*what))


def run_many(
    seeds: Iterable[int],
    mode: GroupMode | None = None,
    disturbance: Disturbance | None = None,
    *,
    processes: int = 1,
    stop_after: int = 5,
    draw_one: Callable[..., Schedule] = draw,
) -> Summary:
    """Run the schedules of many seeds, until ``stop_after`` of them have failed."""
    summary = Summary()
    started = time.perf_counter()
    jobs = [(draw_one, seed, mode, disturbance) for seed in seeds]
    if processes > 1:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            for outcome in pool.imap_unordered(_run_job, jobs, chunksize=5):
                summary.add(outcome)
                if len(summary.failures) >= stop_after:
                    pool.terminate()
                    break
    else:
        for job in jobs:
            summary.add(_run_job(job))
            if len(summary.failures) >= stop_after:
                break
    summary.seconds = time.perf_counter() - started
    summary.failures.sort(key=lambda outcome: outcome.seed)
    return summary
