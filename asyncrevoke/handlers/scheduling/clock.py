"""The clock of retries, batches, rate limits and time limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A scheduled call. Implemented by :class:`asyncio.TimerHandle`."""

    def cancel(self) -> None:
        """Do not make the call."""


class HandlerClock(Protocol):
    """Time in seconds, and scheduled calls. Implemented by event loops."""

    def time(self) -> float:
        """Seconds since some moment; never decreases."""
        ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer:
        """Call ``callback`` after ``delay`` seconds."""
        ...
