"""What partition instances report, and ask about their commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.core.partition.instance import PartitionInstance


class PartitionReactions(Protocol):
    """Implemented by :class:`asyncrevoke.client.core.core.Core`."""

    def position_changed(self, instance: PartitionInstance) -> None:
        """It has a new buffer, or may be read again."""

    def instance_ended(self, instance: PartitionInstance) -> None:
        """It was released or lost."""

    def revocation_ended(self, now: float, instance: PartitionInstance) -> None:
        """Its revocation is over: it was released, or lost at its deadline or because its lifespan
        failed. Not called for what the group has taken. The group may have assigned the partition
        to this member again meanwhile."""

    def is_committed(self, instance: PartitionInstance) -> bool:
        """Whether the broker has acknowledged all its commits."""
        ...

    def commit_now(self, now: float) -> None:
        """A revocation waits for a commit: send it now."""
