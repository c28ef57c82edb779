"""The coordinator of a classic group: its members, its offsets, and its log.

After a restart or a move, a coordinator knows only what the log has: the last generation that
became STABLE or EMPTY, with the metadata of the chosen protocol only, and the offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ErrorCode,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupResponse,
)
from asyncrevoke.testing.fake_kafka.classic_group import ClassicGroup, rejected
from asyncrevoke.testing.fake_kafka.group_state import (
    ON_COMMIT,
    CommittedGroupOffsets,
    GroupMember,
    GroupMembers,
    GroupState,
    StoredGroup,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.model import GroupMetadata


class ClassicCoordinator(ClassicGroup):
    """Handles all requests of the group."""

    def consumer_heartbeat(
        self, _client: int, _request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        """Respond like a coordinator that supports only the classic protocol."""
        return ConsumerGroupHeartbeatResponse(error=ErrorCode.unsupported_version)

    # --- offsets ---------------------------------------------------------------------------------

    def offset_commit(self, client: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Store offsets, if the member and its generation are valid."""
        error = self._check_commit(request)
        if error is not ErrorCode.none:
            return OffsetCommitResponse(
                errors=tuple((entry.partition, error) for entry in request.entries)
            )
        return OffsetCommitResponse(
            errors=tuple(
                (entry.partition, self._offsets.store(client, entry, self.events))
                for entry in request.entries
            )
        )

    def accepts(self, client: int, identity: GroupMetadata) -> bool:
        """Whether the coordinator would store a commit of this client with this identity."""
        member = self.members.get(identity.member_id)
        return (
            self.state in (GroupState.STABLE, GroupState.PREPARING)
            and member is not None
            and member.client == client
            and identity.generation == self.generation
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

    def offset_fetch(self, client: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Read offsets; -1 for partitions without one."""
        self.events.offsets_fetched(client, request.partitions)
        return self._offsets.fetch(request)

    # --- loading and unloading -------------------------------------------------------------------

    def unload(self) -> None:
        """The broker is no longer the coordinator: respond NOT_COORDINATOR to delayed requests."""
        self.end(ErrorCode.not_coordinator)

    def end(self, error: ErrorCode) -> None:
        """Respond to all delayed requests with ``error``, and stop."""
        for member in self.members.values():
            if member.join is not None:
                respond, member.join = member.join, None
                respond(rejected(error, member.member_id))
            if member.sync is not None:
                respond, member.sync = member.sync, None
                respond(SyncGroupResponse(error=error))
        self._forget()

    def crash(self) -> None:
        """The broker ends. Delayed requests get no response."""
        self._forget()

    def _forget(self) -> None:
        self._epoch += 1
        self._cancel_timers()
        for alarm in self._group.pending.values():
            alarm.cancel()
        for member in self.members.values():
            if member.session is not None:
                member.session.cancel()
            member.join = member.sync = None

    def load(self) -> None:
        """Restore the group from the log. The sessions of all members restart."""
        self.events.loaded()
        stored = self.stored
        if stored.generation < self.generation:
            clients = tuple(m.client for m in self.members.values())
            self.events.generation_forgotten(self.generation, clients)
        self.generation = stored.generation
        self.protocol = stored.protocol
        self._group = GroupMembers()
        self.pending_sync = {}
        self._new_member_added = False
        for known in stored.members:
            member = GroupMember(
                known.member_id,
                known.client,
                known.instance_id,
                known.session_timeout,
                known.rebalance_timeout,
                ((stored.protocol or "", known.metadata),),
                is_new=False,
                assignment=known.assignment,
            )
            self._group.add(member)
            self._arm_session(member, member.session_timeout)
        self._group.leader = stored.leader
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.events.stable(self.generation, {m.client: m.assignment for m in self.members.values()})

    # --- becoming a classic group ----------------------------------------------------------------

    @property
    def stored_offsets(self) -> CommittedGroupOffsets:
        """The committed offsets."""
        return self._offsets

    def adopt(
        self, generation: int, members: Iterable[GroupMember], *, rebalance: bool = True
    ) -> None:
        """Become a group with these members and assignments. ``rebalance``: rebalance at once."""
        self._forget()
        self._group = GroupMembers()
        self.pending_sync = {}
        self._new_member_added = False
        self.generation, self.protocol = generation, None
        self.previous_state = GroupState.EMPTY
        for member in members:
            self._group.add(member)
            self._arm_session(member, member.session_timeout)
        if not self.members:
            self.state, self.stored = GroupState.EMPTY, StoredGroup(generation)
            return
        self.state, self.protocol = GroupState.STABLE, self._group.select_protocol()
        self.stored = self._snapshot({m.member_id: m.assignment for m in self.members.values()})
        if rebalance:
            self._prepare()
