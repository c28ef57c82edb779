"""Virtual time. The order of alarms depends only on the calls."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

Action: TypeAlias = Callable[[], None]

_MOST_AT_ONCE = 100_000


class StandstillError(Exception):
    """Alarms set alarms for the same time without end, so that time does not advance."""


class Alarm:
    """An action at the time ``at``, unless it is cancelled."""

    __slots__ = ("action", "at")

    def __init__(self, at: float, action: Action) -> None:
        self.at = at
        self.action: Action | None = action

    def cancel(self) -> None:
        """Cancel the action. Does nothing if it was cancelled or has run."""
        self.action = None


class Clock:
    """A queue of alarms. Alarms of the same time run in the order in which they were set."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Alarm]] = []
        self._order = 0
        self._at_once = 0

    def at(self, when: float, action: Action) -> Alarm:
        """Run ``action`` at ``when``, or now if that is in the past."""
        self._order += 1
        alarm = Alarm(max(when, self.now), action)
        heapq.heappush(self._queue, (alarm.at, self._order, alarm))
        return alarm

    def after(self, seconds: float, action: Action) -> Alarm:
        """Run ``action`` in ``seconds``."""
        return self.at(self.now + seconds, action)

    def step(self, until: float) -> bool:
        """Run the next alarm that is due by ``until``. If there is none, set the time to ``until``
        and return False.

        Raises :class:`StandstillError` if time does not advance.
        """
        queue = self._queue
        while queue and queue[0][0] <= until:
            when, _, alarm = heapq.heappop(queue)
            action = alarm.action
            if action is None:
                continue
            self._at_once = self._at_once + 1 if when == self.now else 0
            if self._at_once > _MOST_AT_ONCE:
                raise StandstillError(f"more than {_MOST_AT_ONCE} alarms at {when:.4f}")
            self.now = when
            alarm.action = None
            action()
            return True
        self.now = max(self.now, until)
        return False
