"""The schedule of the demo: when members join and leave."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Action(enum.StrEnum):
    """A change of a member: ``stop`` is a SIGTERM, ``kill`` a SIGKILL."""

    JOIN = "joins"
    STOP = "leaves"
    KILL = "is killed"


class ScheduleStep(NamedTuple):
    """``at`` is in seconds after the start."""

    at: float
    action: Action
    member: str


def churn(seconds: float, *, kill: bool = False) -> tuple[ScheduleStep, ...]:
    """Four members within ``seconds``: three join, one leaves, a fourth joins, another leaves (or
    is killed, with ``kill``)."""
    sixth = seconds / 6
    return (
        ScheduleStep(0, Action.JOIN, "A"),
        ScheduleStep(sixth, Action.JOIN, "B"),
        ScheduleStep(2 * sixth, Action.JOIN, "C"),
        ScheduleStep(3 * sixth, Action.STOP, "A"),
        ScheduleStep(4 * sixth, Action.JOIN, "D"),
        ScheduleStep(5 * sixth, Action.KILL if kill else Action.STOP, "B"),
    )
