"""A classic group whose coordinator is loaded from its log, and reports its events.

After a restart or a move, a coordinator knows only what the log has: the last generation that
became STABLE or EMPTY, with the metadata of the chosen protocol only, and the offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.brokers.coordinator_events import NO_SYNC, CoordinatorEvents

from asyncrevoke.client.protocol.messages import ErrorCode, JoinGroupRequest, SyncGroupResponse
from asyncrevoke.testing.fake_kafka.classic_group import ClassicGroup, rejected
from asyncrevoke.testing.fake_kafka.group_state import (
    CommittedGroupOffsets,
    GroupMember,
    GroupMembers,
    GroupState,
    Reply,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.model import GroupMetadata


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member in the log, with the metadata of the chosen protocol only."""

    member_id: str
    client: int
    instance_id: str | None
    session_timeout: float
    rebalance_timeout: float
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The last generation that was written to the log."""

    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    members: tuple[StoredMember, ...] = ()


@dataclass
class SimulatedClassicGroup(ClassicGroup):
    """``initial_delay`` is the broker's group.initial.rebalance.delay, ``append_delay`` how long a
    write to the log takes."""

    events: CoordinatorEvents = field(default_factory=CoordinatorEvents)
    initial_delay: float = 0.0
    append_delay: float = 0.002

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rebalances = 0
        self.stored = StoredGroup()
        self._new_member_added = False
        self._epoch = 0  # grows with each load, and invalidates earlier writes

    def accepts(self, client: int, identity: GroupMetadata) -> bool:
        """Whether the coordinator would store a commit of this client with this identity."""
        member = self.members.get(identity.member_id)
        return (
            self.state in (GroupState.STABLE, GroupState.PREPARING)
            and member is not None
            and member.client == client
            and identity.generation == self.generation
        )

    # --- the initial delay -----------------------------------------------------------------------

    def _add(self, client: int, member_id: str, request: JoinGroupRequest, reply: Reply) -> None:
        if self.state is GroupState.PREPARING and self.previous_state is GroupState.EMPTY:
            self._new_member_added = True
        super()._add(client, member_id, request, reply)

    def _delay_initial_rebalance(self) -> None:
        delay = self.initial_delay
        left = max(self._group.rebalance_timeout() - delay, 0.0)
        self._join_timer = self.clock.after(delay, lambda: self._initial_delay_over(left))

    def _initial_delay_over(self, left: float) -> None:
        if self._new_member_added and left > 0:
            self._new_member_added = False
            delay = min(self.initial_delay, left)
            rest = max(left - self.initial_delay, 0.0)
            self._join_timer = self.clock.after(delay, lambda: self._initial_delay_over(rest))
        else:
            self._complete_join()

    # --- events ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self.rebalances += 1
        super()._prepare()

    def _take_over(
        self, client: int, old_id: str, new_id: str, request: JoinGroupRequest, reply: Reply
    ) -> GroupMember:
        old = self.members[old_id].client
        member = super()._take_over(client, old_id, new_id, request, reply)
        self.events.member_replaced(old, client)
        return member

    def _become_stable(self, assignments: dict[str, bytes]) -> None:
        super()._become_stable(assignments)
        self._report_stable()

    def _report_stable(self) -> None:
        self.events.stable(self.generation, {m.client: m.assignment for m in self.members.values()})

    def _remove_late_members(self) -> None:
        late = [m for m in self.members.values() if m.join is None]
        super()._remove_late_members()
        for member in late:
            if member.instance_id is None:
                self._report_removed(member, "it did not rejoin in time")
        for member in late:
            if member.instance_id is not None:
                self._report_removed(member, "the group continued without it")

    def _remove_unsynced_members(self) -> None:
        known = [self.members.get(member_id) for member_id in self.pending_sync]
        super()._remove_unsynced_members()
        for member in known:
            if member is not None:
                self._report_removed(member, NO_SYNC)

    def _remove_silent_member(self, member: GroupMember) -> None:
        super()._remove_silent_member(member)
        self._report_removed(member, "its session expired")

    def _report_removed(self, member: GroupMember, reason: str) -> None:
        self.events.member_removed(member.client, member.member_id, reason)

    # --- the log ---------------------------------------------------------------------------------

    def _enter(self, state: GroupState) -> None:
        super()._enter(state)
        if state is GroupState.EMPTY:
            self.stored = StoredGroup(self.generation)

    def _continue(self, member: GroupMember, reply: Reply, was_leader: bool) -> None:
        self._store_assignments()
        super()._continue(member, reply, was_leader)

    def _append(self, assignments: dict[str, bytes]) -> None:
        # A write to the log completes even if the group changes meanwhile.
        self.stored = self._snapshot(assignments)
        generation, epoch = self.generation, self._epoch

        def appended() -> None:
            if epoch == self._epoch:
                self._appended(generation, assignments)

        self.clock.after(self.append_delay, appended)

    def _store_assignments(self) -> None:
        self.stored = self._snapshot({m.member_id: m.assignment for m in self.members.values()})

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
        self._report_stable()

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
        self._store_assignments()
        if rebalance:
            self._prepare()
