"""What the parts of a share group's consumer report to the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.share.acquired_records import AcquiredRecord
    from asyncrevoke.client.core.share.acquisition import HeldRecord
    from asyncrevoke.client.protocol.messages import ErrorCode
    from asyncrevoke.client.protocol.share_messages import TopicIdPartition


class ShareReactions(Protocol):
    """Implemented by :class:`asyncrevoke.client.core.share_core.ShareCore`."""

    def records_acquired(self, now: float, records: Sequence[AcquiredRecord]) -> None:
        """These records were acquired, and can be started until their locks pass."""

    def records_lost(self) -> None:
        """Locks are gone: handlers are to be cancelled."""

    def locks_due(self, records: Sequence[HeldRecord]) -> None:
        """Half of the lock of these records has passed: renew it."""

    def leader_unknown(self, now: float, reason: str) -> None:
        """The leader of a partition has moved: request metadata."""

    def is_leader(self, node: Node, partition: TopicIdPartition) -> bool:
        """Whether the last metadata response names this broker as the leader of the partition."""
        ...

    def session_ended(self) -> None:
        """A session was closed as intended."""

    def partition_denied(self, topic: str) -> None:
        """The broker denies READ on this topic; it is fetched again later."""

    def group_refused(self, error: ErrorCode, detail: str) -> None:
        """A leader refuses every request of this group, with this text."""

    def share_failed(self, error: Exception) -> None:
        """The application must know of an error; a FatalError ends the consumer."""
