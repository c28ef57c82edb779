"""What polling and leaving report to the core."""

from __future__ import annotations

from typing import Protocol


class PollReactions(Protocol):
    """Implemented by :class:`asyncrevoke.client.core.core.Core`."""

    def poll_started(self, now: float) -> None:
        """The loop asks for the next batch."""

    def max_poll_interval_exceeded(self, now: float) -> None:
        """The loop has not asked for a batch within ``max_poll_interval``."""

    def start_leaving(self, now: float, wait_for_tasks: bool) -> None:
        """Release everything, then leave; :meth:`Leaving.left` follows."""

    def leave_uncommitted(self, now: float) -> None:
        """The time for final commits is over: lose what was not committed, and leave."""

    def stop_leaving(self, now: float) -> None:
        """No coordinator has responded in time: unsubscribing ends without its response."""

    def close_timed_out(self, now: float) -> None:
        """No coordinator has responded in time: closing ends without its response."""

    def closing_ended(self) -> None:
        """The consumer is closed: end everything that waits."""
