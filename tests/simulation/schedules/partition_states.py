"""Schedules whose members keep a state for each partition, in lifespans."""

from __future__ import annotations

import dataclasses
from random import Random

from simulation.members.consumer_style import Progress
from simulation.schedules.schedule import Disturbance, GroupMode, IncidentKind, Schedule, draw


def draw_with_lifespans(
    seed: int, mode: GroupMode | None = None, disturbance: Disturbance | None = None
) -> Schedule:
    """The schedule of a seed, :func:`with_lifespans`."""
    return with_lifespans(draw(seed, mode, disturbance))


def with_lifespans(schedule: Schedule) -> Schedule:
    """The same schedule of members that all have lifespans: they store an offset, or a completion
    map too. A topic that is created again has another state."""
    rng = Random(f"lifespans {schedule.seed}")
    progress = rng.choice(tuple(Progress))
    incidents = tuple(
        dataclasses.replace(incident, kind=IncidentKind.JOIN)
        if incident.kind is IncidentKind.RECREATE
        else incident
        for incident in schedule.incidents
    )
    return dataclasses.replace(schedule, lifespans=progress, incidents=incidents)
