"""The orders in which Java's assignors visit members; where the order decides, so do we."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.core.assignors.member import Member


def static_first(members: Iterable[Member]) -> list[Member]:
    """Static members by instance id, then dynamic ones by member id.

    A static member so keeps its place, and with it its partitions, over a restart (KIP-345).
    """
    return sorted(
        members,
        key=lambda member: (
            (0, member.group_instance_id)
            if member.group_instance_id is not None
            else (1, member.member_id)
        ),
    )


def hash_order(member_ids: Sequence[str]) -> list[str]:
    """The order of a ``java.util.HashMap`` filled in the given order.

    If several members could keep a partition more than the others, Java's sticky assignor asks
    them in this order. A leader that asked in another one would, after taking over from a Java
    leader, move partitions for nothing.
    """
    capacity = 16
    while len(member_ids) > capacity * 3 // 4:
        capacity *= 2
    mask = capacity - 1
    return sorted(member_ids, key=lambda member_id: _spread_hash(member_id) & mask)


@functools.lru_cache(maxsize=4096)
def _spread_hash(text: str) -> int:
    """``String.hashCode``, its upper half folded into the lower as a HashMap does."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value ^ value >> 16
