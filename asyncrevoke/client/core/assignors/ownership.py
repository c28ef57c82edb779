"""Which partitions members report as owned, and which may not move in this round.

A partition changes its owner in a cooperative group in two rounds: the old owner loses it in the
first, and after it has joined without it, the new one gets it in the second. What members report
counts: eager members report nothing, so their partitions move at once.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.client.core.assignors.assignor import Assignment
    from asyncrevoke.client.core.assignors.member import Member
    from asyncrevoke.client.protocol.subscription import Subscription

_GENERATION = struct.Struct(">i")


class OwnershipViolation(NamedTuple):
    """A partition that an assignor gave to a member that must not have it."""

    partition: TopicPartition
    member_id: str
    reason: str


def encode_generation(generation: int) -> bytes:
    """The user data of ``cooperative-sticky``, version 0, which leaders before KIP-792 read."""
    return _GENERATION.pack(generation)


def generation_of(subscription: Subscription) -> int:
    """The generation in which a member got what it owns, -1 if unknown. Members with subscription
    version 0 or 1 send it in the user data."""
    if subscription.generation >= 0:
        return subscription.generation
    data = subscription.user_data
    if data is None or len(data) < _GENERATION.size:
        return -1
    generation: int = _GENERATION.unpack_from(data)[0]
    return max(generation, -1)


class ReportedOwnership:
    """What members report as owned. Of several members that claim one partition, the one with the
    highest generation owns it (KIP-792); none if that is not unique."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.owners: dict[TopicPartition, str] = {}
        # Nearly every partition has one claimant: only the others have lists.
        first: dict[TopicPartition, tuple[int, str]] = {}
        disputed: dict[TopicPartition, list[tuple[int, str]]] = {}
        for member in members:
            claim = (generation_of(member.subscription), member.member_id)
            for partition in dict.fromkeys(member.subscription.owned):
                other = first.setdefault(partition, claim)
                if other is claim:
                    self.owners[partition] = member.member_id
                else:
                    disputed.setdefault(partition, [other]).append(claim)
        # The first two of those that claim it.
        self._disputed = {
            partition: sorted({member_id for _, member_id in claims})[:2]
            for partition, claims in disputed.items()
        }
        for partition, claims in disputed.items():
            highest = max(claims)
            if all(other is highest or other[0] < highest[0] for other in claims):
                self.owners[partition] = highest[1]
            else:
                del self.owners[partition]

    def bar(self, partition: TopicPartition, member_id: str) -> str | None:
        """The member that claims the partition, so that ``member_id`` may not get it yet."""
        owner = self.owners.get(partition)
        if owner == member_id:
            return None
        claimants = self._disputed.get(partition)
        if claimants is None:
            return owner
        return next((other for other in claimants if other != member_id), None)


def withhold(plan: Assignment, claims: ReportedOwnership) -> Assignment:
    """``plan`` without the partitions that another member still reports as owned."""
    return {
        member_id: [tp for tp in assigned if claims.bar(tp, member_id) is None]
        for member_id, assigned in plan.items()
    }


def withheld(
    partitions: Mapping[str, Sequence[int]], members: Sequence[Member], assignment: Assignment
) -> list[TopicPartition]:
    """The subscribed partitions that ``assignment`` gives to no member: they wait for their owners,
    and another round follows."""
    given = {tp for assigned in assignment.values() for tp in assigned}
    topics = {topic for member in members for topic in member.subscription.topics}
    return [
        tp
        for topic in sorted(topics & partitions.keys())
        for number in partitions[topic]
        if (tp := TopicPartition(topic, number)) not in given
    ]


def repair(
    assignment: Assignment, members: Sequence[Member]
) -> tuple[Assignment, list[OwnershipViolation]]:
    """Make the result of a foreign assignor safe: no partition may have two owners at once.

    Removes partitions that another member still reports as owned, those given to a second member,
    and all given to no member of the group; returns them as the second value, for the log.
    """
    claims = ReportedOwnership(members)
    violations: list[OwnershipViolation] = []
    holders: dict[TopicPartition, str] = {}
    repaired: Assignment = {member.member_id: [] for member in members}
    for member_id in sorted(assignment):
        kept = repaired.get(member_id)
        for tp in assignment[member_id]:
            if kept is None:
                violations.append(
                    OwnershipViolation(tp, member_id, "is given to no member of the group")
                )
            elif (claimant := claims.bar(tp, member_id)) is not None:
                violations.append(
                    OwnershipViolation(tp, member_id, f"is still reported as owned by {claimant}")
                )
            elif (holder := holders.setdefault(tp, member_id)) != member_id:
                violations.append(
                    OwnershipViolation(tp, member_id, f"is given to {holder} as well")
                )
            elif tp not in kept:
                kept.append(tp)
    return repaired, violations
