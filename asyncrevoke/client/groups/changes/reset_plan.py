"""Which offsets a group gets by a reset."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from asyncrevoke.client.groups import requests
from asyncrevoke.client.groups.changes.consumer_offsets import commit_offsets
from asyncrevoke.client.groups.changes.share_offsets import set_start_offsets
from asyncrevoke.client.groups.errors import GroupsError, NoGroupError
from asyncrevoke.client.groups.facts import GroupFacts, ShareGroupFacts
from asyncrevoke.client.groups.observer import describe_group_of_any_type
from asyncrevoke.client.groups.partition_offsets import leaders, listed_offsets
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from asyncrevoke.client.groups.cluster import GroupsClient

Target: TypeAlias = Literal["earliest", "latest"] | int | datetime
"""The first offset of the log, its end, an offset, or the first record from a time on."""


class OffsetMove(msgspec.Struct, frozen=True, kw_only=True):
    """A partition, and its offset before and after; None: the group has none yet."""

    topic: str
    partition: int
    before: int | None
    after: int


class ResetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a reset changes. ``type`` is that of the group: ``classic``, ``consumer``, ``share``, or
    empty if there is no such group yet. Brokers refuse a reset while the group has ``members``."""

    group: str
    type: str
    members: int
    moves: tuple[OffsetMove, ...]


async def plan_reset(
    brokers: GroupsClient,
    name: str,
    topics: Mapping[str, Collection[int] | None],
    target: Target,
) -> ResetPlan:
    """Which offsets a group gets. ``topics`` are those to reset, with their partitions, None for
    all; without any, the partitions that the group has offsets of. A consumer group need not exist
    if topics are named: it then begins at these offsets. Raises GroupsError, also for an offset
    that is not in a partition's log: brokers do not check it."""
    kind, members, before = "", 0, dict[TopicPartition, int | None]()
    try:
        group = await describe_group_of_any_type(brokers, name)
    except NoGroupError:
        if not topics:
            raise
    else:
        kind, members, before = group.type, len(group.members), _offsets_of(group)
    if not topics and not before:
        raise GroupsError(f"group {name!r} has no offsets yet: name the topics to reset")
    led_by = await leaders(brokers, topics or {tp.topic for tp in before})
    wanted = _partitions(led_by, topics) if topics else sorted(before)
    after = await _offsets(brokers, {tp: led_by.get(tp, -1) for tp in wanted}, target)
    return ResetPlan(
        group=name,
        type=kind,
        members=members,
        moves=tuple(
            OffsetMove(
                topic=tp.topic, partition=tp.partition, before=before.get(tp), after=after[tp]
            )
            for tp in wanted
        ),
    )


async def apply_reset(brokers: GroupsClient, plan: ResetPlan) -> None:
    """Set the offsets. Raises GroupsError, which names the partitions whose offsets were not
    set."""
    set_offsets = set_start_offsets if plan.type == "share" else commit_offsets
    offsets = {TopicPartition(move.topic, move.partition): move.after for move in plan.moves}
    await set_offsets(brokers, plan.group, offsets)


def _offsets_of(group: GroupFacts | ShareGroupFacts) -> dict[TopicPartition, int | None]:
    """Those that the group has. A share group has partitions before it has offsets of them."""
    if isinstance(group, ShareGroupFacts):
        return {each.topic_partition: each.start for each in group.partitions}
    return {
        each.topic_partition: each.committed
        for each in group.partitions
        if each.committed is not None
    }


def _partitions(
    led_by: Mapping[TopicPartition, int], topics: Mapping[str, Collection[int] | None]
) -> list[TopicPartition]:
    wanted: set[TopicPartition] = set()
    for topic, numbers in topics.items():
        there = {tp for tp in led_by if tp.topic == topic}
        if not there:
            raise GroupsError(f"there is no topic {topic!r}, or this user may not describe it")
        asked = there if numbers is None else {TopicPartition(topic, each) for each in numbers}
        if missing := sorted(asked - there):
            raise GroupsError(f"topic {topic!r} has {len(there)} partitions, and no {missing[0]}")
        wanted |= asked
    return sorted(wanted)


async def _offsets(
    brokers: GroupsClient, led_by: Mapping[TopicPartition, int], target: Target
) -> dict[TopicPartition, int]:
    """The offset of each partition that the target stands for."""
    firsts = await listed_offsets(brokers, led_by, requests.starts)
    ends = await listed_offsets(brokers, led_by, requests.ends)
    at: Mapping[TopicPartition, int] = {}
    if isinstance(target, datetime):
        time = int(target.timestamp() * 1000)
        at = await listed_offsets(
            brokers, led_by, lambda partitions: requests.offsets_at(partitions, time)
        )
    found: dict[TopicPartition, int] = {}
    for tp in led_by:
        if tp not in firsts or tp not in ends or (isinstance(target, datetime) and tp not in at):
            raise GroupsError(f"{tp} has no leader that responds: nothing was changed")
        first, end = firsts[tp], ends[tp]
        if isinstance(target, int):
            if not first <= target <= end:
                raise GroupsError(f"{tp} has the offsets {first} to {end}, and not {target}")
            found[tp] = target
        elif isinstance(target, datetime):
            found[tp] = at[tp] if at[tp] >= 0 else end
        else:
            found[tp] = first if target == "earliest" else end
    return found
