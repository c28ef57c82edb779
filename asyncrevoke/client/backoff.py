"""Exponential backoff: the delay before the next attempt."""

from __future__ import annotations


class Backoff:
    """The delay before the next attempt: ``first`` seconds after the first failure, twice as long
    after each further failure, at most ``longest`` seconds.

    It has no clock and no jitter: the caller adds the delay to the time, and varies it.
    """

    def __init__(self, first: float, longest: float) -> None:
        if not 0 < first <= longest:
            raise ValueError(f"a backoff cannot grow from {first} to {longest} seconds")
        self._first = first
        self._longest = longest
        # The delay after the last failure; 0 after a success.
        self._delay = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether an attempt has failed since the last success."""
        return self._delay > 0

    def failed(self, longest: float | None = None) -> float:
        """An attempt has failed. Returns the seconds to wait before the next one.

        ``longest`` replaces the limit for failures of this kind.
        """
        limit = self._longest if longest is None else longest
        self._delay = min(max(self._delay * 2, self._first), limit)
        return self._delay

    def succeeded(self) -> None:
        """An attempt has succeeded: the next failure waits ``first`` seconds again."""
        self._delay = 0.0
