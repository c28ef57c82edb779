"""Runs schedules of share groups, alone or many."""

from __future__ import annotations

import hashlib
import multiprocessing
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING

from simulation.invariants.oracle_state import Violation
from simulation.runner import ScheduleOutcome, Summary
from simulation.share.invariants.trace_lines import describe
from simulation.share.members.share_application import CLOSE_TIMEOUT
from simulation.share.share_cluster import ShareCluster
from simulation.share.share_faults import ShareFaults
from simulation.share.share_schedule import ShareDisturbance, ShareSchedule, draw_share

if TYPE_CHECKING:
    from collections.abc import Iterable

# After the last fault: until no lock of a member that is gone is left, and then for what is left.
_GRACE = 60.0
# A member that closed before, and was frozen, begins late.
_CLOSE_LATE = 12.0
_MOST_SHRINK_RUNS = 60


class ShareRun:
    """One run; :meth:`run` raises :class:`Violation` if an oracle objects."""

    def __init__(self, world: ShareCluster) -> None:
        self._world = world
        self._faults = ShareFaults(world)

    def run(self) -> None:
        """Run the schedule to its end."""
        world, schedule, clock = self._world, self._world.schedule, self._world.clock
        for plan in schedule.members:
            clock.at(plan.at, partial(world.join, plan))
        for incident in schedule.incidents:
            clock.at(incident.at, partial(self._faults.apply, incident))
        if schedule.loss:
            self._faults.lose_requests(schedule.loss)
        world.producing_until = schedule.duration
        world.produce()
        clock.run_until(schedule.duration)
        self._faults.end()
        self._come_to_rest()
        self._close_all()

    def _come_to_rest(self) -> None:
        world = self._world
        deadline = world.clock.now + _GRACE + 3 * world.schedule.lock
        done = 0
        while unfinished := world.oracle.unfinished():
            if not world.live():
                world.join(world.schedule.members[0])
            if world.clock.now >= deadline:
                raise Violation("S11", f"not ended: {unfinished}\n{world.report()}")
            if len(world.oracle.taken) > done:
                # Slow records may take longer than that together.
                done = len(world.oracle.taken)
                deadline = world.clock.now + _GRACE + 3 * world.schedule.lock
            world.clock.run_until(min(world.clock.now + 0.5, deadline))

    def _close_all(self) -> None:
        world = self._world
        world.closes = True
        for application in world.live():
            application.close()
        end = world.clock.now + CLOSE_TIMEOUT + _CLOSE_LATE

        def is_over() -> bool:
            return not any(a.member.alive for a in world.applications.values())

        world.clock.run_until(end, is_over)
        if not is_over():
            raise Violation("close", "members have not closed\n" + world.report())
        world.oracle.check_end()


def run_share(schedule: ShareSchedule, *, digest: bool = False) -> ScheduleOutcome:
    """Run a schedule. An exception out of a core is a failure like any other. With ``digest``, the
    outcome has a digest of all that left the cores (S12)."""
    world = ShareCluster(schedule)
    if digest:
        world.oracle.digest = hashlib.sha256()
    return run_share_world(world)


def run_share_world(world: ShareCluster) -> ScheduleOutcome:
    """Run a new world's schedule."""
    outcome = ScheduleOutcome(world.schedule.seed)
    try:
        ShareRun(world).run()
    except Violation as violation:
        outcome.failure, outcome.invariant = str(violation), violation.invariant
    except Exception as error:  # noqa: BLE001 - a core must never raise, whatever it is
        outcome.failure = "".join(traceback.format_exception(error))
        outcome.invariant = "raised"
    if outcome.failure is not None:
        outcome.trace = "\n".join(
            f"{at:9.4f} {'world' if client < 0 else f'client {client}':9} {describe(what)}"
            for at, client, what in world.oracle.trace
        )
    outcome.alarms = world.clock.happened
    outcome.counts = world.oracle.counts
    if world.oracle.digest is not None:
        outcome.digest = world.oracle.digest.hexdigest()
    return outcome


def shrink_share(schedule: ShareSchedule) -> ShareSchedule:
    """Drop incidents, disturbances and members as long as the same invariant still fails."""
    wanted = run_share(schedule).invariant
    runs, progress = 0, True
    while progress and runs < _MOST_SHRINK_RUNS:
        progress = False
        for smaller in schedule.smaller():
            runs += 1
            if run_share(smaller).invariant == wanted:
                schedule, progress = smaller, True
                break
            if runs >= _MOST_SHRINK_RUNS:
                break
    return schedule


def _run_seed(disturbance: ShareDisturbance | None, seed: int) -> ScheduleOutcome:
    return run_share(draw_share(seed, disturbance))


def run_many_share(
    seeds: Iterable[int],
    disturbance: ShareDisturbance | None = None,
    *,
    processes: int = 1,
    stop_after: int = 5,
) -> Summary:
    """Run the schedules of many seeds, until ``stop_after`` of them have failed."""
    summary = Summary()
    started = time.perf_counter()
    run_one = partial(_run_seed, disturbance)
    if processes > 1:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            for outcome in pool.imap_unordered(run_one, seeds, chunksize=5):
                summary.add(outcome)
                if len(summary.failures) >= stop_after:
                    pool.terminate()
                    break
    else:
        for seed in seeds:
            summary.add(run_one(seed))
            if len(summary.failures) >= stop_after:
                break
    summary.seconds = time.perf_counter() - started
    summary.failures.sort(key=lambda outcome: outcome.seed)
    return summary
