"""What each simulated member is: a core, a clock, timers, and an event loop that may be blocked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, TypeVar

from asyncrevoke.client.core.io.driven_core import DrivenCore
from asyncrevoke.client.core.io.effects import (
    DropSilentConnections,
    Effect,
    Event,
    ProbeBroker,
    ResetConnection,
    SetTimer,
    TimerFired,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from simulation.cluster.network import Network

    from asyncrevoke.testing.fake_kafka.clock import Alarm, Clock

CoreT = TypeVar("CoreT", bound=DrivenCore)


class DrivenMember(Generic[CoreT]):
    """``client`` is its number in the simulation: a member that comes back is a new one.

    ``beside``: whether its connections are those of a thread beside the event loop.
    """

    beside = False

    def __init__(
        self, clock: Clock, network: Network, client: int, rng: Random, core: CoreT
    ) -> None:
        self.client = client
        self.rng = rng
        self.core = core
        self.alive = True
        self.wake: Callable[[], None] = lambda: None
        self._clock = clock
        self._network = network
        self._offset = 0.0
        self._timers: dict[str, tuple[float, Alarm]] = {}
        self._frozen_until = 0.0
        self._backlog: list[Callable[[], None]] = []
        self._woken = False

    @property
    def now(self) -> float:
        """The member's own clock."""
        return self._clock.now + self._offset

    @property
    def frozen(self) -> bool:
        """Whether its event loop is blocked."""
        return self._clock.now < self._frozen_until

    # --- the core --------------------------------------------------------------------------------

    def receive(self, event: Event) -> None:
        """A response, or a timer, has come."""
        if not self.alive:
            return
        if self._clock.now < self._frozen_until:
            self._backlog.append(lambda: self._handle(event))
        else:
            self._handle(event)

    def _handle(self, event: Event) -> None:
        self.carry_out(self.core.handle(self.now, event))

    def take_effects(self) -> None:
        """Carry out what a call other than ``handle`` has left."""
        self.carry_out(self.core.take_effects(self.now))

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what the core asks for."""
        raise NotImplementedError

    def _reconnect(self, effect: ResetConnection | DropSilentConnections | ProbeBroker) -> None:
        if isinstance(effect, ResetConnection):
            self._network.reset(self.client, effect.node, effect.channel)
        elif isinstance(effect, ProbeBroker):
            self._network.probe(self, effect)
        else:
            self._network.drop_silent(self.client, effect)

    def _wake_soon(self) -> None:
        if not self._woken:
            self._woken = True
            self.later(0.0, self._wake_now)

    def _wake_now(self) -> None:
        self._woken = False
        self.wake()

    # --- time ------------------------------------------------------------------------------------

    def _set_timer(self, timer: SetTimer) -> None:
        self._cancel_timer(timer.key)
        at = timer.at + timer.spread * self.rng.random()
        self._arm(timer.key, at)

    def _arm(self, key: str, at: float) -> None:
        when = at - self._offset
        if when + self._offset < at:  # rounded: a timer that fires early would be set again at once
            when = math.nextafter(when, math.inf)
        self._timers[key] = (at, self._clock.at(when, lambda: self._fire(key)))

    def _fire(self, key: str) -> None:
        del self._timers[key]
        self.receive(TimerFired(key))

    def _cancel_timer(self, key: str) -> None:
        found = self._timers.pop(key, None)
        if found is not None:
            found[1].cancel()

    def later(self, seconds: float, action: Callable[[], None]) -> Alarm:
        """Let the application do something later, unless it is dead by then."""
        return self._clock.after(seconds, lambda: self._act(action))

    def _act(self, action: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self._clock.now < self._frozen_until:
            self._backlog.append(action)
        else:
            action()

    # --- what befalls it -------------------------------------------------------------------------

    def freeze(self, seconds: float) -> None:
        """Block the event loop for a while."""
        if not self.alive:
            return
        self._frozen_until = max(self._frozen_until, self._clock.now + seconds)
        self._clock.at(self._frozen_until, self._thaw)

    def _thaw(self) -> None:
        while self._backlog and self.alive and self._clock.now >= self._frozen_until:
            self._backlog.pop(0)()

    def jump(self, seconds: float) -> None:
        """Let the member's clock jump ahead, as after a suspended machine."""
        self._offset += seconds
        timers, self._timers = self._timers, {}
        for key, (at, alarm) in timers.items():
            alarm.cancel()
            self._arm(key, at)

    def die(self) -> None:
        """End without a word: nothing of it happens any more."""
        self.alive = False
        for _, alarm in self._timers.values():
            alarm.cancel()
        self._timers.clear()
        self._network.disconnect_client(self.client)
