"""Topics whose records are delivered when they are due, and not before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from asyncrevoke.model import Record

# Clocks have milliseconds here, and what is due within one is due.
_RESOLUTION = 0.001
# How late a record may come that is due soon after another: so they come together.
_SHORTEST = 0.01


class TopicDelay(NamedTuple):
    """When the records of one topic are due.

    ``due(record)`` is in milliseconds since the epoch, 0 for at once; it is pure and raises
    nothing. ``longest`` is how long, in seconds, a record waits at most, whatever it says.
    """

    max_delay: float
    due: Callable[[Record], float]


class DueRecords:
    """How far the records of one partition are due, in offset order.

    Who wrote them may have a clock that is ahead of ours. A record that would wait for more than
    ``longest`` says by how much, and that is taken off what those behind it say.
    """

    def __init__(self, delay: TopicDelay) -> None:
        self._delay = delay
        self._ahead = 0.0
        # Seconds until the first record that is not due is to be looked at again; None if all are.
        self.wait: float | None = None

    def due_to(self, records: Sequence[Record], first: int, end: int, wall_time: float) -> int:
        """The index of the first record that is not due, from ``first`` on; ``end`` if all are."""
        delay = self._delay
        for index in range(first, end):
            wait = delay.due(records[index]) / 1000 - wall_time
            if wait < _RESOLUTION:
                self._ahead = 0.0
                continue
            wait -= self._ahead
            if wait < _RESOLUTION:
                continue
            if wait > delay.max_delay:
                self._ahead += wait - delay.max_delay
                wait = delay.max_delay
            self.wait = max(wait, _SHORTEST)
            return index
        self.wait = None
        return end
