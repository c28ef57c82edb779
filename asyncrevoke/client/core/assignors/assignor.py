"""The interface of an assignor, by which the leader of a classic group assigns partitions."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from asyncrevoke.client.core.assignors.member import Member
    from asyncrevoke.client.core.assignors.racks import PartitionRacks

Assignment = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id."""


class RebalanceProtocol(enum.IntEnum):
    """What members do with their partitions before they rejoin (KIP-429); higher is better."""

    EAGER = 0
    COOPERATIVE = 1


class Assignor(Protocol):
    """An assignor. Pure: the same input gives the same output. In a large group it is called in
    another thread than the event loop's.

    All members must offer the same ``name``. ``protocols`` are the rebalance protocols that it
    supports: with COOPERATIVE it must not assign a partition that another member reports as owned.

    Implemented by :class:`RangeAssignor`, :class:`RoundRobinAssignor`, :class:`StickyAssignor` and
    :class:`CooperativeStickyAssignor`.
    """

    @property
    def name(self) -> str:
        """The name in JoinGroup."""
        ...

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]:
        """The rebalance protocols that it supports."""
        ...

    def user_data(self, generation: int, owned: Collection[TopicPartition]) -> bytes | None:
        """The user data of a member's subscription for this assignor. ``generation`` is that of
        its last assignment, -1 for none; ``owned`` what it owns."""
        ...

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Sequence[Member]
    ) -> Assignment:
        """Distribute ``partitions`` (of each topic, ascending) over ``members``.

        Every member has an entry in the result. Topics without subscribers, and subscribed topics
        that are not in ``partitions``, are left out.
        """
        ...


@runtime_checkable
class RackAwareAssignor(Assignor, Protocol):
    """An assignor that also uses the racks of members and replicas (KIP-881). Implemented by
    :class:`RangeAssignor`, :class:`StickyAssignor` and :class:`CooperativeStickyAssignor`."""

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
    """The assignment by ``assignor``, with racks if it uses them and there are any."""
    if racks and isinstance(assignor, RackAwareAssignor):
        return assignor.assign_by_rack(partitions, members, racks)
    return assignor.assign(partitions, members)
