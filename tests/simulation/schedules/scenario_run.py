"""Runs a schedule on a simulated cluster until the cluster has settled."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from simulation.brokers.converting_group import ConvertingGroup
from simulation.cluster.simulated_cluster import CLOSE_TIMEOUT
from simulation.invariants.liveness.stall_oracle import LOOK_EVERY
from simulation.invariants.oracle_state import Violation
from simulation.members.consumer_style import ConsumerStyle, WorkTime
from simulation.schedules.fault_injection import FaultInjector
from simulation.schedules.schedule import Disturbance

from asyncrevoke.testing.fake_kafka.group_state import GroupState

if TYPE_CHECKING:
    from simulation.cluster.simulated_cluster import SimulatedCluster
    from simulation.schedules.schedule import Incident, MemberPlan


class ScenarioRun:
    """One run of a schedule. ``run`` raises :class:`Violation` if an oracle objects."""

    def __init__(self, world: SimulatedCluster) -> None:
        self._world = world
        self._faults = FaultInjector(world)
        # A member has joined to make a group rebalance that leaves partitions unread.
        self._rescued = False

    def run(self) -> None:
        """Run the schedule to its end."""
        world = self._world
        schedule, clock = world.schedule, world.clock
        for plan in schedule.members:
            clock.at(plan.at, partial(self._join_planned, plan))
        for incident in schedule.incidents:
            clock.at(incident.at, partial(self._apply, incident))
        if schedule.loss:
            world.state.lossy = True
            self._faults.lose_requests(schedule.loss)
        world.producing_until = schedule.duration
        world.produce()
        self._look()
        clock.run_until(schedule.duration)
        self._faults.end()
        self._come_to_rest()
        self._close_all()

    def _apply(self, incident: Incident) -> None:
        self._world.state.note(-1, incident)
        self._faults.apply(incident)

    def _look(self) -> None:
        self._world.checker.look()
        if not self._world.closing:
            self._world.clock.after(LOOK_EVERY, self._look)

    def _come_to_rest(self) -> None:
        world, schedule = self._world, self._world.schedule
        grace = 25.0 + 2 * (schedule.rebalance_timeout + schedule.session_timeout)
        if schedule.disturbance is Disturbance.FAULTS:
            grace += 30.0
        deadline, done = world.clock.now + grace, 0
        while world.checker.unfinished(self._live_clients()):
            if world.state.counts["done"] > done:
                # Slow records may take longer than that together.
                done = world.state.counts["done"]
                deadline = world.clock.now + grace
            if not world.live():
                world.join(ConsumerStyle.LOOP, WorkTime(), schedule.later_assignors)
            elif not self._rescued and self._is_overlooked():
                self._rescued = True
                deadline = world.clock.now + grace
                world.join(ConsumerStyle.LOOP, WorkTime(), schedule.later_assignors)
            if world.clock.now >= deadline:
                world.checker.must_be_at_rest(self._live_clients(), world.report())
            world.clock.run_until(min(world.clock.now + 0.25, deadline))

    def _is_overlooked(self) -> bool:
        """Whether nothing is wrong but that the coordinator takes partitions for read."""
        group, checker = self._world.group, self._world.checker
        return isinstance(group, ConvertingGroup) and checker.lacks_readers_alone(
            self._live_clients(), group.unread
        )

    def _live_clients(self) -> list[int]:
        return [a.member.client for a in self._world.live()]

    def _close_all(self) -> None:
        world = self._world
        world.closing = True
        for application in list(world.live()):
            if world.joins.random() < 0.5:
                application.stop()
            else:
                application.leave()
        deadline = world.clock.now + CLOSE_TIMEOUT + world.schedule.session_timeout + 5
        world.clock.run_until(deadline, self._is_over)
        if not self._is_over():
            raise Violation("close", "members have not closed\n" + world.report())
        world.check_end()
        reasons = world.checker.deliveries.missing(released=True)
        if reasons:
            raise Violation("I5", "after closing: " + "; ".join(reasons.values()))

    def _is_over(self) -> bool:
        return self._world.group.state is GroupState.EMPTY and not any(
            a.member.alive for a in self._world.applications.values()
        )

    def _join_planned(self, plan: MemberPlan) -> None:
        self._world.join(plan.style, plan.work_time, protocol=plan.protocol)
