"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup and DescribeGroups of the classic group protocol, and
ConsumerGroupHeartbeat, the membership request of KIP-848."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from asyncrevoke.client.printable import printable
from asyncrevoke.client.protocol.dialects.dialect import Dialect, duration, make, schema
from asyncrevoke.client.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from kio.schema.consumer_group_heartbeat.v0.response import (
        ConsumerGroupHeartbeatResponse as Heartbeat0,
    )
    from kio.schema.consumer_group_heartbeat.v1.response import (
        ConsumerGroupHeartbeatResponse as Heartbeat1,
    )
    from kio.schema.describe_groups.v4.response import DescribeGroupsResponse as Describe4
    from kio.schema.describe_groups.v5.response import DescribeGroupsResponse as Describe5
    from kio.schema.heartbeat.v3.response import HeartbeatResponse as Heartbeat3
    from kio.schema.heartbeat.v4.response import HeartbeatResponse as Heartbeat4
    from kio.schema.join_group.v5.response import JoinGroupResponse as Join5
    from kio.schema.join_group.v9.response import JoinGroupResponse as Join9
    from kio.schema.leave_group.v3.response import LeaveGroupResponse as Leave3
    from kio.schema.leave_group.v5.response import LeaveGroupResponse as Leave5
    from kio.schema.sync_group.v3.response import SyncGroupResponse as Sync3
    from kio.schema.sync_group.v5.response import SyncGroupResponse as Sync5

_PROTOCOL_TYPE: Final = "consumer"
_LONGEST_REASON: Final = 255  # KIP-800: brokers reject longer ones
_UNCHANGED = -0.001


def join_group(version: int) -> Dialect:
    """Version 5 (Kafka 2.3 to 3.1) has static members (KIP-345). Version 9 also has a reason
    (KIP-800), and skip_assignment for a static leader (KIP-814)."""
    q, r = schema("join_group", version)

    def build(message: JoinGroupRequest) -> object:
        reason = {"reason": message.reason[:_LONGEST_REASON] or None} if version >= 8 else {}
        return q.JoinGroupRequest(
            group_id=message.group_id,
            session_timeout=duration(message.session_timeout),
            rebalance_timeout=duration(message.rebalance_timeout),
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=tuple(
                q.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in message.protocols
            ),
            **reason,
        )

    return make(q.JoinGroupRequest, build, r.JoinGroupResponse, _joined)


def _joined(entity: Join5 | Join9) -> JoinGroupResponse:
    return JoinGroupResponse(
        error=entity.error_code,
        generation=entity.generation_id,
        protocol_name=entity.protocol_name or None,
        leader=entity.leader,
        skip_assignment=getattr(entity, "skip_assignment", False),
        member_id=entity.member_id,
        members=tuple(
            JoinGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in entity.members
        ),
    )


def sync_group(version: int) -> Dialect:
    """Version 3 (Kafka 2.3 and 2.4) has static members. Version 5 also has the assignor's name,
    which the broker checks (KIP-559)."""
    q, r = schema("sync_group", version)

    def build(message: SyncGroupRequest) -> object:
        assignor = {"protocol_type": _PROTOCOL_TYPE, "protocol_name": message.protocol_name}
        return q.SyncGroupRequest(
            **_generation_fields(message),
            assignments=tuple(
                q.SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in message.assignments
            ),
            **(assignor if version >= 5 else {}),
        )

    return make(q.SyncGroupRequest, build, r.SyncGroupResponse, _synced)


def _generation_fields(message: SyncGroupRequest | HeartbeatRequest) -> dict[str, Any]:
    return {
        "group_id": message.group_id,
        "generation_id": message.generation,
        "member_id": message.member_id,
        "group_instance_id": message.group_instance_id,
    }


def _synced(entity: Sync3 | Sync5) -> SyncGroupResponse:
    return SyncGroupResponse(error=entity.error_code, assignment=entity.assignment)


def heartbeat(version: int) -> Dialect:
    """With static members. Version 4 adds tagged fields, of which there are none yet."""
    q, r = schema("heartbeat", version)

    def build(message: HeartbeatRequest) -> object:
        return q.HeartbeatRequest(**_generation_fields(message))

    return make(q.HeartbeatRequest, build, r.HeartbeatResponse, _heartbeat)


