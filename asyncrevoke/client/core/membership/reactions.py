"""What a membership reports to the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.errors import FatalError


class MembershipReactions(Protocol):
    """Implemented by :class:`asyncrevoke.client.core.core.Core`."""

    @property
    def is_leaving(self) -> bool:
        """Whether the consumer unsubscribes or closes, and has not left the group."""
        ...

    def partitions_added(self, now: float, instances: list[PartitionInstance]) -> None:
        """These new instances were assigned to this member."""

    def membership_ready(self, now: float) -> None:
        """The member may commit (again)."""

    def epoch_changed(self, now: float) -> None:
        """The coordinator has given the member another epoch (KIP-848)."""

    def group_topics_known(self, now: float, topics: frozenset[str]) -> None:
        """This member leads the group, whose members subscribe to these topics."""

    def group_left(self, now: float) -> None:
        """The group was left, with everything released or lost."""

    def group_protocol_unsupported(self, now: float, why: str) -> None:
        """The brokers do not offer KIP-848 to this group."""

    def membership_failed(self, error: FatalError) -> None:
        """The membership cannot go on; everything of it is lost."""
