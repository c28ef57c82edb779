"""No timer and no poll repeats itself at one instant, also where timers fire too early."""

from pathlib import Path

import msgspec
import pytest
from simulation.members.member import SimulatedMember
from simulation.runner import run
from simulation.schedules.schedule import Schedule

from asyncrevoke.client.core.poll.poll import Poller


class _Found(msgspec.Struct):
    why: str
    schedule: Schedule


def _schedule() -> Schedule:
    file = Path(__file__).parents[2] / "schedules" / "found.jsonl"
    lines = file.read_text("utf-8").splitlines()
    found = [msgspec.json.decode(line, type=_Found) for line in lines]
    (schedule,) = [candidate.schedule for candidate in found if "fired too early" in candidate.why]
    return schedule


def _arm(self: SimulatedMember, key: str, at: float) -> None:
    """By the member's own clock each timer fires before its time, by what a rounding error is."""
    alarm = self._clock.at(at - self._offset - 1e-9, lambda: self._fire(key))
    self._timers[key] = (at, alarm)


def _compared_with_the_clock(self: Poller, now: float) -> bool:
    if not self._revocation.delayed_by_user:
        return False
    at = self._started_at + self._config.delayed_revoke_poll_interval
    if now >= at:
        return True
    if not self._outbox.has_timer("revoke-tick"):
        self._outbox.set_timer("revoke-tick", at, lambda _now: self._outbox.wake())
    return False


def test_timers_that_fire_a_rounding_error_early_are_not_set_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SimulatedMember, "_arm", _arm)
    with pytest.MonkeyPatch.context() as former:
        former.setattr(Poller, "_tick_due", _compared_with_the_clock)
        assert run(_schedule()).invariant == "busy loop"
    outcome = run(_schedule())
    assert outcome.failure is None, outcome.failure
