"""What the resolver of positions reports, and which identity it fetches offsets with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition


class PositionReactions(Protocol):
    """Implemented by :class:`asyncrevoke.client.core.core.Core`."""

    @property
    def offset_fetch_identity(self) -> tuple[str | None, int]:
        """The member id and epoch to send with OffsetFetch (KIP-848): a coordinator responds to a
        former member with an error. (None, -1) without such a check."""
        ...

    def is_added(self, partition: TopicPartition, /) -> bool:
        """Whether the partition was created since the subscription to its topic began."""
        ...

    def position_found(
        self, now: float, instance: PartitionInstance, found: OffsetAndMetadata, from_reset: bool
    ) -> None:
        """The committed offset was found, or (``from_reset``) one by timestamp or reset policy."""

    def failed(self, now: float, error: Exception) -> None:
        """The user must know of an error."""
