"""The membership of a classic group, by the rules of Kafka's coordinator (4.x).

A group is EMPTY, PREPARING (collecting JoinGroups), COMPLETING (waiting for the leader's
assignment) or STABLE. Each change of its members begins a rebalance. The join phase ends when all
members have rejoined, or after their longest rebalance timeout; then members that have not rejoined
are removed, unless they are static. The tables in :mod:`.group_state` have the responses to valid
members of the current generation in each state; requests of other members and generations are
rejected before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
from asyncrevoke.testing.fake_kafka.group_state import (
    NO_SYNC,
    ON_HEARTBEAT,
    ON_SYNC,
    CommittedGroupOffsets,
    CoordinatorEvents,
    GroupMember,
    GroupMembers,
    GroupState,
    Reply,
    StoredGroup,
    StoredMember,
)

if TYPE_CHECKING:
    from asyncrevoke.model import OffsetAndMetadata, TopicPartition
    from asyncrevoke.testing.fake_kafka.clock import Alarm, Clock

_NEW_MEMBER_JOIN_TIMEOUT = 300.0


@dataclass
class ClassicGroup:
    """The membership of one group. ``initial_delay`` is the broker's
    group.initial.rebalance.delay."""

    clock: Clock
    events: CoordinatorEvents = field(default_factory=CoordinatorEvents)
    initial_delay: float = 0.0
    append_delay: float = 0.002

    def __post_init__(self) -> None:
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.generation = 0
        self.protocol: str | None = None
        self.pending_sync: dict[str, None] = {}
        self.stored = StoredGroup()
        self.rebalances = 0
        self._group = GroupMembers()
        self._offsets = CommittedGroupOffsets()
        self._join_timer: Alarm | None = None
        self._sync_timer: Alarm | None = None
        self._new_member_added = False
        self._member_ids = 0
        self._epoch = 0  # grows with each load, and invalidates earlier alarms

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
        if self.state is GroupState.PREPARING and self.previous_state is GroupState.EMPTY:
            self._new_member_added = True
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
        member = self.members[old_id]
        if member.session is not None:
            member.session.cancel()
        if member.join is not None:
            member.join(rejected(ErrorCode.fenced_instance_id, old_id))
        if member.sync is not None:
            member.sync(SyncGroupResponse(error=ErrorCode.fenced_instance_id))
        was_leader = self.leader == old_id
        old_client, member.client = member.client, client
        member.join, member.sync = None, None
        self._group.rename(member, new_id)
        self._update(member, request, reply)
        self._arm_session(member, member.session_timeout)
        self.events.member_replaced(old_client, client)
        if self.state is GroupState.STABLE and self._group.select_protocol() == self.protocol:
            member.join = None
            self.stored = self._snapshot({m.member_id: m.assignment for m in self.members.values()})
            # KIP-814: the returning leader gets the members, and skips the assignment.
            reply(self._joined(member, skip_assignment=was_leader))
        else:
            self._rebalance()

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
        self.rebalances += 1
        if initial:
            delay = self.initial_delay
            left = max(self._group.rebalance_timeout() - delay, 0.0)
            self._join_timer = self.clock.after(delay, lambda: self._initial_delay_over(left))
        elif self._group.all_joined():
            self._complete_join()
        else:
            self._join_timer = self.clock.after(
                self._group.rebalance_timeout(), self._complete_join
            )

    def _initial_delay_over(self, left: float) -> None:
        if self._new_member_added and left > 0:
            self._new_member_added = False
            delay = min(self.initial_delay, left)
            rest = max(left - self.initial_delay, 0.0)
            self._join_timer = self.clock.after(delay, lambda: self._initial_delay_over(rest))
        else:
            self._complete_join()

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
        late = [m for m in self.members.values() if m.join is None and m.instance_id is None]
        for member in late:
            self._remove(member)
            self.events.member_removed(member.client, member.member_id, "it did not rejoin in time")
        for member in self.members.values():
            if member.join is None:
                self.events.member_removed(
                    member.client, member.member_id, "the group continued without it"
                )
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
            self.stored = StoredGroup(self.generation)
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
            assignments = dict(request.assignments)
            generation, epoch = self.generation, self._epoch
            # A write to the log completes even if the group changes meanwhile.
            self.stored = self._snapshot(assignments)
            self.clock.after(
                self.append_delay, lambda: self._assigned(generation, epoch, assignments)
            )

    def _assigned(self, generation: int, epoch: int, assignments: dict[str, bytes]) -> None:
        if (
            epoch != self._epoch
            or generation != self.generation
            or self.state is not GroupState.COMPLETING
        ):
            return
        self._enter(GroupState.STABLE)
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.events.stable(self.generation, {m.client: m.assignment for m in self.members.values()})
        for member in self.members.values():
            self._respond_to_sync(
                member, SyncGroupResponse(error=ErrorCode.none, assignment=member.assignment)
            )

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
        for member_id in tuple(self.pending_sync):
            member = self.members.get(member_id)
            if member is not None:
                self._remove(member)
                self.events.member_removed(member.client, member.member_id, NO_SYNC)
        self._prepare()

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
        self._remove(member)
        self.events.member_removed(member.client, member.member_id, "its session expired")
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare()
        elif self.state is GroupState.PREPARING and self._group.all_joined():
            self._complete_join()

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

    def _snapshot(self, assignments: dict[str, bytes]) -> StoredGroup:
        return StoredGroup(
            self.generation,
            self.protocol,
            self.leader,
            tuple(
                StoredMember(
                    m.member_id,
                    m.client,
                    m.instance_id,
                    m.session_timeout,
                    m.rebalance_timeout,
                    dict(m.protocols)[self.protocol or ""],
                    assignments.get(m.member_id, b""),
                )
                for m in self.members.values()
            ),
        )

    def _enter(self, state: GroupState) -> None:
        self.previous_state, self.state = self.state, state

    def _cancel_timers(self) -> None:
        for timer in (self._join_timer, self._sync_timer):
            if timer is not None:
                timer.cancel()


def rejected(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """The response to a rejected JoinGroup."""
    return JoinGroupResponse(error=error, member_id=member_id)
