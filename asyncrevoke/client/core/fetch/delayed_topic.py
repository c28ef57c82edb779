"""Topics whose records are delivered only when they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.model import Record, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The resolution of timestamps: a record that is due within it is due.
_RESOLUTION = 0.001
# Records that become due within this time are delivered together.
_SHORTEST = 0.01


class TopicDelay(Value, frozen=True):
    """When the records of one topic are due. ``due(record)``, a pure function that does not raise,
    is in milliseconds since the epoch, 0 for at once. A record waits for at most ``max_delay``
    seconds."""

    max_delay: float
    due: Callable[[Record], float]


class DueRecords:
    """How far the records of one partition are due, in offset order.

    A producer's clock may be ahead. If a record would wait longer than ``max_delay``, it and the
    records after it are due that much earlier.
    """

    def __init__(self, delay: TopicDelay) -> None:
        self._delay = delay
        self._ahead = 0.0
        # Seconds until the first record that is not due is looked at again; None if all are due.
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
