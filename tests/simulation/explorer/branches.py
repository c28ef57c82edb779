"""The points of one run at which something else may happen than usual."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from simulation.explorer.path import Choice, Deviation, Path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    from asyncrevoke.testing.fake_kafka.clock import Alarm, Clock

Option: TypeAlias = tuple[Deviation, int]

# Seconds that a message or a timer waits at most.
LONGEST_WAIT: Final = 2.0
_NONE = Choice(-1, Deviation.WAIT)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a run may deviate, in virtual seconds, for how many events something may wait, and how
    many seconds after the first deviation of a path the last one may be."""

    begin: float
    end: float
    longest_wait: int
    apart: float = math.inf


@dataclass(frozen=True, slots=True)
class PassedState:
    """A state after the last choice of a path: its fingerprint, and how many of the choices that
    lead to longer paths came before."""

    at: float
    fingerprint: bytes
    choices: int


@dataclass(frozen=True, slots=True, eq=False)
class PassedEvent:
    """An event that may wait, with what else may happen before it.

    ``receiver`` handles one event after the other: a member, or the group coordinator. ``stream``
    is one direction of a connection, in which messages do not overtake each other; None if it is
    not a message. ``client`` sends or receives it.
    """

    point: str
    options: tuple[Option, ...]
    receiver: Hashable
    client: int
    stream: Hashable = None


@dataclass(slots=True, eq=False)
class _Waiting:
    """``actions`` are called, in order, when so many ``events`` more have happened."""

    choice: Choice
    event: PassedEvent
    events: int
    actions: list[Callable[[], None]]
    longest: Alarm = field(init=False)


class Branches:
    """Numbers the points within ``bounds``, lets happen there what ``path`` says, and collects
    what else could happen after its last choice."""

    def __init__(self, clock: Clock, path: Path, bounds: Bounds) -> None:
        # Told of each choice of the path when its point is reached, with what the point is.
        self.deviates: Callable[[Choice, str], None] = lambda _choice, _point: None
        # Carries out a choice that is about a member, and not about what it waits for.
        self.befall: Callable[[Choice, int], None] = lambda _choice, _client: None
        self.points = 0
        # Choices that lead from this path to longer ones, and to the one with a longer wait.
        self.further: list[Choice] = []
        self.longer_wait: Choice | None = None
        self.states: list[PassedState] = []
        self._clock = clock
        self._bounds = bounds
        self._left = {choice.point: choice for choice in path.choices}
        self._last = path.choices[-1] if path.choices else _NONE
        self._waiting: list[_Waiting] = []
        self._first_at = math.inf

    @property
    def missed(self) -> list[Choice]:
        """The choices of the path whose points were not reached, or are points of other kinds."""
        return list(self._left.values())

    def choose(self, point: str, options: Collection[Option]) -> Choice | None:
        """What the path says for the next point; None: what happens usually."""
        now = self._clock.now
        if not self._bounds.begin <= now < self._bounds.end:
            return None
        number = self.points
        self.points += 1
        if number > self._last.point and now <= self._first_at + self._bounds.apart:
            self.further += [Choice(number, deviation, amount) for deviation, amount in options]
        choice = self._left.get(number)
        if choice is None or all(choice.deviation is not deviation for deviation, _ in options):
            return None
        del self._left[number]
        self._first_at = min(self._first_at, now)
        self.deviates(choice, point)
        return choice

    def add_state(self, take: Callable[[], bytes]) -> None:
        """Take the fingerprint of the run, unless a choice of the path is still to come or ends
        later."""
        if not self._left and not self._waiting:
            self.states.append(PassedState(self._clock.now, take(), len(self.further)))

    def pass_event(self, event: PassedEvent, action: Callable[[], None]) -> None:
        """Reach the point before an event, and call ``action``, which lets the event happen, at
        once or later."""
        for waiting in self._waiting:
            if event.stream is not None and waiting.event.stream == event.stream:
                waiting.actions.append(action)
                return
        choice = self.choose(event.point, event.options)
        if choice is not None and choice.deviation is Deviation.WAIT:
            waiting = _Waiting(choice, event, choice.amount, [action])
            self._waiting.append(waiting)
            waiting.longest = self._clock.after(LONGEST_WAIT, partial(self._end_wait, waiting))
            return
        if choice is not None:
            self.befall(choice, event.client)
        action()

    def happened(self, receiver: Hashable) -> None:
        """The receiver has handled an event."""
        for waiting in self._waiting:
            if waiting.event.receiver == receiver:
                waiting.events -= 1
                if not waiting.events:
                    self._find_longer_wait(waiting.choice)
                    self._clock.after(0.0, partial(self._end_wait, waiting))

    def _find_longer_wait(self, choice: Choice) -> None:
        # Who waits for as long as possible cannot wait for more events.
        if choice is self._last and choice.amount < self._bounds.longest_wait:
            self.longer_wait = Choice(choice.point, choice.deviation, choice.amount + 1)

    def _end_wait(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            waiting.longest.cancel()
            for action in waiting.actions:
                action()
