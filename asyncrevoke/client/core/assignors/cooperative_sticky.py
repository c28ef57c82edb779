"""``cooperative-sticky``: as even as possible, with as few moves as possible.

If all members are subscribed to the same topics, the result is Java's to the last partition:

1. A member keeps what it owns up to its quota, lowest partitions first. The quota is the rounded
   share; for the remainder, the first members (in Java's order) that own more keep one more.
2. Free partitions go one by one to the members below the share, in order.
3. The rest goes, one each, to members at the share.

Otherwise ``balance.py`` finds the most even assignment. In both cases partitions that change their
owner are withheld in this round (``ownership.py``).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from asyncrevoke.client.core.assignors.assignor import Assignment, RebalanceProtocol
from asyncrevoke.client.core.assignors.balance import balance
from asyncrevoke.client.core.assignors.member import Member, hash_order
from asyncrevoke.client.core.assignors.ownership import (
    ReportedOwnership,
    encode_generation,
    withhold,
)
from asyncrevoke.client.core.assignors.racks import PartitionRacks, Racks
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


class CooperativeStickyAssignor:
    """Java's CooperativeStickyAssignor (KIP-429, KIP-792), with racks (KIP-881)."""

    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE})

    def user_data(self, generation: int, owned: Collection[TopicPartition]) -> bytes:  # noqa: ARG002
        """The generation, which Java leaders before 3.2 read only here."""
        return encode_generation(generation)

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Sequence[Member]
    ) -> Assignment:
        """Plan, then withhold. Owned partitions that no longer exist, or whose topic their owner
        has dropped, are free."""
        return self.assign_by_rack(partitions, members, {})

    def assign_by_rack(
        self,
        partitions: Mapping[str, Sequence[int]],
        members: Sequence[Member],
        racks: PartitionRacks,
    ) -> Assignment:
        """The same. Partitions outside their owner's rack are free; free partitions first go to
        members in their racks."""
        claims = ReportedOwnership(members)
        return withhold(plan(partitions, members, claims, racks), claims)


def plan(
    partitions: Mapping[str, Sequence[int]],
    members: Sequence[Member],
    claims: ReportedOwnership,
    partition_racks: PartitionRacks | None = None,
) -> Assignment:
    """The final assignment, whoever must release partitions first. Members without topics are
    leaving, and get none."""
    leaving = [member.member_id for member in members if not member.subscription.topics]
    if leaving:
        staying = [member for member in members if member.subscription.topics]
        return {
            **plan(partitions, staying, claims, partition_racks),
            **{member_id: [] for member_id in leaving},
        }
    topics_of = {
        member.member_id: partitions.keys() & member.subscription.topics for member in members
    }
    topics = sorted(set[str]().union(*topics_of.values()))
    everything = [TopicPartition(topic, n) for topic in topics for n in partitions[topic]]
    owned: Assignment = {member_id: [] for member_id in topics_of}
    for tp in everything:
        owner = claims.owners.get(tp)
        if owner in topics_of and tp.topic in topics_of[owner]:
            owned[owner].append(tp)
    known = Racks(members, everything, partition_racks or {})
    racks = known if known.useful else None
    if all(len(mine) == len(topics) for mine in topics_of.values()):
        return _fill_quotas(everything, owned, racks)
    return balance({topic: partitions[topic] for topic in topics}, topics_of, owned, racks)


def _fill_quotas(
    everything: Sequence[TopicPartition], owned: Assignment, racks: Racks | None
) -> Assignment:
    if not owned:
        return {}
    share, extra = divmod(len(everything), len(owned))
    shares: Assignment = {}
    at_share: list[str] = []
    for member_id in hash_order(list(owned)):
        mine = sorted(owned[member_id], key=lambda tp: (tp.partition, tp.topic))
        if racks is not None:
            mine = [tp for tp in mine if racks.match(member_id, tp)]
        if extra and len(mine) > share:
            extra -= 1
            shares[member_id] = mine[: share + 1]
        else:
            shares[member_id] = mine[:share]
            if len(mine) >= share:
                at_share.append(member_id)
    kept = {tp for mine in shares.values() for tp in mine}
    free = [tp for tp in everything if tp not in kept]
    below = sorted(member_id for member_id, mine in shares.items() if len(mine) < share)
    above = deque(sorted(at_share) if extra else ())
    if racks is not None:
        free = _fill_by_rack(free, shares, below, above, share, extra, racks)
    rest = iter(free)
    while below:
        for member_id in below:
            shares[member_id].append(next(rest))
        above.extend(member_id for member_id in below if len(shares[member_id]) == share)
        below = [member_id for member_id in below if len(shares[member_id]) < share]
    for tp in rest:
        shares[above.popleft()].append(tp)
    return {member_id: shares[member_id] for member_id in owned}


def _fill_by_rack(
    free: Sequence[TopicPartition],
    shares: Assignment,
    below: list[str],
    above: deque[str],
    share: int,
    extra: int,
    racks: Racks,
) -> list[TopicPartition]:
    """Give free partitions to members in their racks that have room; returns the rest.

    ``below`` are the members below the share, ``above`` those at it that may have one more, of
    which there are ``extra`` in all.
    """
    left: list[TopicPartition] = []
    low, high = racks.turns(below), racks.turns(above)
    turn = 0
    for tp in racks.fewest_first(free):
        if (found := low.beside(tp, turn)) is not None:
            place, member_id = found
            shares[member_id].append(tp)
            if len(shares[member_id]) >= share:
                low.remove(place)
                if extra:
                    high.append(member_id)
            turn = place + 1
        elif (found := high.beside(tp)) is not None:
            place, member_id = found
            shares[member_id].append(tp)
            high.remove(place)
            extra -= 1
            if not extra:
                high.clear()
        else:
            left.append(tp)
    below[:] = low
    above.clear()
    above.extend(high)
    return left
