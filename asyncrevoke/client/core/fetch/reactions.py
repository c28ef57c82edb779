"""What fetching reports to the other rooms, and what its parts report to the fetcher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.core.fetch.cursor import PartitionCursor
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


class CursorReactions(Protocol):
    """Implemented by :class:`asyncrevoke.client.core.fetch.fetcher.Fetcher`."""

    def buffer_appended(self, cursor: PartitionCursor) -> None:
        """Fetched batches were appended to its buffer."""

    def position_checked(self, now: float, cursor: PartitionCursor) -> None:
        """Its position is in the log of the leader: it may be fetched."""

    def check_delayed(self, cursor: PartitionCursor) -> None:
        """Its position is to be checked later."""

    def position_diverged(
        self, now: float, cursor: PartitionCursor, offset: int | None, leader_epoch: int
    ) -> None:
        """The leader's log ends at ``offset``, before the end of what was fetched; None if
        unknown."""

    def records_taken(self, now: float, cursor: PartitionCursor) -> None:
        """A poll has taken records from its buffer."""

    def record_due(self, cursor: PartitionCursor) -> None:
        """Its next record may be delivered now (delayed topics)."""
