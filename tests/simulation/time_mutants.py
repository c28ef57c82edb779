"""Cores with one bug each that costs time, or runs without end at one instant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.mutants import Mutant, slow_tasks_and_a_crowd

from asyncrevoke.core.poller import Poller
from asyncrevoke.testing.simulation.application import Shape

if TYPE_CHECKING:
    import pytest


def waiting_poll_wakes_itself(patch: pytest.MonkeyPatch) -> None:
    """What a poll finds that waits for a delay to be renewed wakes the next one at once."""

    def tick_due(self: Poller, now: float) -> bool:
        if self._revocation.delayed_by_hand:
            self._outbox.wake()
        return self._revocation.delayed_by_hand and now >= self._started_at + 0.25

    patch.setattr(Poller, "_tick_due", tick_due)


def tick_is_set_again_at_its_own_time(patch: pytest.MonkeyPatch) -> None:
    def tick(self: Poller, now: float) -> None:
        self._outbox.set_timer("revoke-tick", now, self._tick)

    patch.setattr(Poller, "_tick", tick)


MUTANTS = [
    Mutant(
        "a waiting poll wakes itself",
        waiting_poll_wakes_itself,
        ("busy loop",),
        tweak=slow_tasks_and_a_crowd(Shape.ACK),
    ),
    Mutant(
        "a timer is set again at its own time",
        tick_is_set_again_at_its_own_time,
        ("busy loop",),
        tweak=slow_tasks_and_a_crowd(Shape.ACK),
    ),
]
