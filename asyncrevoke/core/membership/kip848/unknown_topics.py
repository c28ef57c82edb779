"""Assigned partitions of a KIP-848 member that the metadata do not have yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.backoff import Backoff

if TYPE_CHECKING:
    from asyncrevoke.core.io.outbox import Outbox
    from asyncrevoke.core.metadata.cluster import ClusterMetadata

_TIMER = "unknown topics"
# Between metadata requests.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class UnknownTopics:
    """Requests the metadata of unknown assigned partitions, less and less often."""

    def __init__(self, outbox: Outbox, cluster: ClusterMetadata) -> None:
        self._outbox = outbox
        self._cluster = cluster
        self._pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self.are_assigned = False

    def note(self, are_assigned: bool) -> None:
        """Whether an assigned partition is missing in the metadata."""
        self.are_assigned = are_assigned

    def assignment_changed(self, now: float) -> None:
        """The assignment has changed: ask at once."""
        self._pause.succeeded()
        self.ask(now)

    def ask(self, now: float) -> None:
        """Request metadata if a partition is unknown."""
        if self.are_assigned:
            self._cluster.refresh(now, "partitions of unknown topics are assigned")

    def ask_later(self, now: float) -> None:
        """The metadata that came lack it too: ask later."""
        if self.are_assigned and not self._outbox.has_timer(_TIMER):
            self._outbox.set_timer(_TIMER, now + self._pause.failed(), self.ask)
