"""Sets and deletes the start offsets of share groups without members (KIP-932)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequestTopic
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from asyncrevoke.client.groups import requests
from asyncrevoke.client.groups.errors import GroupsError, NoGroupError, retry_transient_errors
from asyncrevoke.client.groups.observer import describe_group
from asyncrevoke.client.groups.partition_offsets import leaders, listed_offsets
from asyncrevoke.client.groups.share_groups import check_share, describe_share_group
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.printable import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.groups.facts import ShareGroupFacts, SharePartitionFacts

Target: TypeAlias = Literal["earliest", "latest"] | int | datetime
"""The first offset of the log, its end, an offset, or the first record from a time on."""

_TO_ALTER: Final = "READ on the group and its topics"
_TO_DELETE: Final = "DELETE on the group and READ on its topics"


class StartMove(msgspec.Struct, frozen=True, kw_only=True):
    """A partition, and its start offset before and after; None: the group has none yet."""

    topic: str
    partition: int
    before: int | None
    after: int


class ResetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a reset changes. Brokers refuse it while the group has ``members``."""

    group: str
    members: int
    moves: tuple[StartMove, ...]


async def plan_reset(
    brokers: GroupsClient,
    name: str,
    topics: Mapping[str, Collection[int] | None],
    target: Target,
) -> ResetPlan:
    """Which start offsets a share group gets. ``topics`` are those to reset, with their partitions,
    None for all; without any, the partitions that the group has start offsets of. Raises
    GroupsError, also for an offset that is not in a partition's log: brokers do not check it."""
    group = await _share_group(brokers, name)
    before = {each.topic_partition: each.start for each in group.partitions}
    if not topics and not before:
        raise GroupsError(f"group {name!r} has no start offsets yet: name the topics to reset")
    led_by = await leaders(brokers, topics or {tp.topic for tp in before})
    wanted = _partitions(led_by, topics) if topics else sorted(before)
    after = await _offsets(brokers, {tp: led_by.get(tp, -1) for tp in wanted}, target)
    return ResetPlan(
        group=name,
        members=len(group.members),
        moves=tuple(
            StartMove(
                topic=tp.topic, partition=tp.partition, before=before.get(tp), after=after[tp]
            )
            for tp in wanted
        ),
    )


async def apply_reset(brokers: GroupsClient, plan: ResetPlan) -> None:
    """Set the start offsets. Raises GroupsError, which names the partitions that were not set."""
    by_topic: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for move in plan.moves:
        partition = AlterShareGroupOffsetsRequestPartition(
            partition_index=i32(move.partition), start_offset=i64(move.after)
        )
        by_topic.setdefault(move.topic, []).append(partition)
    request = requests.AlterShareGroupOffsetsRequest(
        group_id=plan.group,
        topics=tuple(
            AlterShareGroupOffsetsRequestTopic(
                topic_name=TopicName(topic), partitions=tuple(partitions)
            )
            for topic, partitions in by_topic.items()
        ),
    )

    async def ask() -> Mapping[str, tuple[ErrorCode, str | None]]:
        response = await brokers.ask(await brokers.coordinator(plan.group), request)
        _check(response.error_code, plan.group, _TO_ALTER)
        return {
            str(TopicPartition(topic.topic_name, int(partition.partition_index))): (
                partition.error_code,
                partition.error_message,
            )
            for topic in response.responses
            for partition in topic.partitions
        }

    wanted = [str(TopicPartition(move.topic, move.partition)) for move in plan.moves]
    _check_each(await retry_transient_errors(ask), wanted, "were not set")


async def offsets_of_topics(
    brokers: GroupsClient, name: str, topics: Collection[str]
) -> Sequence[SharePartitionFacts]:
    """The partitions of these topics that a share group has offsets of. Raises GroupsError, also
    for a topic that it has none of."""
    group = await _share_group(brokers, name)
    if group.members:
        _check(ErrorCode.non_empty_group, name, _TO_DELETE)
    found = [partition for partition in group.partitions if partition.topic in topics]
    if missing := sorted(set(topics) - {partition.topic for partition in found}):
        raise GroupsError(f"group {name!r} has no offsets of {', '.join(missing)}")
    return found


async def delete_offsets(brokers: GroupsClient, name: str, topics: Iterable[str]) -> None:
    """Delete the offsets of topics. Raises GroupsError, which names the topics whose offsets were
    not deleted."""
    wanted = sorted(topics)
    request = requests.DeleteShareGroupOffsetsRequest(
        group_id=name,
        topics=tuple(
            DeleteShareGroupOffsetsRequestTopic(topic_name=TopicName(topic)) for topic in wanted
        ),
    )

    async def ask() -> Mapping[str, tuple[ErrorCode, str | None]]:
        response = await brokers.ask(await brokers.coordinator(name), request)
        _check(response.error_code, name, _TO_DELETE)
        return {
            topic.topic_name: (topic.error_code, topic.error_message)
            for topic in response.responses
        }

    _check_each(await retry_transient_errors(ask), wanted, "were not deleted")


async def _share_group(brokers: GroupsClient, name: str) -> ShareGroupFacts:
    """Raises GroupsError. Brokers would create a share group that does not exist, when an offset of
    it is set."""
    try:
        return await describe_share_group(brokers, name)
    except NoGroupError:
        other = await describe_group(brokers, name)
        raise GroupsError(
            f"{name!r} is no share group but a {other.type} group: change its offsets with seek(), "
            "or with kafka-consumer-groups --reset-offsets"
        ) from None


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


def _check(code: ErrorCode, name: str, right: str) -> None:
    if code is ErrorCode.non_empty_group:
        raise GroupsError(
            f"group {name!r} has members: stop them first, as a broker changes the offsets of a "
            "share group only while it is empty"
        )
    check_share(code, f"changing the offsets of group {name!r}", right)


def _check_each(
    results: Mapping[str, tuple[ErrorCode, str | None]], wanted: Sequence[str], what: str
) -> None:
    """Raise GroupsError with those that were not changed, or that the response lacks."""
    failed: list[str] = []
    for each in wanted:
        code, message = results.get(each, (None, "the broker did not respond about it"))
        if code is None or code is not ErrorCode.none:
            name = "" if code is None else f"{code.name}: "
            failed.append(f"{each} ({name}{printable(message or 'no text')})")
    if failed:
        raise GroupsError(f"offsets of {', '.join(failed)} {what}")
