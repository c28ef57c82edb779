"""What the membership of a share group reports to the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.errors import FatalError


class ShareMembershipReactions(Protocol):
    """Implemented by :class:`asyncrevoke.client.core.share_core.ShareCore`."""

    def partitions_assigned(self, now: float) -> None:
        """The partitions to fetch have changed."""

    def group_left(self) -> None:
        """The coordinator has responded that the member has left, or will not respond."""

    def membership_failed(self, error: FatalError) -> None:
        """The membership cannot go on. What was acquired can still be acknowledged."""
