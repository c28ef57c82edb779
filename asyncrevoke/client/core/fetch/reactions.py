"""What fetching reports to the other folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.core.partition.instance import PartitionInstance


class FetchReactions(Protocol):
    """Implemented by :class:`asyncrevoke.client.core.core.Core`."""

    @property
    def is_poll_waiting(self) -> bool:
        """Whether a poll waits for records."""
        ...

    def position_out_of_range(self, now: float, instance: PartitionInstance) -> None:
        """The position is outside the log."""

    def log_truncated(
        self, now: float, instance: PartitionInstance, offset: int | None, leader_epoch: int
    ) -> None:
        """The log was truncated to ``offset``, before the end of what was delivered; None if
        unknown."""

    def log_end_known(self, now: float, instance: PartitionInstance) -> None:
        """The first fetch of an instance with an unverified completion map has a response."""

    def position_passed(self, now: float, instance: PartitionInstance) -> None:
        """The position has passed batches without records to deliver."""

    def sessions_ended(self) -> None:
        """All fetch sessions have ended, after :meth:`Fetcher.end_sessions`."""

    def failed(self, now: float, error: Exception) -> None:
        """The user must know of an error."""
