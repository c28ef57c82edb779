"""Time, as handlers need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """It is not made."""
        ...


class Clock(Protocol):
    """Time in seconds, and calls that are due later. An event loop is one."""

    def time(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer:
        """Call this after ``delay`` seconds."""
        ...
