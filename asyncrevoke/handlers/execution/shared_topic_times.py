"""The times of calls of a topic with several handlers, by handler."""

from __future__ import annotations


class SharedTopicTimes:
    """A worker appends the seconds of a call; :meth:`returned` has named the handler before."""

    __slots__ = ("_handler", "_seconds")

    def __init__(self) -> None:
        self._handler: str | None = None
        self._seconds: dict[str, list[float]] = {}

    def returned(self, handler: str | None) -> None:
        """A call of this handler has returned; None: the next time is not that of a call."""
        self._handler = handler

    def append(self, seconds: float) -> None:
        """Add the seconds of the call that has returned."""
        if self._handler is not None:
            self._seconds.setdefault(self._handler, []).append(seconds)

    def take(self) -> dict[str, list[float]]:
        """Return the seconds of the calls since the last :meth:`take`, by handler."""
        seconds, self._seconds = self._seconds, {}
        return seconds
