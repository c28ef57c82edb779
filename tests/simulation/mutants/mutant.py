"""A mutant: a core with one bug, to prove that the oracles see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.schedules.schedule import (
    Disturbance,
    GroupMode,
    Schedule,
    draw,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


@dataclass(frozen=True)
class Mutant:
    """A patch of one decision of the core; one of the invariants ``caught_by`` has to object.

    ``mode`` and ``disturbance`` are where the bug can show.
    """

    name: str
    patch: Callable[[pytest.MonkeyPatch], None]
    caught_by: tuple[str, ...]
    mode: GroupMode = GroupMode.COOPERATIVE
    disturbance: Disturbance = Disturbance.NONE
    tweak: Callable[[Schedule], Schedule] = lambda schedule: schedule

    def schedule(self, seed: int) -> Schedule:
        """The schedule of a seed, bent towards where the bug can show."""
        return self.tweak(draw(seed, self.mode, self.disturbance))
