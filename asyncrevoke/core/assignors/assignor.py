"""What an assignor is: the leader's rule that gives each partition of a classic group an owner."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from asyncrevoke.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from asyncrevoke.core.assignors.member import Member
    from asyncrevoke.core.assignors.racks import PartitionRacks

Assignment = dict[str, list[TopicPartition]]
"""What each member shall hold, by member id."""


class RebalanceProtocol(enum.IntEnum):
    """What members do with their partitions before they rejoin (KIP-429); the higher the better."""

    EAGER = 0
    COOPERATIVE = 1


class Assignor(Protocol):
    """A rule of assignment. Pure: the same input always gives the same output, in any thread; in a
    large group it is not called in that of the event loop.

    ``name`` is what members of the group agree on, so an assignor of one's own needs a name of
    its own. ``protocols`` are the rebalance protocols under which its results are safe: with
    COOPERATIVE it must not give a partition to a member while another one reports it as owned.
    """

    @property
    def name(self) -> str:
        """The name that goes into JoinGroup."""
        ...

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]:
        """The rebalance protocols that it supports."""
        ...

    def user_data(self, generation: int, owned: Collection[TopicPartition]) -> bytes | None:
        """What our own subscription carries for this assignor when the group's leader is another.

        ``generation`` is that of our last assignment, -1 for none; ``owned`` what we hold.
        """
        ...

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Sequence[Member]
    ) -> Assignment:
        """Distribute ``partitions`` (of each topic, ascending) over ``members``.

        Every member has an entry in the result, if only an empty one. Topics that nobody is
        subscribed to, and subscribed topics that are not in ``partitions``, are left out.
        """
        ...


@runtime_checkable
class RackAwareAssignor(Assignor, Protocol):
    """One that also heeds where members run and where partitions have their replicas (KIP-881)."""

    def assign_by_rack(
        self,
        partitions: Mapping[str, Sequence[int]],
        members: Sequence[Member],
        racks: PartitionRacks,
    ) -> Assignment:
        """As :meth:`assign`; ``racks`` are those of each partition's replicas."""
        ...


def assign(
    assignor: Assignor,
    partitions: Mapping[str, Sequence[int]],
    members: Sequence[Member],
    racks: PartitionRacks,
) -> Assignment:
    """What ``assignor`` makes of the group, by racks if it heeds them and there are any."""
    if racks and isinstance(assignor, RackAwareAssignor):
        return assignor.assign_by_rack(partitions, members, racks)
    return assignor.assign(partitions, members)
