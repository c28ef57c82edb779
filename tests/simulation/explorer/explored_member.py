"""A member whose timers and work are points of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.explorer.branches import Branches, PassedEvent
from simulation.explorer.explored_network import MEMBER_OPTIONS, WAIT
from simulation.members.driven_member import CoreT, DrivenMember
from simulation.members.member import SimulatedMember
from typing_extensions import override

from asyncrevoke.client.core.core import Core
from asyncrevoke.testing.fake_kafka.clock import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.core.io.effects import Event


class ExploredTimers(DrivenMember[CoreT]):
    """Its timers may be late, and its work may take longer. What it does at once, as an event loop
    does what it is told to do soon, happens in its order."""

    # Set by its cluster, before the member does anything.
    branches: Branches

    @override
    def receive(self, event: Event) -> None:
        super().receive(event)
        self.branches.happened(self.client)

    @override
    def _fire(self, key: str) -> None:
        due = self._timers[key]
        fire = super()._fire

        def fire_unless_cancelled() -> None:
            if self._timers.get(key) is due:
                fire(key)

        event = PassedEvent(f"client {self.client}: timer {key}", (WAIT,), self.client, self.client)
        self.branches.pass_event(event, fire_unless_cancelled)

    @override
    def later(self, seconds: float, action: Callable[[], None]) -> Alarm:
        if seconds <= 0:
            return super().later(seconds, action)
        step = Alarm(self._clock.now + seconds, lambda: self._act(action))

        def act_unless_cancelled() -> None:
            if step.action is not None and self.alive:
                act, step.action = step.action, None
                act()
                self.branches.happened(self.client)

        event = PassedEvent(
            f"client {self.client} goes on", MEMBER_OPTIONS, self.client, self.client
        )
        self._clock.after(seconds, lambda: self.branches.pass_event(event, act_unless_cancelled))
        return step


class ExploredMember(ExploredTimers[Core], SimulatedMember):
    """A member of a consumer group."""
