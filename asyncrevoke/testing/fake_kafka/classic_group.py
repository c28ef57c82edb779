"""A classic group, by the rules of Kafka's coordinator (4.x).

A group is EMPTY, PREPARING (collecting JoinGroups), COMPLETING (waiting for the leader's
assignment) or STABLE. Each change of its members begins a rebalance. The join phase ends when all
members have rejoined, or after their longest rebalance timeout; then members that have not rejoined
are removed, unless they are static. The tables in :mod:`.group_state` have the responses to valid
members of the current generation in each state; requests of other members and generations are
rejected before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncrevoke.client.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribeGroupsResponse,
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from asyncrevoke.testing.fake_kafka.group_state import (
    ON_COMMIT,
    ON_HEARTBEAT,
    ON_SYNC,
    CommittedGroupOffsets,
    GroupMember,
    GroupMembers,
    GroupState,
    Reply,
)

if TYPE_CHECKING:
    from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition
    from asyncrevoke.testing.fake_kafka.clock import Alarm, Clock

_NEW_MEMBER_JOIN_TIMEOUT = 300.0


@dataclass
class ClassicGroup:
    """One group: its membership and its offsets."""

    clock: Clock

    def __post_init__(self) -> None:
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.generation = 0
        self.protocol: str | None = None
        self.pending_sync: dict[str, None] = {}
        self._group = GroupMembers()
        self._offsets = CommittedGroupOffsets()
        self._join_timer: Alarm | None = None
        self._sync_timer: Alarm | None = None
        self._member_ids = 0

    @property
    def members(self) -> dict[str, GroupMember]:
        """The members by their ids."""
        return self._group.by_id

    @property
    def leader(self) -> str | None:
        """The member id of the leader."""
        return self._group.leader

    @property
    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets."""
        return self._offsets.stored

    # --- JoinGroup -------------------------------------------------------------------------------

    def join_group(self, client: int, request: JoinGroupRequest, reply: Reply) -> None:
        """Respond to a JoinGroup, usually at the end of the join phase."""
        member_id = request.member_id
        if not member_id:
            self._join_as_new(client, request, reply)
        elif not self._group.supports(request.protocols):
            reply(rejected(ErrorCode.inconsistent_group_protocol, member_id))
        elif member_id in self._group.pending:
            self._group.pending.pop(member_id).cancel()
            self._add(client, member_id, request, reply)
        elif (
            error := self._group.check(member_id, request.group_instance_id)
        ) is not ErrorCode.none:
            reply(rejected(error, member_id))
        else:
            self._rejoin(self.members[member_id], request, reply)

    def _join_as_new(self, client: int, request: JoinGroupRequest, reply: Reply) -> None:
        if not self._group.supports(request.protocols):
            reply(rejected(ErrorCode.inconsistent_group_protocol, ""))
            return
        member_id = self.new_member_id(client, request.group_instance_id)
        if request.group_instance_id is None:
            self._group.pending[member_id] = self.clock.after(
                request.session_timeout, lambda: self._pending_expired(member_id)
            )
            reply(rejected(ErrorCode.member_id_required, member_id))
        elif (old_id := self._group.static.get(request.group_instance_id)) is not None:
            self._replace_static(client, old_id, member_id, request, reply)
        else:
            self._add(client, member_id, request, reply)

    def new_member_id(self, client: int, instance_id: str | None) -> str:
        """An id that no member had before."""
        self._member_ids += 1
        return f"{instance_id or f'client{client}'}-{self._member_ids}"

    def _rejoin(self, member: GroupMember, request: JoinGroupRequest, reply: Reply) -> None:
        unchanged = member.protocols == request.protocols
        if unchanged and (
            self.state is GroupState.COMPLETING
            or (self.state is GroupState.STABLE and member.member_id != self.leader)
        ):
            # The first response may be lost.
            reply(self._joined(member))
        elif self.state is GroupState.EMPTY:
            reply(rejected(ErrorCode.unknown_member_id, member.member_id))
        else:
            self._update(member, request, reply)
            self._rebalance()

    def _add(self, client: int, member_id: str, request: JoinGroupRequest, reply: Reply) -> None:
        member = GroupMember(
            member_id,
            client,
            request.group_instance_id,
            request.session_timeout,
            request.rebalance_timeout,
            request.protocols,
            join=reply,
        )
        self._group.add(member)
        self._arm_session(member, _NEW_MEMBER_JOIN_TIMEOUT)
        self._rebalance()

    def _update(self, member: GroupMember, request: JoinGroupRequest, reply: Reply) -> None:
        # An earlier JoinGroup of the member gets no response, because its connection is closed.
        member.join = reply
        self._group.offer(member, request.protocols)
        member.session_timeout = request.session_timeout
        member.rebalance_timeout = request.rebalance_timeout

    def _replace_static(
        self, client: int, old_id: str, new_id: str, request: JoinGroupRequest, reply: Reply
    ) -> None:
        was_leader = self.leader == old_id
        member = self._take_over(client, old_id, new_id, request, reply)
        if self.state is GroupState.STABLE and self._group.select_protocol() == self.protocol:
            self._continue(member, reply, was_leader)
        else:
            self._rebalance()

    def _take_over(
        self, client: int, old_id: str, new_id: str, request: JoinGroupRequest, reply: Reply
    ) -> GroupMember:
        """A static member has returned, with a new member id."""
        member = self.members[old_id]
        if member.session is not None:
            member.session.cancel()
        if member.join is not None:
            member.join(rejected(ErrorCode.fenced_instance_id, old_id))
        if member.sync is not None:
            member.sync(SyncGroupResponse(error=ErrorCode.fenced_instance_id))
        member.client = client
        member.join, member.sync = None, None
        self._group.rename(member, new_id)
        self._update(member, request, reply)
        self._arm_session(member, member.session_timeout)
        return member

    def _continue(self, member: GroupMember, reply: Reply, was_leader: bool) -> None:
        """A static member that has returned continues in the running generation."""
        member.join = None
        # KIP-814: the returning leader gets the members, and skips the assignment.
        reply(self._joined(member, skip_assignment=was_leader))

    # --- rebalance -------------------------------------------------------------------------------

    def _rebalance(self) -> None:
        if self.state is GroupState.PREPARING:
            self._maybe_complete_join()
        else:
            self._prepare()

    def _prepare(self) -> None:
        if self.state is GroupState.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                self._respond_to_sync(
                    member, SyncGroupResponse(error=ErrorCode.rebalance_in_progress)
                )
        self.pending_sync.clear()
        self._cancel_timers()
        initial = self.state is GroupState.EMPTY
        self._enter(GroupState.PREPARING)
        if initial:
            self._delay_initial_rebalance()
        elif self._group.all_joined():
            self._complete_join()
        else:
            self._join_timer = self.clock.after(
                self._group.rebalance_timeout(), self._complete_join
            )

    def _delay_initial_rebalance(self) -> None:
        """Wait for members that join at the same time: group.initial.rebalance.delay.ms is 0."""
        self._join_timer = self.clock.after(0.0, self._complete_join)

    def _maybe_complete_join(self) -> None:
        if (
            self.state is GroupState.PREPARING
            and self.previous_state is not GroupState.EMPTY
            and self._group.all_joined()
        ):
            self._complete_join()

    def _complete_join(self) -> None:
        if self._join_timer is not None:
            self._join_timer.cancel()
        self._remove_late_members()
        if self.members and not self._group.elect():
            self._join_timer = self.clock.after(
                self._group.rebalance_timeout(), self._complete_join
            )
            return
        self.generation += 1
        self.pending_sync.clear()
        if not self.members:
            self.protocol = None
            self._enter(GroupState.EMPTY)
            return
        self.protocol = self._group.select_protocol()
        self._enter(GroupState.COMPLETING)
        for member in self.members.values():
            self.pending_sync[member.member_id] = None
        # A member may react before the others get their responses, but not before the state is
        # final.
        for member in self.members.values():
            respond, member.join = member.join, None
            if respond is not None:
                respond(self._joined(member))
            member.is_new = False
            self._arm_session(member, member.session_timeout)
        self._sync_timer = self.clock.after(self._group.rebalance_timeout(), self._sync_expired)

    def _remove_late_members(self) -> None:
        """Remove the dynamic members that have not rejoined in time."""
        late = [m for m in self.members.values() if m.join is None and m.instance_id is None]
        for member in late:
            self._remove(member)

    def _joined(self, member: GroupMember, *, skip_assignment: bool = False) -> JoinGroupResponse:
        members: tuple[JoinGroupMember, ...] = ()
        if member.member_id == self.leader:
            members = tuple(
                JoinGroupMember(
                    member_id=other.member_id,
                    group_instance_id=other.instance_id,
                    metadata=dict(other.protocols)[self.protocol or ""],
                )
                for other in self.members.values()
            )
        return JoinGroupResponse(
            error=ErrorCode.none,
            generation=self.generation,
            protocol_name=self.protocol,
            leader=self.leader or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=members,
        )

    # --- SyncGroup -------------------------------------------------------------------------------

    def sync_group(self, request: SyncGroupRequest, reply: Reply) -> None:
        """Respond to a SyncGroup, at once or when the leader has sent the assignment."""
        error: ErrorCode | None = self._check_running(
            request.member_id, request.group_instance_id, request.generation
        )
        if error is ErrorCode.none and request.protocol_name != self.protocol:
            error = ErrorCode.inconsistent_group_protocol
        if error is ErrorCode.none:
            error = ON_SYNC[self.state]
        if error is not None and error is not ErrorCode.none:
            reply(SyncGroupResponse(error=error))
            return
        self._synced(request.member_id)
        member = self.members[request.member_id]
        if error is ErrorCode.none:
            reply(SyncGroupResponse(error=error, assignment=member.assignment))
            return
        member.sync = reply
        if member.member_id == self.leader:
            self._append(dict(request.assignments))

    def _append(self, assignments: dict[str, bytes]) -> None:
        """Write the leader's assignments to the log, and then send them to the members."""
        generation = self.generation
        self.clock.after(0.0, lambda: self._appended(generation, assignments))

    def _appended(self, generation: int, assignments: dict[str, bytes]) -> None:
        if generation != self.generation or self.state is not GroupState.COMPLETING:
            return
        self._become_stable(assignments)
        for member in self.members.values():
            self._respond_to_sync(
                member, SyncGroupResponse(error=ErrorCode.none, assignment=member.assignment)
            )

    def _become_stable(self, assignments: dict[str, bytes]) -> None:
        self._enter(GroupState.STABLE)
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")

    def _respond_to_sync(self, member: GroupMember, response: SyncGroupResponse) -> None:
        respond, member.sync = member.sync, None
        if respond is not None:
            respond(response)
            self._arm_session(member, member.session_timeout)

    def _synced(self, member_id: str) -> None:
        self.pending_sync.pop(member_id, None)
        if not self.pending_sync and self._sync_timer is not None:
            self._sync_timer.cancel()

    def _sync_expired(self) -> None:
        if not self.pending_sync or self.state not in (GroupState.COMPLETING, GroupState.STABLE):
            return
        self._remove_unsynced_members()
        self._prepare()

    def _remove_unsynced_members(self) -> None:
        """Remove the members that have sent no SyncGroup in time."""
        for member_id in tuple(self.pending_sync):
            member = self.members.get(member_id)
            if member is not None:
                self._remove(member)

    # --- Heartbeat, LeaveGroup, sessions ---------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Respond to a Heartbeat. A valid one renews the session in each state."""
        error = self._check_running(
            request.member_id, request.group_instance_id, request.generation
        )
        if error is ErrorCode.none:
            error = ON_HEARTBEAT[self.state]
            member = self.members[request.member_id]
            self._arm_session(member, member.session_timeout)
        return HeartbeatResponse(error=error)

    def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Remove a member, also one that has an id and has not joined."""
        member_id = request.member_id
        if not member_id and request.group_instance_id is not None:
            member_id = self._group.static.get(request.group_instance_id, "")
        if member_id in self._group.pending:
            self._group.pending.pop(member_id).cancel()
        else:
            error = self._group.check(member_id, request.group_instance_id)
            if error is not ErrorCode.none:
                return LeaveGroupResponse(error=error)
            self._remove(self.members[member_id])
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare()
        else:
            self._maybe_complete_join()
        return LeaveGroupResponse(error=ErrorCode.none)

    def describe(self) -> DescribeGroupsResponse:
        """The state, and in a stable group the assignor."""
        assignor = self.protocol if self.state is GroupState.STABLE else None
        return DescribeGroupsResponse(
            error=ErrorCode.none,
            state=self.state.value,
            protocol_type="consumer" if self.members else "",
            assignor=assignor or "",
        )

    def _check_running(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        error = self._group.check(member_id, instance_id)
        if error is ErrorCode.none and generation != self.generation:
            return ErrorCode.illegal_generation
        return error

    def _arm_session(self, member: GroupMember, timeout: float) -> None:
        if member.session is not None:
            member.session.cancel()
        member.session = self.clock.after(timeout, lambda: self._session_expired(member))

    def _session_expired(self, member: GroupMember) -> None:
        waits = member.join is not None or member.sync is not None
        if self.members.get(member.member_id) is not member or (waits and not member.is_new):
            return
        respond, member.join = member.join, None
        if respond is not None:
            respond(rejected(ErrorCode.unknown_member_id, ""))
        self._remove_silent_member(member)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare()
        elif self.state is GroupState.PREPARING and self._group.all_joined():
            self._complete_join()

    def _remove_silent_member(self, member: GroupMember) -> None:
        """Remove a member whose session has expired."""
        self._remove(member)

    def _pending_expired(self, member_id: str) -> None:
        del self._group.pending[member_id]
        if self.state is GroupState.PREPARING and self._group.all_joined():
            self._complete_join()

    def _remove(self, member: GroupMember) -> None:
        if member.session is not None:
            member.session.cancel()
        if member.join is not None:
            member.join(rejected(ErrorCode.unknown_member_id, ""))
        self._group.remove(member)
        self.pending_sync.pop(member.member_id, None)

    def _enter(self, state: GroupState) -> None:
        self.previous_state, self.state = self.state, state

    def _cancel_timers(self) -> None:
        for timer in (self._join_timer, self._sync_timer):
            if timer is not None:
                timer.cancel()

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

    def check_txn_commit(self, request: OffsetCommitRequest) -> ErrorCode:
        """Like the check of OffsetCommit, but TxnOffsetCommit is allowed in each state."""
        error = self._check_commit(request)
        return ErrorCode.none if error is ErrorCode.rebalance_in_progress else error

    def offset_fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Read offsets; -1 for partitions without one."""
        return self._offsets.fetch(request)


def rejected(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """The response to a rejected JoinGroup."""
    return JoinGroupResponse(error=error, member_id=member_id)
