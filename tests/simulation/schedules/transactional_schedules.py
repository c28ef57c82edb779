"""Schedules whose members write results and offsets in transactions."""

from __future__ import annotations

import dataclasses
from random import Random

from simulation.schedules.schedule import (
    Disturbance,
    GroupMode,
    Incident,
    IncidentKind,
    Schedule,
    draw,
)
from simulation.schedules.transaction_plan import TransactionPlan


def draw_with_transactions(
    seed: int, mode: GroupMode | None = None, disturbance: Disturbance | None = None
) -> Schedule:
    """The schedule of a seed, :func:`with_transactions`."""
    return with_transactions(draw(seed, mode, disturbance))


def with_transactions(schedule: Schedule) -> Schedule:
    """The same schedule of members that process exactly once. With faults, the coordinator of
    transactions moves too, and transactional ids expire. No topic is created again: its
    records could not be told from the former ones."""
    rng = Random(f"transactions {schedule.seed}")
    plan = TransactionPlan(
        version=rng.choice((0, 1, 2, 2, 2)),
        timeout=rng.choice((3.0, 10.0)),
        interval=rng.choice((0.1, 0.4)),
        fences_expired=rng.random() < 0.3,
        results=rng.choice((1, 2, 3)),
        upgraded_at=rng.uniform(1.0, schedule.duration) if rng.random() < 0.2 else None,
        blocks=0.4,
        unknown_outcomes=0.05 if schedule.disturbance is Disturbance.FAULTS else 0.0,
    )
    incidents = [
        dataclasses.replace(incident, kind=IncidentKind.JOIN)
        if incident.kind is IncidentKind.RECREATE
        else incident
        for incident in schedule.incidents
    ]
    kinds: list[IncidentKind] = []
    if schedule.disturbance in (Disturbance.FAULTS, Disturbance.MOVES):
        kinds += [IncidentKind.MOVE_TRANSACTIONS] * rng.choice((0, 1, 2))
    if schedule.disturbance is Disturbance.FAULTS:
        kinds += [IncidentKind.FORGET_ID] * rng.choice((0, 0, 1))
    incidents += [
        Incident(
            0.5 + rng.random() * (schedule.duration - 1.5),
            kind,
            rng.randrange(1000),
            rng.random() * 2.0,
        )
        for kind in kinds
    ]
    incidents.sort(key=lambda incident: incident.at)
    return dataclasses.replace(schedule, transactions=plan, incidents=tuple(incidents))
