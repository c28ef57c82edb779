"""Schedules in which bugs show that usual ones rarely meet."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from simulation.members.consumer_style import ConsumerStyle, WorkTime
from simulation.schedules.schedule import (
    GroupMode,
    Incident,
    IncidentKind,
    MemberPlan,
    Schedule,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def long_freezes(schedule: Schedule) -> Schedule:
    """Two members are frozen for longer than their session, and thus lose what they have."""
    freezes = (
        Incident(3.0, IncidentKind.FREEZE, schedule.seed, 8.0),
        Incident(4.0, IncidentKind.FREEZE, schedule.seed + 1, 8.0),
    )
    return dataclasses.replace(
        schedule, incidents=schedule.incidents + freezes, session_timeout=6.0, duration=14.0
    )


def throttled_brokers(schedule: Schedule) -> Schedule:
    """All brokers throttle fetches for some seconds, one after the other."""
    throttles = tuple(
        Incident(2.0 + number, IncidentKind.THROTTLE, number, 6.0) for number in range(3)
    )
    return dataclasses.replace(schedule, incidents=throttles, duration=12.0)


def slow_tasks_and_a_crowd(
    style: ConsumerStyle, revoke_timeout: float | None = None
) -> Callable[[Schedule], Schedule]:
    """Members come one upon the other while work of some seconds is under way."""

    def tweak(schedule: Schedule) -> Schedule:
        members = tuple(
            MemberPlan(0.1 * number, style, WorkTime(0.3, 2.5, 0.5)) for number in range(2)
        )
        crowd = tuple(
            Incident(3.0 + 0.7 * number, IncidentKind.JOIN, number) for number in range(5)
        )
        return dataclasses.replace(
            schedule,
            members=members,
            incidents=crowd,
            topics=(6,),
            duration=10.0,
            revoke_timeout=revoke_timeout,
        )

    return tweak


def crashes_amid_slow_tasks(schedule: Schedule) -> Schedule:
    """Members die while some of their work takes seconds, and more has been done beyond it."""
    members = tuple(
        MemberPlan(0.1 * n, ConsumerStyle.TASKS, WorkTime(0.05, 4.0, 0.1)) for n in range(3)
    )
    crashes = tuple(Incident(3.0 + n, IncidentKind.CRASH, schedule.seed + n) for n in range(2))
    return dataclasses.replace(
        schedule, members=members, incidents=crashes, topics=(4,), duration=9.0, produce_every=0.15
    )


def parked_behind_an_eager_member(schedule: Schedule) -> Schedule:
    """An eager member drains for long at each rebalance, while JoinGroups of the others wait."""
    members = tuple(
        MemberPlan(0.1 * n, ConsumerStyle.TASKS, WorkTime(0.5, 2.5, 0.3)) for n in range(3)
    )
    return dataclasses.replace(
        schedule,
        mode=GroupMode.MIXED,
        later_assignors=("cooperative-sticky", "range"),
        members=members,
        incidents=(
            Incident(1.0, IncidentKind.REPLACE, 0),
            *(Incident(5.0 + 0.8 * n, IncidentKind.JOIN, n) for n in range(4)),
        ),
        topics=(8,),
        duration=11.0,
        produce_every=0.1,
    )


def many_lost_responses(schedule: Schedule) -> Schedule:
    """Members come and go while a quarter of all requests breaks its connection."""
    crowd = tuple(Incident(1.0 + 1.5 * n, IncidentKind.JOIN, n) for n in range(3))
    return dataclasses.replace(schedule, loss=0.25, incidents=crowd, topics=(6,))


def slow_commits(schedule: Schedule) -> Schedule:
    """Every second packet takes its time, so that a commit may arrive after a later heartbeat."""
    crowd = tuple(Incident(1.0 + 0.7 * n, IncidentKind.JOIN, n) for n in range(5))
    return dataclasses.replace(schedule, slow=0.5, incidents=crowd, topics=(6,), produce_every=0.05)


def moves_amid_rebalances(schedule: Schedule) -> Schedule:
    """Members join one by one, and most times the coordinator moves before they are assigned."""
    joins = tuple(Incident(1.5 * n, IncidentKind.JOIN, n) for n in range(1, 6))
    moves = tuple(
        Incident(1.5 * n - 0.1, IncidentKind.MOVE_AMID, n, 0.003 * n) for n in range(1, 6)
    )
    return dataclasses.replace(
        schedule, brokers=3, incidents=joins + moves, topics=(8,), duration=9.0, slow=0.3
    )


def many_partitions_and_unequal_drains(schedule: Schedule) -> Schedule:
    """Two members take the partitions of one, of which some are at slow work."""
    members = tuple(
        MemberPlan(at, ConsumerStyle.TASKS, WorkTime(0.02, 5.0, 0.15)) for at in (0.1, 4.0, 4.2)
    )
    return dataclasses.replace(
        schedule, topics=(14,), members=members, duration=12.0, static=False, produce_every=0.15
    )


def partitions_are_added_late(schedule: Schedule) -> Schedule:
    """When all have joined, topics grow, and nobody joins or leaves any more."""
    members = tuple(dataclasses.replace(member, at=0.1) for member in schedule.members)
    grown = tuple(Incident(5.0 + n, IncidentKind.PARTITIONS, n) for n in range(2))
    return dataclasses.replace(schedule, members=members, incidents=grown, duration=9.0)
