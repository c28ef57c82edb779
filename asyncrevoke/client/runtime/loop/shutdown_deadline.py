"""The deadline of a consumer that stops, whatever stopped it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.deadline import CANCELLED_WORK, Deadline, time_for_running

if TYPE_CHECKING:
    from collections.abc import Callable


class ShutdownDeadline:
    """Begins with the first signal, stop, failure or close; every wait of the shutdown ends by it.
    ``time`` is the event loop's clock."""

    def __init__(self, time: Callable[[], float], close_timeout: float) -> None:
        self._time = time
        self._close_timeout = close_timeout
        self._deadline: Deadline | None = None

    def begin(self) -> Deadline:
        """Begin now, unless it has begun."""
        if self._deadline is None:
            self._deadline = Deadline.after(self._time(), self._close_timeout)
        return self._deadline

    @property
    def end(self) -> float | None:
        """When everything must have ended, by the event loop's clock; None before it begins."""
        return None if self._deadline is None else self._deadline.end

    def until_gaps_end(self) -> float | None:
        """Seconds in which handlers of gaps may start; None before the deadline begins."""
        if self._deadline is None:
            return None
        work, begun = self._deadline.work, self._deadline.end - self._close_timeout
        return max(0.0, work - time_for_running(work - begun) - self._time())

    def until_commits_end(self, most: float) -> float:
        """Seconds that cancelled handlers have to end; ``most`` before the deadline begins."""
        return most if self._deadline is None else min(most, self._left(self._deadline.commits))

    def until_end(self) -> float | None:
        """Seconds until the end; None before the deadline begins."""
        return None if self._deadline is None else self._left(self._deadline.end)

    def _left(self, until: float) -> float:
        return max(CANCELLED_WORK, until - self._time())
