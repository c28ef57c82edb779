"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of the classic group protocol."""

# Each version of a message is a module of kio; only versions in use are imported.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from asyncrevoke.protocol.dialects.dialect import Dialect, duration, make
from asyncrevoke.protocol.messages import (
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
    from collections.abc import Callable

    from kio.schema.heartbeat.v3.response import HeartbeatResponse as Heartbeat3
    from kio.schema.heartbeat.v4.response import HeartbeatResponse as Heartbeat4
    from kio.schema.join_group.v5.response import JoinGroupResponse as Join5
    from kio.schema.join_group.v9.response import JoinGroupResponse as Join9
    from kio.schema.leave_group.v3.response import LeaveGroupResponse as Leave3
    from kio.schema.leave_group.v5.response import LeaveGroupResponse as Leave5
    from kio.schema.sync_group.v3.response import SyncGroupResponse as Sync3
    from kio.schema.sync_group.v5.response import SyncGroupResponse as Sync5

__all__ = [
    "heartbeat_v3",
    "heartbeat_v4",
    "join_group_v5",
    "join_group_v9",
    "leave_group_v3",
    "leave_group_v5",
    "sync_group_v3",
    "sync_group_v5",
]

_PROTOCOL_TYPE: Final = "consumer"
_LONGEST_REASON: Final = 255  # KIP-800: brokers reject longer ones


def join_group_v9() -> Dialect:
    """With a reason (KIP-800), and with skip_assignment for a static leader (KIP-814)."""
    from kio.schema.join_group.v9 import request as q
    from kio.schema.join_group.v9 import response as r

    def build(message: JoinGroupRequest) -> q.JoinGroupRequest:
        fields = _join_fields(message, q.JoinGroupRequestProtocol)
        return q.JoinGroupRequest(**fields, reason=message.reason[:_LONGEST_REASON] or None)

    def read(entity: r.JoinGroupResponse) -> JoinGroupResponse:
        return _joined(entity, skip_assignment=entity.skip_assignment)

    return make(q.JoinGroupRequest, build, r.JoinGroupResponse, read)


def join_group_v5() -> Dialect:
    """With static members (KIP-345); Kafka 2.3 to 3.1."""
    from kio.schema.join_group.v5 import request as q
    from kio.schema.join_group.v5 import response as r

    def build(message: JoinGroupRequest) -> q.JoinGroupRequest:
        return q.JoinGroupRequest(**_join_fields(message, q.JoinGroupRequestProtocol))

    def read(entity: r.JoinGroupResponse) -> JoinGroupResponse:
        return _joined(entity, skip_assignment=False)

    return make(q.JoinGroupRequest, build, r.JoinGroupResponse, read)


def _join_fields(message: JoinGroupRequest, protocol: Callable[..., object]) -> dict[str, Any]:
    return {
        "group_id": message.group_id,
        "session_timeout": duration(message.session_timeout),
        "rebalance_timeout": duration(message.rebalance_timeout),
        "member_id": message.member_id,
        "group_instance_id": message.group_instance_id,
        "protocol_type": _PROTOCOL_TYPE,
        "protocols": tuple(
            protocol(name=name, metadata=metadata) for name, metadata in message.protocols
        ),
    }


def _joined(entity: Join5 | Join9, *, skip_assignment: bool) -> JoinGroupResponse:
    return JoinGroupResponse(
        error=entity.error_code,
        generation=entity.generation_id,
        protocol_name=entity.protocol_name or None,
        leader=entity.leader,
        skip_assignment=skip_assignment,
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


def sync_group_v5() -> Dialect:
    """With the assignor's name, which the broker checks (KIP-559)."""
    from kio.schema.sync_group.v5 import request as q
    from kio.schema.sync_group.v5 import response as r

    def build(message: SyncGroupRequest) -> q.SyncGroupRequest:
        return q.SyncGroupRequest(
            **_sync_fields(message, q.SyncGroupRequestAssignment),
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=message.protocol_name,
        )

    return make(q.SyncGroupRequest, build, r.SyncGroupResponse, _synced)


def sync_group_v3() -> Dialect:
    """With static members; Kafka 2.3 and 2.4."""
    from kio.schema.sync_group.v3 import request as q
    from kio.schema.sync_group.v3 import response as r

    def build(message: SyncGroupRequest) -> q.SyncGroupRequest:
        return q.SyncGroupRequest(**_sync_fields(message, q.SyncGroupRequestAssignment))

    return make(q.SyncGroupRequest, build, r.SyncGroupResponse, _synced)


def _sync_fields(message: SyncGroupRequest, assignment: Callable[..., object]) -> dict[str, Any]:
    return {
        **_generation_fields(message),
        "assignments": tuple(
            assignment(member_id=member_id, assignment=data)
            for member_id, data in message.assignments
        ),
    }


def _generation_fields(message: SyncGroupRequest | HeartbeatRequest) -> dict[str, Any]:
    return {
        "group_id": message.group_id,
        "generation_id": message.generation,
        "member_id": message.member_id,
        "group_instance_id": message.group_instance_id,
    }


def _synced(entity: Sync3 | Sync5) -> SyncGroupResponse:
    return SyncGroupResponse(error=entity.error_code, assignment=entity.assignment)


def heartbeat_v3() -> Dialect:
    """With static members. Version 4 adds tagged fields, of which there are none yet."""
    from kio.schema.heartbeat.v3 import request as q
    from kio.schema.heartbeat.v3 import response as r

    def build(message: HeartbeatRequest) -> q.HeartbeatRequest:
        return q.HeartbeatRequest(**_generation_fields(message))

    return make(q.HeartbeatRequest, build, r.HeartbeatResponse, _heartbeat)


def heartbeat_v4() -> Dialect:
    """With tagged fields."""
    from kio.schema.heartbeat.v4 import request as q
    from kio.schema.heartbeat.v4 import response as r

    def build(message: HeartbeatRequest) -> q.HeartbeatRequest:
        return q.HeartbeatRequest(**_generation_fields(message))

    return make(q.HeartbeatRequest, build, r.HeartbeatResponse, _heartbeat)


def _heartbeat(entity: Heartbeat3 | Heartbeat4) -> HeartbeatResponse:
    return HeartbeatResponse(error=entity.error_code)


def leave_group_v5() -> Dialect:
    """With a reason (KIP-800)."""
    from kio.schema.leave_group.v5 import request as q
    from kio.schema.leave_group.v5 import response as r
    from kio.schema.types import GroupId

    def build(message: LeaveGroupRequest) -> q.LeaveGroupRequest:
        member = q.MemberIdentity(
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            reason=message.reason[:_LONGEST_REASON] or None,
        )
        return q.LeaveGroupRequest(group_id=GroupId(message.group_id), members=(member,))

    return make(q.LeaveGroupRequest, build, r.LeaveGroupResponse, _left)


def leave_group_v3() -> Dialect:
    """With several members, also static ones; Kafka 2.4 to 3.1."""
    from kio.schema.leave_group.v3 import request as q
    from kio.schema.leave_group.v3 import response as r
    from kio.schema.types import GroupId

    def build(message: LeaveGroupRequest) -> q.LeaveGroupRequest:
        member = q.MemberIdentity(
            member_id=message.member_id, group_instance_id=message.group_instance_id
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
