"""``sticky``: Java's StickyAssignor, which plans for eager members as ``cooperative-sticky`` does.

Eager members release everything before they join, so they report nothing as owned. What the last
assignment gave them is in their user data, by which the leader moves as few partitions as it can
(KIP-54, with the generation of KIP-341).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from asyncrevoke.client.core.assignors.assignor import Assignment, RebalanceProtocol
from asyncrevoke.client.core.assignors.cooperative_sticky import plan
from asyncrevoke.client.core.assignors.ownership import ReportedOwnership
from asyncrevoke.client.protocol.subscription import MalformedMemberData, read_partitions

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from asyncrevoke.client.core.assignors.member import Member
    from asyncrevoke.client.core.assignors.racks import PartitionRacks
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.protocol.subscription import Subscription

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class StickyAssignor:
    """Java's StickyAssignor."""

    name = "sticky"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, generation: int, owned: Collection[TopicPartition]) -> bytes:
        """The last assignment, of ``generation``, in version 1 of Java's user data."""
        numbers: dict[str, list[int]] = {}
        for topic, number in sorted(owned):
            numbers.setdefault(topic, []).append(number)
        parts = [_INT32.pack(len(numbers))]
        for topic, of_topic in numbers.items():
            name = topic.encode()
            parts += [_INT16.pack(len(name)), name, _INT32.pack(len(of_topic))]
            parts += map(_INT32.pack, of_topic)
        return b"".join((*parts, _INT32.pack(generation)))

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Sequence[Member]
    ) -> Assignment:
        """As even as can be, with as few partitions moved as can be.

        The members' subscriptions are those of :func:`with_last_assignment`.
        """
        return self.assign_by_rack(partitions, members, {})

    def assign_by_rack(
        self,
        partitions: Mapping[str, Sequence[int]],
        members: Sequence[Member],
        racks: PartitionRacks,
    ) -> Assignment:
        """The same; a partition that is not in its owner's rack may move (KIP-881)."""
        return plan(partitions, members, ReportedOwnership(members), racks)


def with_last_assignment(subscription: Subscription, max_owned: int) -> Subscription:
    """A subscription whose ``owned`` and ``generation`` are those of its ``sticky`` user data.

    User data that cannot be read, or that names more than ``max_owned`` partitions, say nothing, as
    for a Java leader. Version 0 has no generation. What follows the structure is left out.
    """
    data = subscription.user_data or b""
    try:
        owned, end = read_partitions(data, 0, max_owned)
    except (struct.error, ValueError, MalformedMemberData):
        return msgspec.structs.replace(subscription, owned=(), generation=-1, user_data=None)
    generation = -1
    if len(data) >= end + _INT32.size:
        generation = max(_INT32.unpack_from(data, end)[0], -1)
    return msgspec.structs.replace(subscription, owned=owned, generation=generation, user_data=None)
