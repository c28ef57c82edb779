"""Describes share groups (KIP-932): members, assignments, lag.

Several members share a partition, so that no partition has an owner, and no offset is committed.
The coordinator counts the lag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId

from asyncrevoke.client.groups import requests
from asyncrevoke.client.groups.cluster import GroupsClient, check
from asyncrevoke.client.groups.errors import (
    PATIENCE,
    GroupsError,
    NoGroupError,
    UnsupportedRequestError,
    retry_transient_errors,
)
from asyncrevoke.client.groups.facts import MemberFacts, ShareGroupFacts, SharePartitionFacts
from asyncrevoke.client.groups.partition_offsets import leaders, listed_offsets
from asyncrevoke.client.groups.responses import assigned_partitions, described_group, host_name
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from kio.schema.describe_share_group_offsets.v1.response import (
        DescribeShareGroupOffsetsResponse,
    )
    from kio.schema.share_group_describe.v1.response import DescribedGroup, Member

# Start offset and lag.
_UNKNOWN: Final = (-1, -1)
_ON: Final = "kafka-features upgrade --feature share.version=1"


def check_share(code: ErrorCode, what: str, right: str = "DESCRIBE") -> None:
    """As :func:`check`. Brokers offer the requests of share groups also while these are off in the
    cluster."""
    if code is ErrorCode.unsupported_version:
        raise UnsupportedRequestError(
            f"share groups are off in this cluster; this enables them: {_ON}"
        )
    check(code, what, right)


async def is_share_group(brokers: GroupsClient, node: int, name: str) -> bool:
    """Whether its coordinator ``node`` knows it as a share group. Raises GroupsError."""
    try:
        await _share_group(brokers, node, name)
    except (NoGroupError, UnsupportedRequestError):
        return False
    return True


async def why_off(brokers: GroupsClient, name: str) -> str:
    """Why the cluster has no share groups, as a sentence; empty if it has, or if that cannot be
    found out. ``name`` is that of a group, which need not exist."""
    try:
        await describe_share_group(brokers, name)
    except UnsupportedRequestError as error:
        return str(error)
    except GroupsError:
        pass
    return ""


async def describe_share_group(
    brokers: GroupsClient, name: str, patience: float = PATIENCE
) -> ShareGroupFacts:
    """One share group. Retries for ``patience`` seconds while its coordinator changes or loads.
    Raises GroupsError, and NoGroupError if there is none of this name."""
    return await retry_transient_errors(lambda: _describe(brokers, name), patience)


async def _describe(brokers: GroupsClient, name: str) -> ShareGroupFacts:
    node = await brokers.coordinator(name)
    group = await _share_group(brokers, node, name)
    members = tuple(map(_member, group.members))
    return ShareGroupFacts(
        group=name,
        type="share",
        state=group.group_state,
        assignor=group.assignor_name,
        coordinator=brokers.brokers().get(node, str(node)),
        epoch=group.assignment_epoch,
        members=members,
        partitions=await _partitions(brokers, node, name, members),
    )


async def ended_offsets(brokers: GroupsClient, name: str) -> dict[TopicPartition, int]:
    """The offset of each partition below which the group delivers no record again: the start
    offset, or the end of a log without lag, because the start offset may stay behind. Raises
    GroupsError."""

    async def ask() -> dict[TopicPartition, int]:
        node = await brokers.coordinator(name)
        known = await share_group_offsets(brokers, node, name)
        led_by = await leaders(brokers, {tp.topic for tp in known})
        # Before the lag: records that come meanwhile are not ended.
        ends = await listed_offsets(brokers, led_by, requests.ends)
        latest = await share_group_offsets(brokers, node, name)
        return {
            tp: max(start, ends.get(tp, 0)) if lag == 0 else start
            for tp, (start, lag) in latest.items()
            if start >= 0
        }

    return await retry_transient_errors(ask)


async def _share_group(brokers: GroupsClient, node: int, name: str) -> DescribedGroup:
    response = await brokers.ask(node, requests.ShareGroupDescribeRequest(group_ids=(name,)))
    group = described_group(response.groups, name)
    if group.error_code is ErrorCode.group_id_not_found:
        raise NoGroupError(f"there is no share group {name!r}; asyncrevoke groups lists all groups")
    check_share(group.error_code, f"describing group {name!r}")
    return group


def _member(member: Member) -> MemberFacts:
    return MemberFacts(
        member_id=member.member_id,
        client_id=member.client_id,
        host=host_name(member.client_host),
        rack=member.rack_id,
        topics=tuple(sorted(member.subscribed_topic_names)),
        assigned=assigned_partitions(member.assignment),
        epoch=member.member_epoch,
    )


async def _partitions(
    brokers: GroupsClient, node: int, name: str, members: tuple[MemberFacts, ...]
) -> tuple[SharePartitionFacts, ...]:
    """The partitions that the group has offsets of, and those that its members are assigned."""
    found = await share_group_offsets(brokers, node, name)
    member_ids: dict[TopicPartition, list[str]] = {tp: [] for tp in found}
    for member in members:
        for tp in member.assigned:
            member_ids.setdefault(tp, []).append(member.member_id)
    return tuple(
        _partition(tp, *found.get(tp, _UNKNOWN), tuple(member_ids[tp])) for tp in sorted(member_ids)
    )


def _partition(
    tp: TopicPartition, start: int, lag: int, member_ids: tuple[str, ...]
) -> SharePartitionFacts:
    if start < 0:
        return SharePartitionFacts(topic=tp.topic, partition=tp.partition, member_ids=member_ids)
    # Brokers store any start offset that a tool sends, and compute a lag below 0 from it.
    skipped = -lag if lag < _UNKNOWN[1] else 0
    return SharePartitionFacts(
        topic=tp.topic,
        partition=tp.partition,
        start=start,
        lag=lag if lag >= 0 else 0 if skipped else None,
        skipped=skipped,
        member_ids=member_ids,
    )


async def share_group_offsets(
    brokers: GroupsClient, node: int, name: str
) -> dict[TopicPartition, tuple[int, int]]:
    """The start offset and the lag of each partition, -1 if it is not known; none if the broker
    does not offer the request. Raises GroupsError."""
    try:
        response = await brokers.ask(node, offsets_request(name))
    except UnsupportedRequestError:
        return {}
    return offsets_in(response, name)


def offsets_request(name: str) -> requests.DescribeShareGroupOffsetsRequest:
    """The request for the offsets of all topics of a share group, to its coordinator."""
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(name), topics=None)
    return requests.DescribeShareGroupOffsetsRequest(groups=(wanted,))


def offsets_in(
    response: DescribeShareGroupOffsetsResponse, name: str
) -> dict[TopicPartition, tuple[int, int]]:
    """The start offset and the lag of each partition in a response, -1 if it is not known. Raises
    GroupsError."""
    group = described_group(response.groups, name)
    check_share(group.error_code, f"the offsets of group {name!r}")
    return {
        TopicPartition(topic.topic_name, int(partition.partition_index)): (
            (int(partition.start_offset), int(partition.lag))
            if partition.error_code is ErrorCode.none
            else _UNKNOWN
        )
        for topic in group.topics
        for partition in topic.partitions
    }
