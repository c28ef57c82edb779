"""What polling and leaving report to the core."""

from __future__ import annotations

from typing import Protocol


class PollReactions(Protocol):
    """Implemented by :class:`asyncrevoke.client.core.core.Core`."""

    def poll_started(self, now: float) -> None:
        """The loop asks for the next batch."""

    def max_poll_interval_exceeded(self, now: float) -> None:
        """The loop has not asked for a batch within ``max_poll_interval``."""

    def closing_ended(self) -> None:
        """The consumer is closed: end everything that waits."""
