"""The racks of members and of replicas (KIP-881).

A member reads from a replica in its own rack if there is one (KIP-392). The assignors give it such
partitions where the shares stay even.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from asyncrevoke.client.core.assignors.member import Member
    from asyncrevoke.client.model import TopicPartition

PartitionRacks: TypeAlias = "Mapping[TopicPartition, frozenset[str]]"

_NONE: frozenset[str] = frozenset()


class Racks:
    """The racks of some members and partitions. ``useful`` is False if no member has a rack that
    any partition has, or every partition is in every rack."""

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

    def of_member(self, member_id: str) -> str | None:
        """The rack of a member, None if unknown."""
        return self._of_member.get(member_id)

    def of_partition(self, partition: TopicPartition) -> frozenset[str]:
        """The racks of a partition's replicas."""
        return self._of_partition.get(partition, _NONE)

    def match(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether the partition has a replica in the member's rack, or the member has no rack."""
        rack = self._of_member.get(member_id)
        return rack is None or rack in self._of_partition.get(partition, _NONE)

    def fewest_first(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Partitions with the fewest members in their racks first: they have the least choice."""
        beside: dict[str, int] = {}
        for rack in self._of_member.values():
            beside[rack] = beside.get(rack, 0) + 1
        return sorted(
            partitions, key=lambda tp: sum(beside.get(rack, 0) for rack in self._of_partition[tp])
        )

    def turns(self, member_ids: Iterable[str]) -> RackOrder:
        """Members in this order, to be found by rack."""
        return RackOrder(self._of_member, self._of_partition, member_ids)


class RackOrder:
    """Members in an order, to be removed, and added at the end. Each keeps its place; a member
    without a rack is not found."""

    def __init__(
        self,
        racks: Mapping[str, str],
        partitions: Mapping[TopicPartition, frozenset[str]],
        member_ids: Iterable[str],
    ) -> None:
        self._racks = racks
        self._partitions = partitions
        self._members: dict[int, str] = {}
        self._places: dict[str, list[int]] = {}
        self._next = 0
        for member_id in member_ids:
            self.append(member_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members.values())

    def append(self, member_id: str) -> None:
        """Add one at the end."""
        place, self._next = self._next, self._next + 1
        self._members[place] = member_id
        if (rack := self._racks.get(member_id)) is not None:
            self._places.setdefault(rack, []).append(place)

    def remove(self, place: int) -> None:
        """Remove the one at this place."""
        places = self._places[self._racks[self._members.pop(place)]]
        del places[bisect_left(places, place)]

    def clear(self) -> None:
        """Remove all."""
        self._members.clear()
        self._places.clear()

    def beside(self, partition: TopicPartition, first: int = 0) -> tuple[int, str] | None:
        """The first member in the partition's racks from the place ``first`` on, cyclically, with
        its place."""
        found: list[tuple[bool, int]] = []
        for rack in self._partitions.get(partition, _NONE):
            if places := self._places.get(rack):
                index = bisect_left(places, first)
                place = places[index] if index < len(places) else places[0]
                found.append((place < first, place))
        if not found:
            return None
        _, place = min(found)
        return place, self._members[place]
