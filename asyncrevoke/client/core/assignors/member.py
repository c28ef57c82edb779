"""A member of a classic group as its leader sees it, and the orders in which Java's assignors visit
members."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.protocol.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Member(NamedTuple):
    """A member of the group as its leader sees it in the JoinGroup response."""

    member_id: str
    group_instance_id: str | None
    subscription: Subscription


def static_first(members: Iterable[Member]) -> list[Member]:
    """Static members by instance id, then dynamic ones by member id: so a static member keeps its
    partitions over a restart (KIP-345)."""
    return sorted(
        members,
        key=lambda member: (
            (0, member.group_instance_id)
            if member.group_instance_id is not None
            else (1, member.member_id)
        ),
    )


def hash_order(member_ids: Sequence[str]) -> list[str]:
    """The order of a ``java.util.HashMap`` filled in the given order, in which Java's sticky
    assignor asks members. Another would move partitions when a leader replaces a Java leader."""
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
