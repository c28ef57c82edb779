"""Which members do not read what they are assigned, as repeated descriptions of a group show.

A broker does not know whether a member can read its assignment, or fetches at all. But such a
member commits nothing while records arrive in its partitions.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from asyncrevoke.client.groups.facts import GroupFacts, MemberFacts, PartitionFacts, UnreadFacts
from asyncrevoke.client.groups.observer import describe_group
from asyncrevoke.client.groups.rebalance_blockers import member_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.model import TopicPartition

_LOOK_EVERY: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the partitions of a member have committed. ``since``: when records to read were seen
    first, None if none were; ``ends``: the ends of the partitions then."""

    committed: Mapping[TopicPartition, int | None]
    ends: Mapping[TopicPartition, int]
    since: float | None


class UnreadPartitions:
    """Compares descriptions of one group.

    A member is reported if it had records to read, and for ``patience`` seconds since then has
    committed for none of its partitions, although more records arrived. An assignment that changes
    begins this anew. Members of most clients commit every 5 seconds, so ``patience`` is longer.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._seen: dict[str, _Seen] = {}

    def look(self, now: float, group: GroupFacts) -> tuple[UnreadFacts, ...]:
        """Add a description; ``now`` is in seconds, of any clock that is not set back."""
        owned: dict[str, list[PartitionFacts]] = {}
        for partition in group.partitions:
            if partition.member_id is not None and partition.end is not None:
                owned.setdefault(partition.member_id, []).append(partition)
        before, self._seen = self._seen, {}
        found: list[UnreadFacts] = []
        for member in group.members:
            if partitions := owned.get(member.member_id):
                seen = _look(now, partitions, before.get(member.member_id))
                self._seen[member.member_id] = seen
                unread = self._unread(now, member, partitions, seen)
                found += [] if unread is None else [unread]
        return tuple(found)

    def _unread(
        self, now: float, member: MemberFacts, partitions: list[PartitionFacts], seen: _Seen
    ) -> UnreadFacts | None:
        if seen.since is None or now - seen.since < self._patience:
            return None
        grown = _grown(partitions, seen.ends)
        if not grown:
            return None
        return UnreadFacts(
            member_id=member.member_id,
            partitions=grown,
            seconds=now - seen.since,
            says=f"{member_name(member)} commits nothing while records arrive in its partitions: "
            "see in its log whether it can read its assignment.",
        )


def _look(now: float, partitions: list[PartitionFacts], before: _Seen | None) -> _Seen:
    committed = {partition.topic_partition: partition.committed for partition in partitions}
    ends = {
        partition.topic_partition: partition.end
        for partition in partitions
        if partition.end is not None
    }
    if before is None or before.committed != committed:
        # Of a partition without a committed offset the lag is not known: it must grow first.
        has_records = any(partition.lag for partition in partitions)
        return _Seen(committed, ends, now if has_records else None)
    if before.since is None and _grown(partitions, before.ends):
        return _Seen(committed, ends, now)
    return before


def _grown(
    partitions: list[PartitionFacts], ends: Mapping[TopicPartition, int]
) -> tuple[TopicPartition, ...]:
    return tuple(
        partition.topic_partition
        for partition in partitions
        if partition.end is not None
        and partition.end > ends.get(partition.topic_partition, partition.end)
    )


async def observe_group(brokers: GroupsClient, name: str, seconds: float) -> GroupFacts:
    """One group after ``seconds`` of repeated looks, with the members that commit nothing for half
    of that time although records arrive. Raises GroupsError."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    unread = UnreadPartitions(seconds / 2)
    while True:
        facts = await describe_group(brokers, name)
        found = unread.look(loop.time(), facts)
        left = until - loop.time()
        if left <= 0:
            return msgspec.structs.replace(facts, unread=found)
        await asyncio.sleep(min(left, _LOOK_EVERY))
