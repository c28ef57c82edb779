"""What commits report to the other folders, and need to know of the membership."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.errors import PartitionsError
    from asyncrevoke.client.model import GroupMetadata
    from asyncrevoke.client.protocol.messages import ErrorCode


class CommitterMembership(Protocol):
    """What the committer must know of the membership.

    Implemented by :class:`ClassicMembership`, :class:`ConsumerGroupMembership` and
    :class:`ManualMembership`.
    """

    @property
    def member_identity(self) -> GroupMetadata:
        """The identity to commit with."""
        ...

    @property
    def has_epochs(self) -> bool:
        """Whether it is a member of a KIP-848 group, whose epoch may change between two commits."""
        ...

    @property
    def may_commit(self) -> bool:
        """Whether a commit sent now can be accepted."""
        ...

    def renewed_identity(self, now: float, rejected: GroupMetadata, /) -> GroupMetadata | None:
        """The identity to send offsets of an open transaction with, after this one was rejected as
        of another generation or epoch; the same one if the next is not known yet. None: no other
        follows."""
        ...

    def is_current_membership(self, sent: GroupMetadata, sent_at: float, /) -> bool:
        """Whether an error for this identity is about the membership as it is now."""
        ...

    def rejected(self, now: float, error: ErrorCode) -> None:
        """The coordinator has rejected a commit because it does not accept this membership."""

    def rebalance_seen(self, now: float) -> None:
        """The response to a commit was REBALANCE_IN_PROGRESS."""


class CommitReactions(Protocol):
    """Implemented by :class:`asyncrevoke.client.core.core.Core`."""

    @property
    def membership(self) -> CommitterMembership:
        """The membership to commit with."""
        ...

    def commit_acknowledged(self, now: float, instances: Sequence[PartitionInstance]) -> None:
        """The broker holds the committed offsets of these instances."""

    def commit_rejected(
        self, now: float, instance: PartitionInstance, error: PartitionsError
    ) -> None:
        """The broker has rejected its commit, which is not sent again."""

    def commit_topic_unknown(self, now: float) -> None:
        """The coordinator does not know a topic that was committed."""

    def failed(self, now: float, error: Exception) -> None:
        """No commit can succeed, or the user must know of an error."""
