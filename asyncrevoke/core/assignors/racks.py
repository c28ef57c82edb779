"""Where members run and where partitions have their replicas (KIP-881).

A member reads from a replica in its own rack if there is one (KIP-392), which costs less than
reading across. The assignors give it such partitions where that keeps the shares even.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asyncrevoke.core.assignors.assignor import Member
    from asyncrevoke.model import TopicPartition

PartitionRacks: TypeAlias = "Mapping[TopicPartition, frozenset[str]]"

_NONE: frozenset[str] = frozenset()


class Racks:
    """The racks of some members and of some partitions.

    ``useful`` is False if they say nothing: no member has a rack that any partition has, or every
    partition is in every rack.
    """

    def __init__(
        self,
        members: Iterable[Member],
        partitions: Iterable[TopicPartition],
        racks: PartitionRacks,
    ) -> None:
        self._of_member = {
            member.member_id: member.subscription.rack
            for member in members
            if member.subscription.rack
        }
        self._of_partition = {tp: racks.get(tp, _NONE) for tp in partitions}
        everywhere = _NONE.union(*self._of_partition.values())
        self.useful = not everywhere.isdisjoint(self._of_member.values()) and any(
            found != everywhere for found in self._of_partition.values()
        )

    def match(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether the partition has a replica beside the member, or the member has no rack."""
        rack = self._of_member.get(member_id)
        return rack is None or rack in self._of_partition.get(partition, _NONE)

    def fewest_first(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Those with the fewest members beside them first: they have the least choice."""
        beside: dict[str, int] = {}
        for rack in self._of_member.values():
            beside[rack] = beside.get(rack, 0) + 1
        return sorted(
            partitions, key=lambda tp: sum(beside.get(rack, 0) for rack in self._of_partition[tp])
        )

    def next_beside(
        self, partition: TopicPartition, member_ids: Sequence[str], first: int
    ) -> int | None:
        """The index of the first member in the partition's racks, beginning at ``first`` and going
        round. One without a rack is not beside anything."""
        found = self._of_partition.get(partition, _NONE)
        for turn in range(len(member_ids)):
            index = (first + turn) % len(member_ids)
            if self._of_member.get(member_ids[index]) in found:
                return index
        return None
