"""What the fake brokers need of a group whose members may use the classic protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.model import GroupMetadata, OffsetAndMetadata, TopicPartition
    from asyncrevoke.protocol.messages import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
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
    from asyncrevoke.testing.fake_kafka.consumer_group_member import ConsumerGroupMember
    from asyncrevoke.testing.fake_kafka.group_state import (
        CoordinatorEvents,
        GroupMember,
        GroupState,
        Reply,
    )


class DescribesGroup(Protocol):
    """What tests see of a group. Implemented by
    :class:`~asyncrevoke.testing.fake_kafka.classic_coordinator.ClassicCoordinator`."""

    @property
    def events(self) -> CoordinatorEvents:
        """Receives each event of the group."""
        ...

    @property
    def members(self) -> Mapping[str, GroupMember] | Mapping[str, ConsumerGroupMember]:
        """The members by their ids."""
        ...

    @property
    def state(self) -> GroupState:
        """The state of the group."""
        ...

    @property
    def generation(self) -> int:
        """The generation of a classic group, or the group epoch."""
        ...

    @property
    def protocol(self) -> str | None:
        """The assignor that all members support, or ``"consumer"``."""
        ...

    @property
    def rebalances(self) -> int:
        """The number of rebalances so far."""
        ...

    @property
    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets."""
        ...


class StoresOffsets(Protocol):
    """Stores the offsets of a group, and notices when its coordinator changes. Implemented by
    :class:`~asyncrevoke.testing.fake_kafka.classic_coordinator.ClassicCoordinator`."""

    def accepts(self, client: int, identity: GroupMetadata) -> bool:
        """Whether a commit of this client with this member id and generation would be accepted."""
        ...

    def offset_commit(self, client: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Store offsets, if the member and its generation are valid."""
        ...

    def offset_fetch(self, client: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Read offsets."""
        ...

    def unload(self) -> None:
        """The broker is no longer the coordinator."""

    def crash(self) -> None:
        """The broker ends. Delayed requests get no response."""

    def load(self) -> None:
        """Restore the group from the log."""


class ServesClassicMembers(DescribesGroup, StoresOffsets, Protocol):
    """A group whose coordinator handles JoinGroup, SyncGroup, Heartbeat and LeaveGroup. Implemented
    by :class:`~asyncrevoke.testing.fake_kafka.classic_coordinator.ClassicCoordinator`."""

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
