"""What the fake broker needs of a group whose members may use the classic protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.protocol.messages import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        DescribeGroupsResponse,
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
    from asyncrevoke.testing.fake_kafka.group_state import Reply


class ServesClassicMembers(Protocol):
    """A group whose coordinator handles JoinGroup, SyncGroup, Heartbeat and LeaveGroup. Implemented
    by :class:`~asyncrevoke.testing.fake_kafka.classic_coordinator.ClassicCoordinator`."""

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
