"""What the cluster metadata report to the core."""

from __future__ import annotations

from typing import Protocol


class MetadataReactions(Protocol):
    """Implemented by :class:`asyncrevoke.client.core.core.Core`."""

    def topics_changed(self, now: float) -> None:
        """The set of topics or partitions has changed. A topic that was deleted and recreated
        counts: it has another topic id."""

    def metadata_refreshed(self, now: float) -> None:
        """A broker has responded to a request for metadata."""

    def failed(self, now: float, error: Exception) -> None:
        """The user must know of an error."""
