"""Lists groups, and describes consumer groups."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from kio.schema.errors import ErrorCode

from asyncrevoke.client.groups import rebalance_blockers, requests
from asyncrevoke.client.groups.cluster import GroupsClient, check
from asyncrevoke.client.groups.errors import (
    PATIENCE,
    GroupsError,
    NoGroupError,
    ShareGroupError,
    UnsupportedRequestError,
    retry_transient_errors,
)
from asyncrevoke.client.groups.facts import (
    GroupFacts,
    GroupSummary,
    MemberFacts,
    PartitionFacts,
    ShareGroupFacts,
)
from asyncrevoke.client.groups.partition_offsets import leaders, listed_offsets
from asyncrevoke.client.groups.responses import (
    Partitions,
    assigned_partitions,
    described_group,
    host_name,
)
from asyncrevoke.client.groups.share_groups import (
    describe_share_group,
    ended_offsets,
    is_share_group,
)
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.protocol.subscription import (
    MalformedMemberData,
    decode_assignment,
    decode_subscription,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kio.schema.consumer_group_describe.v0.response import DescribedGroup as ConsumerGroup
    from kio.schema.consumer_group_describe.v0.response import Member as ConsumerMember
    from kio.schema.describe_groups.v5.response import DescribedGroup as ClassicGroup
    from kio.schema.describe_groups.v5.response import DescribedGroupMember as ClassicMember

    from asyncrevoke.client.model import TopicPartition

    Response = TypeVar("Response")
    Received = TypeVar("Received", bound=messages.KafkaMessage)

_CONSUMER = "consumer"
_SHARE = "share"
_NO_GROUP = ("", "Dead")
_ABSENT = frozenset((ErrorCode.group_id_not_found, ErrorCode.unsupported_version))


# Seconds for describing all groups: a cluster may have thousands.
_DESCRIBED_WITHIN: Final = 30.0

# The coordinator may change between the requests of one call: the call starts again as a whole.


async def summarize_groups(
    brokers: GroupsClient, within: float = _DESCRIBED_WITHIN
) -> list[GroupSummary]:
    """All consumer groups and share groups by name, with members and lag. Raises GroupsError.

    Groups that the user may not describe, or that are not described ``within`` these seconds, have
    neither. Groups that have gone meanwhile are left out.
    """
    listed = await list_groups(brokers)
    summaries = {group.group: group for group in listed}
    with suppress(TimeoutError):  # the others are listed as they are
        async with asyncio.timeout(within):
            for summary in listed:
                try:
                    describe = describe_share_group if summary.type == _SHARE else describe_group
                    facts = await describe(brokers, summary.group, patience=0.0)
                except NoGroupError:
                    del summaries[summary.group]
                except GroupsError:
                    continue
                else:
                    summaries[summary.group] = msgspec.structs.replace(
                        summary,
                        # Brokers before Apache Kafka 2.6 list no states, before 3.8 no types.
                        type=summary.type or facts.type,
                        state=summary.state or facts.state,
                        members=len(facts.members),
                        lag=facts.lag,
                    )
    return list(summaries.values())


async def list_groups(brokers: GroupsClient) -> list[GroupSummary]:
    """All consumer groups and share groups of the cluster, by name. Raises GroupsError."""
    return await retry_transient_errors(lambda: _list_groups(brokers))


async def committed_offsets(brokers: GroupsClient, name: str) -> dict[TopicPartition, int]:
    """The offsets that a group has committed; none if the group does not exist. Raises GroupsError,
    and ShareGroupError for a share group."""

    async def ask() -> dict[TopicPartition, int]:
        node = await brokers.coordinator(name)
        offsets = await _committed(brokers, node, name)
        if not offsets:
            await _refuse_share_group(brokers, node, name)
        return offsets

    return await retry_transient_errors(ask)


async def offsets_of_any_group(brokers: GroupsClient, name: str) -> dict[TopicPartition, int]:
    """As :func:`committed_offsets`; of a share group those of :func:`ended_offsets`. Raises
    GroupsError."""
    try:
        return await committed_offsets(brokers, name)
    except ShareGroupError:
        return await ended_offsets(brokers, name)


async def describe_group(
    brokers: GroupsClient, name: str, patience: float = PATIENCE
) -> GroupFacts:
    """One consumer group, with its members, lag, and the members that delay a rebalance. Retries
    for ``patience`` seconds while its coordinator changes or loads. Raises GroupsError, and
    ShareGroupError for a share group."""
    return await retry_transient_errors(lambda: _describe_group(brokers, name), patience)


async def describe_group_of_any_type(
    brokers: GroupsClient, name: str, patience: float = PATIENCE
) -> GroupFacts | ShareGroupFacts:
    """As :func:`describe_group`, of a consumer group or a share group. Raises GroupsError."""
    try:
        return await describe_group(brokers, name, patience)
    except ShareGroupError:
        return await describe_share_group(brokers, name, patience)


async def _list_groups(brokers: GroupsClient) -> list[GroupSummary]:
    found: dict[str, GroupSummary] = {}
    for node in sorted(brokers.brokers()):
        response = await brokers.ask(node, requests.ListGroupsRequest())
        check(response.error_code, "listing groups")
        for group in response.groups:
            # Not those of Kafka Connect, Kafka Streams and so on. Groups without members that only
            # have committed offsets have no protocol type.
            if group.protocol_type in (_CONSUMER, _SHARE, ""):
                found[group.group_id] = GroupSummary(
                    group=group.group_id,
                    type=group.group_type.lower(),
                    state=group.group_state,
                )
    return [found[name] for name in sorted(found)]


async def _describe_group(brokers: GroupsClient, name: str) -> GroupFacts:
    node = await brokers.coordinator(name)
    group = await _consumer_group(brokers, node, name)
    if group is not None:
        offsets = await _committed(brokers, node, name)
        members = tuple(
            _consumer_member(member, group.assignment_epoch) for member in group.members
        )
        rebalance = rebalance_blockers.consumer_group_rebalance(
            group.group_state, group.assignment_epoch, members
        )
        kind, state, assignor = "consumer", group.group_state, group.assignor_name
        epoch: int | None = group.assignment_epoch
    else:
        # First, so that a broker without DescribeGroups is named as such: librdkafka's mock cluster
        # also lists no offsets of all partitions.
        classic = await _classic_group(brokers, node, name)
        offsets = await _committed(brokers, node, name)
        if (classic.protocol_type, classic.group_state) == _NO_GROUP and not offsets:
            await _refuse_share_group(brokers, node, name)
            raise NoGroupError(f"there is no group {name!r}; asyncrevoke groups lists them")
        members = tuple(map(_classic_member, classic.members))
        rebalance = rebalance_blockers.classic_rebalance(classic.group_state, members)
        kind, state, assignor = "classic", classic.group_state, classic.protocol_data
        epoch = None
    return GroupFacts(
        group=name,
        type=kind,
        state=state,
        assignor=assignor,
        coordinator=brokers.brokers().get(node, str(node)),
        epoch=epoch,
        rebalance=rebalance,
        members=members,
        partitions=await _partitions(brokers, members, offsets),
    )


async def _refuse_share_group(brokers: GroupsClient, node: int, name: str) -> None:
    """Raise ShareGroupError if it is one: to the other requests it looks like a group that does not
    exist (DescribeGroups) or has committed nothing (OffsetFetch)."""
    if await is_share_group(brokers, node, name):
        raise ShareGroupError(
            f"group {name!r} is a share group, which commits no offsets and whose partitions have "
            f"no owners; asyncrevoke groups {name} shows its members and lag"
        )


# --- the group ----------------------------------------------------------------------------------


async def _consumer_group(brokers: GroupsClient, node: int, name: str) -> ConsumerGroup | None:
    """None if it is not a KIP-848 group, or the broker does not support KIP-848."""
    try:
        response = await brokers.ask(node, requests.ConsumerGroupDescribeRequest(group_ids=(name,)))
    except UnsupportedRequestError:
        return None
    group = described_group(response.groups, name)
    if group.error_code in _ABSENT:
        return None
    check(group.error_code, f"describing group {name!r}")
    return group


def _consumer_member(member: ConsumerMember, group_epoch: int) -> MemberFacts:
    mine, target = (
        assigned_partitions(member.assignment),
        assigned_partitions(member.target_assignment),
    )
    return MemberFacts(
        member_id=member.member_id,
        client_id=member.client_id,
        host=host_name(member.client_host),
        group_instance_id=member.instance_id,
        rack=member.rack_id,
        topics=tuple(sorted(member.subscribed_topic_names)),
        assigned=mine,
        releasing=_without(mine, target),
        waiting_for=_without(target, mine) if member.member_epoch >= group_epoch else (),
        epoch=member.member_epoch,
        target=target,
    )


async def _classic_group(brokers: GroupsClient, node: int, name: str) -> ClassicGroup:
    response = await brokers.ask(node, requests.DescribeGroupsRequest(groups=(name,)))
    group = described_group(response.groups, name)
    check(group.error_code, f"describing group {name!r}")
    if group.protocol_type not in (_CONSUMER, ""):
        raise GroupsError(f"group {name!r} is not a consumer group but {group.protocol_type!r}")
    return group


def _classic_member(member: ClassicMember) -> MemberFacts:
    """While a group rebalances, a broker reports neither subscriptions nor assignments."""
    topics: tuple[str, ...] = ()
    assigned: Partitions = ()
    releasing: Partitions = ()
    rack = unreadable = None
    try:
        assigned = tuple(sorted(decode_assignment(member.member_assignment)[0]))
        if member.member_metadata:
            subscription = decode_subscription(member.member_metadata)
            topics, rack = tuple(sorted(subscription.topics)), subscription.rack
            releasing = tuple(sorted(set(subscription.owned) - set(assigned)))
    except MalformedMemberData as error:
        unreadable = str(error)
    return MemberFacts(
        member_id=member.member_id,
        client_id=member.client_id,
        host=host_name(member.client_host),
        group_instance_id=member.group_instance_id,
        rack=rack,
        topics=topics,
        assigned=assigned,
        releasing=releasing,
        unreadable=unreadable,
    )


# --- lag ----------------------------------------------------------------------------------------


async def _committed(brokers: GroupsClient, node: int, name: str) -> dict[TopicPartition, int]:
    response = await brokers.send(node, requests.committed(name), messages.OffsetFetchResponse)
    if response.error is ErrorCode.group_id_not_found:
        return {}
    check(response.error, f"the offsets of group {name!r}")
    return {
        offset.partition: offset.offset
        for offset in response.offsets
        if offset.error is ErrorCode.none and offset.offset >= 0
    }


async def _partitions(
    brokers: GroupsClient, members: Sequence[MemberFacts], offsets: Mapping[TopicPartition, int]
) -> tuple[PartitionFacts, ...]:
    owner = {tp: member.member_id for member in members for tp in member.assigned}
    for member in members:
        owner |= dict.fromkeys(member.releasing, member.member_id)
    subscribed = {topic for member in members for topic in member.topics}
    led_by = await leaders(brokers, {tp.topic for tp in (*owner, *offsets)} | subscribed)
    ends = await listed_offsets(brokers, led_by, requests.ends)
    behind = {tp for tp, at in offsets.items() if at < ends.get(tp, at)}
    leaders_of_behind = {tp: leader for tp, leader in led_by.items() if tp in behind}
    starts = await listed_offsets(brokers, leaders_of_behind, requests.starts)
    wanted = {*owner, *offsets, *(tp for tp in led_by if tp.topic in subscribed)}
    facts: list[PartitionFacts] = []
    for tp in sorted(wanted):
        committed, end = offsets.get(tp), ends.get(tp)
        lag = None if committed is None or end is None else max(end - committed, 0)
        if lag:
            # Retention may have removed records that the group has not read.
            lag = min(lag, end - starts[tp]) if end is not None and tp in starts else None
        facts.append(
            PartitionFacts(
                topic=tp.topic,
                partition=tp.partition,
                committed=committed,
                end=end,
                lag=lag,
                member_id=owner.get(tp),
            )
        )
    return tuple(facts)


def _without(partitions: Partitions, others: Partitions) -> Partitions:
    left_out = set(others)
    return tuple(tp for tp in partitions if tp not in left_out)
