"""What the fake broker needs of a group whose members may use the classic protocol."""

from __future__ import annotations

from typing import Protocol

from asyncrevoke.client.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribeGroupsResponse,
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
)
from asyncrevoke.testing.fake_kafka.classic_group import ClassicGroup
from asyncrevoke.testing.fake_kafka.group_state import ON_COMMIT, GroupState, Reply


class ClassicCoordinator(ClassicGroup):
    """Handles all requests of the group."""

    def consumer_heartbeat(
        self, _client: int, _request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        """Respond like a coordinator that supports only the classic protocol."""
        return ConsumerGroupHeartbeatResponse(error=ErrorCode.unsupported_version)

    # --- offsets ---------------------------------------------------------------------------------

    def offset_commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Store offsets, if the member and its generation are valid."""
        error = self._check_commit(request)
        if error is not ErrorCode.none:
            return OffsetCommitResponse(
                errors=tuple((entry.partition, error) for entry in request.entries)
            )
        return OffsetCommitResponse(
            errors=tuple((entry.partition, self._offsets.store(entry)) for entry in request.entries)
        )

    def _check_commit(self, request: OffsetCommitRequest) -> ErrorCode:
        if request.generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.none
        if request.generation < 0 and not request.member_id and not request.group_instance_id:
            return ErrorCode.unknown_member_id
        error = self._check_running(
            request.member_id, request.group_instance_id, request.generation
        )
        if error is ErrorCode.none:
            error = ON_COMMIT[self.state]
            if self.state in (GroupState.PREPARING, GroupState.STABLE):
                member = self.members[request.member_id]
                self._arm_session(member, member.session_timeout)
        return error

    def offset_fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Read offsets; -1 for partitions without one."""
        return self._offsets.fetch(request)


class ServesClassicMembers(Protocol):
    """A group whose coordinator handles JoinGroup, SyncGroup, Heartbeat and LeaveGroup. Implemented
    by :class:`~asyncrevoke.testing.fake_kafka.classic_members.ClassicCoordinator`."""

    def offset_commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Store offsets, if the member and its generation are valid."""
        ...

    def offset_fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Read offsets."""
        ...

    def consumer_heartbeat(
        self, client: int, request: ConsumerGroupHeartbeatRequest, /
    ) -> ConsumerGroupHeartbeatResponse:
        """Respond to a ConsumerGroupHeartbeat."""
        ...

    def join_group(self, client: int, request: JoinGroupRequest, reply: Reply) -> None:
        """Respond to a JoinGroup, at once or at the end of the join phase."""

    def sync_group(self, request: SyncGroupRequest, reply: Reply) -> None:
        """Respond to a SyncGroup, at once or when the leader has sent the assignment."""

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Respond to a Heartbeat."""
        ...

    def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Remove a member."""
        ...

    def describe(self) -> DescribeGroupsResponse:
        """The state of the group, and its assignor."""
        ...
