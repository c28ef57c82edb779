"""How long the calls of the handlers of one topic took, each handler's by themselves."""

from __future__ import annotations


class SharedTopicTimes:
    """A worker appends the seconds of a call when that has returned. :meth:`returned` has said just
    before whose call it was."""

    __slots__ = ("_handler", "_seconds")

    def __init__(self) -> None:
        self._handler: str | None = None
        self._seconds: dict[str, list[float]] = {}

    def returned(self, handler: str | None) -> None:
        """A call of this handler has returned; None: what has ended is no call."""
        self._handler = handler

    def append(self, seconds: float) -> None:
        """How long it took."""
        if self._handler is not None:
            self._seconds.setdefault(self._handler, []).append(seconds)

    def take(self) -> dict[str, list[float]]:
        """By handler, the seconds of the calls since the last time this was called."""
        seconds, self._seconds = self._seconds, {}
        return seconds