def _heartbeat(entity: Heartbeat3 | Heartbeat4) -> HeartbeatResponse:
    return HeartbeatResponse(error=entity.error_code)


def leave_group(version: int) -> Dialect:
    """Version 3 (Kafka 2.4 to 3.1) has several members, also static ones; version 5 also a reason
    (KIP-800)."""
    from kio.schema.types import GroupId

    q, r = schema("leave_group", version)

    def build(message: LeaveGroupRequest) -> object:
        reason = {"reason": message.reason[:_LONGEST_REASON] or None} if version >= 5 else {}
        member = q.MemberIdentity(
            member_id=message.member_id, group_instance_id=message.group_instance_id, **reason
        )
        return q.LeaveGroupRequest(group_id=GroupId(message.group_id), members=(member,))

    return make(q.LeaveGroupRequest, build, r.LeaveGroupResponse, _left)


def _left(entity: Leave3 | Leave5) -> LeaveGroupResponse:
    # The response has an error of its own, and one of each member; there is one member.
    error = entity.error_code
    for member in entity.members:
        if error is ErrorCode.none:
            error = member.error_code
    return LeaveGroupResponse(error=error)


def describe_groups(version: int) -> Dialect:
    """Version 5 adds tagged fields, of which there are none yet."""
    from kio.schema.types import GroupId

    q, r = schema("describe_groups", version)

    def build(message: DescribeGroupsRequest) -> object:
        return q.DescribeGroupsRequest(
            groups=(GroupId(message.group_id),), include_authorized_operations=False
        )

    return make(q.DescribeGroupsRequest, build, r.DescribeGroupsResponse, _described)


def _described(entity: Describe4 | Describe5) -> DescribeGroupsResponse:
    if not entity.groups:
        return DescribeGroupsResponse(error=ErrorCode.group_id_not_found)
    group = entity.groups[0]
    return DescribeGroupsResponse(
        error=group.error_code,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
    )


def consumer_group_heartbeat(version: int) -> Dialect:
    """From version 1 on (Kafka 4.0) the client generates the member id, and the broker matches
    regular expressions. Version 0 is that of Kafka 3.7 to 3.9, where KIP-848 is a preview."""
    q, r = schema("consumer_group_heartbeat", version)

    def build(message: ConsumerGroupHeartbeatRequest) -> object:
        if version == 0 and message.regex:
            raise ValueError(
                "the broker offers ConsumerGroupHeartbeat 0, and brokers before Apache Kafka 4.0 "
                "match no regular expressions: subscribe by topics, or by a pattern that the "
                "client matches"
            )
        timeout = message.rebalance_timeout
        return q.ConsumerGroupHeartbeatRequest(
            group_id=message.group_id,
            member_id=message.member_id,
            member_epoch=message.member_epoch,
            instance_id=message.group_instance_id,
            rack_id=message.rack,
            rebalance_timeout=duration(_UNCHANGED if timeout is None else timeout),
            subscribed_topic_names=message.topics,
            server_assignor=message.assignor,
            topic_partitions=None
            if message.owned is None
            else tuple(
                q.TopicPartitions(topic_id=uuid.UUID(bytes=topic_id), partitions=tuple(numbers))
                for topic_id, numbers in message.owned
            ),
            **({} if version == 0 else {"subscribed_topic_regex": message.regex}),
        )

    return make(
        q.ConsumerGroupHeartbeatRequest,
        build,
        r.ConsumerGroupHeartbeatResponse,
        _consumer_group_heartbeat,
    )


def _consumer_group_heartbeat(entity: Heartbeat0 | Heartbeat1) -> ConsumerGroupHeartbeatResponse:
    assignment = entity.assignment
    return ConsumerGroupHeartbeatResponse(
        error=entity.error_code,
        detail=printable(entity.error_message or ""),
        member_id=entity.member_id,
        member_epoch=entity.member_epoch,
        heartbeat_interval=entity.heartbeat_interval.total_seconds(),
        assignment=None
        if assignment is None
        else tuple(
            (bytes(16) if topic.topic_id is None else topic.topic_id.bytes, topic.partitions)
            for topic in assignment.topic_partitions
        ),
    )
