"""Membership of a classic consumer group, EAGER and COOPERATIVE (KIP-429), in two steps (KIP-983).

Theory of operation. A member joins, syncs and is stable. When the group rebalances, an EAGER
member first releases everything and then joins with nothing; a COOPERATIVE one joins at once and
lists what it still holds. What the new assignment takes from it must then go: it drains while the
group is stable, and a follow-up join, owed from that moment, tells the group when it is released.
If another rebalance starts meanwhile we join at once and still list what is delayed. So we do by
ourselves, now and then, if some of it is released and some is not (see ``staged_release.py``).

Whatever the coordinator says about our membership is believed only if it is about the membership
that we have now (see ``is_current_membership``): commits and heartbeats are sent beside JoinGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.assignors.assignor import Assignor, RebalanceProtocol
from asyncrevoke.core.assignors.registry import choose_protocol
from asyncrevoke.core.io.effects import Failed
from asyncrevoke.core.io.fatal_error import fatal_error
from asyncrevoke.core.io.wait_log import WaitLog
from asyncrevoke.core.membership.classic.assignment_user_data import decode_assignment_user_data
from asyncrevoke.core.membership.classic.fatal_errors import (
    RETRIED_ERRORS,
    group_error,
)
from asyncrevoke.core.membership.classic.heartbeat import ClassicHeartbeat
from asyncrevoke.core.membership.classic.join_and_sync import JoinAndSync
from asyncrevoke.core.membership.classic.leader import GroupLeader, leading_again
from asyncrevoke.core.membership.classic.leave_group import LeaveGroup
from asyncrevoke.core.membership.classic.owned_and_assigned import OwnedAndAssigned
from asyncrevoke.core.membership.classic.staged_rejoin import StagedRejoin
from asyncrevoke.core.membership.classic.state_table import (
    CLASSIC_TRANSITIONS,
    ClassicState,
    ClassicTransition,
)
from asyncrevoke.core.membership.classic.subscription_user_data import user_data
from asyncrevoke.errors import FatalError
from asyncrevoke.model import GroupMetadata
from asyncrevoke.protocol.messages import (
    ErrorCode,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from asyncrevoke.protocol.subscription import (
    MalformedMemberData,
    Subscription,
    decode_assignment,
    encode_subscription,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.outbox import Outbox
    from asyncrevoke.core.membership.reactions import MembershipReactions
    from asyncrevoke.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.core.metadata.coordinator import Coordinator
    from asyncrevoke.core.partition.assignment import Assignment
    from asyncrevoke.core.partition.instance import PartitionInstance
    from asyncrevoke.core.partition.revocation import Revocation
    from asyncrevoke.model import TopicPartition

_LONG_SYNC = 5.0
_GROUP = "group"

_MOVED = frozenset((ErrorCode.not_coordinator, ErrorCode.coordinator_not_available))
_REFUSED = frozenset(
    (
        ErrorCode.fenced_instance_id,
        ErrorCode.inconsistent_group_protocol,
        ErrorCode.group_authorization_failed,
    )
)


class ClassicMembership:
    """One member of a classic group."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        cluster: ClusterMetadata,
        coordinator: Coordinator,
        assignment: Assignment,
        revocation: Revocation,
        assignors: Sequence[Assignor],
        reactions: MembershipReactions,
    ) -> None:
        self._outbox = outbox
        self._log = WaitLog(outbox)
        self._config = config
        self._cluster = cluster
        self._coordinator = coordinator
        self._assignment = assignment
        self._revocation = revocation
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self.eager = choose_protocol(assignors) is RebalanceProtocol.EAGER
        self._group_id = config.group_id or ""
        self._heartbeat = ClassicHeartbeat(outbox, config, coordinator, self)
        self._join_and_sync = JoinAndSync(outbox, config, coordinator, self)
        self._leave_group = LeaveGroup(outbox, config, coordinator, self._join_and_sync, self)
        # A static member keeps its place for its next start (KIP-345).
        self._sends_leave = config.group_instance_id is None
        self._reactions = reactions
        self._state = ClassicState.UNJOINED
        self._topics: frozenset[str] = frozenset()
        self._member_id = ""
        self._generation = -1
        self._protocol_name = ""
        self._leader = GroupLeader(outbox, cluster, self, reactions)
        self._partitions = OwnedAndAssigned(assignment)
        self._staged = StagedRejoin(outbox, self._staged_rejoin_due)
        # Whether the leader of the last assignment knows what a member without topics is.
        self._led_by_ours = False
        self._synced_at = float("-inf")
        self._synced_generation = -1
        # The term of the coordinator that gave us our id, until there was an assignment for it.
        self._member_id_unwritten_since: int | None = None
        self._rejoin_owed: str | None = None
        self._leaving = False
        self._idle = False

    # --- facts -----------------------------------------------------------------------------------

    @property
    def state(self) -> ClassicState:
        """Where this member is."""
        return self._state

    @property
    def member_identity(self) -> GroupMetadata:
        """Our identity as the coordinator knows it."""
        return GroupMetadata(
            self._group_id, self._generation, self._member_id, self._config.group_instance_id
        )

    @property
    def confirmed_at(self) -> float | None:
        """Send time of the last heartbeat or sync that the coordinator confirmed."""
        return self._heartbeat.confirmed_at

    @property
    def session(self) -> float:
        """Seconds without a heartbeat after which we are no member any more."""
        return self._config.session_timeout

    @property
    def member_at(self) -> float | None:
        """Like it, of any answer to a member: it is one while its group rebalances, too."""
        return self._heartbeat.member_at

    @property
    def may_commit(self) -> bool:
        """While the coordinator holds a JoinGroup back, it accepts the old generation; between
        join and sync it accepts none."""
        return self._generation >= 0 and self._state in (
            ClassicState.STABLE,
            ClassicState.REVOKING,
            ClassicState.AWAIT_JOIN,
        )

    def is_current_membership(self, sent: GroupMetadata, sent_at: float) -> bool:
        """Whether a refusal of ``sent`` is about our membership as it is now: the same identity,
        and no join or sync outstanding that may just have changed it at the broker. A coordinator
        that has moved may count to the same generation again, so that what was sent before the
        last sync does not tell."""
        return (
            sent == self.member_identity
            and self._state in (ClassicState.STABLE, ClassicState.REVOKING)
            and sent_at > self._synced_at
        )

    # --- what the user and the cluster change ----------------------------------------------------

    def subscribe(self, now: float, topics: frozenset[str]) -> None:
        """The topics that we want (for a pattern: those that match now) have changed."""
        if topics == self._topics:
            return
        self._topics = topics
        self._drop_topics(now)
        self.rejoin(now, "subscription changed")

    def _drop_topics(self, now: float) -> None:
        dropped = [i for i in self._assignment.live() if i.partition.topic not in self._topics]
        if dropped:
            self._partitions.drop(instance.partition for instance in dropped)
            self._revocation.request(now, dropped, self._own_deadline(now))

    def rejoin(self, now: float, reason: str) -> None:
        """Join (again) for a reason of our own, after what has to be released first."""
        match self._state:
            case ClassicState.UNJOINED:
                if self._topics and not self._leaving and not self._idle:
                    self._start_join(now, reason)
            case ClassicState.STABLE:
                self._rejoin_owed = reason
                if self.eager:
                    self._revoke_all(now, self._own_deadline(now))
                self._transition(ClassicState.STABLE, ClassicTransition.REVOKE)
                self._revocation.request_barrier()
                self._plan_staged_rejoin(now)
            case (
                ClassicState.AWAIT_ID
                | ClassicState.AWAIT_JOIN
                | ClassicState.AWAIT_SYNC
                | ClassicState.REVOKING
            ):
                self._rejoin_owed = reason
            case ClassicState.LEAVING | ClassicState.FATAL:
                pass

    def metadata_changed(self, now: float) -> None:
        """Topics or partitions have changed: a leader has to assign anew."""
        if self._leader.has_changed():
            self.rejoin(now, "the partitions of the group's topics have changed")

    def metadata_refreshed(self, now: float) -> None:
        """The cluster's answer is there that the leader may have waited for; or replicas have moved
        to other racks."""
        if self._state is ClassicState.AWAIT_SYNC:
            self._leader.metadata_refreshed(now)
        elif self._state is ClassicState.STABLE:
            self.metadata_changed(now)

    def leave(self, now: float, *, wait_for_tasks: bool) -> None:
        """Give everything up, then leave; ``group_left`` follows. Called again, it
        may stop waiting for tasks."""
        self._leaving = True
        self._partitions.clear_assigned()
        self._revocation.leave(now, wait_for_tasks=wait_for_tasks)
        if self._state is ClassicState.STABLE:
            self._transition(ClassicState.STABLE, ClassicTransition.REVOKE)
        self._plan_staged_rejoin(now)

    def leave_now(self, now: float) -> None:
        """Leave, whatever the group still owes us; ``group_left`` follows."""
        if self._state is not ClassicState.LEAVING:
            self._send_leave(now)

    def set_sends_leave(self, leave: bool) -> None:
        """Whether closing tells the group that the member goes; by default dynamic members do."""
        self._sends_leave = leave

    def stop_leaving(self, now: float) -> None:
        """No coordinator confirms that we leave; leaving ends at once."""
        if self._state is ClassicState.LEAVING:
            self._leave_group.stop_waiting(now)

    def leave_idle(self, now: float) -> None:
        """The loop has not asked for a batch for too long: hand everything over until it does."""
        if self._leaving or self._state in (ClassicState.LEAVING, ClassicState.FATAL):
            return
        self._idle = True
        self._revocation.lose(now, self._assignment.live(), "max_poll_interval exceeded")
        self._partitions.clear_assigned()
        self._send_leave(now)

    def poll_resumed(self, now: float) -> None:
        """The loop asks for a batch again."""
        if self._idle:
            self._idle = False
            self.rejoin(now, "the loop asks for records again")

    def released(self, now: float, instance: PartitionInstance) -> None:
        """An instance has ended. If the group has given its partition back meanwhile, it is a
        new assignment to us."""
        if instance.partition in self._partitions.assigned and not self._leaving:
            self._reactions.partitions_added(now, self._assignment.add([instance.partition]))
        self._plan_staged_rejoin(now)

    def barrier(self, now: float) -> None:
        """Nothing is between being requested and being released or lost."""
        if self._leaving:
            unasked = self._state is ClassicState.AWAIT_ID and not self._join_and_sync.outstanding
            if unasked or self._state in (
                ClassicState.STABLE,
                ClassicState.REVOKING,
                ClassicState.AWAIT_JOIN,
                ClassicState.UNJOINED,
                ClassicState.FATAL,
            ):
                self._send_leave(now)
        elif self._state is ClassicState.REVOKING:
            if self._topics:
                self._start_join(now, self._rejoin_owed or "partitions were released")
            else:
                # An empty subscription must not be sent: some leaders assign anything to it.
                self._send_leave(now)

    # --- handing over ----------------------------------------------------------------------------

    def _plan_staged_rejoin(self, now: float) -> None:
        """Plan a staged join if something was released that the group believes to be ours."""
        if self._may_join_draining and self._partitions.released:
            self._staged.released(now)

    def _staged_rejoin_due(self, now: float) -> None:
        if (
            self._may_join_draining
            and self._partitions.released
            and not self._revocation.at_barrier
        ):
            self._start_join(now, "some partitions were released")

    @property
    def _may_join_draining(self) -> bool:
        """Whether a join may tell the group what still drains.

        A member that stops joins without topics, which only a leader of ours takes for what it
        is; a static one keeps what it has for its next life.
        """
        if self._state is not ClassicState.REVOKING or self.eager:
            return False
        if self._leaving:
            return self._led_by_ours and self._config.group_instance_id is None
        return bool(self._topics)

    # --- joining ---------------------------------------------------------------------------------

    def _transition(self, expected: ClassicState, transition: ClassicTransition) -> None:
        """Take a move of the table. ``expected`` is where the caller believes we are."""
        if self._state is not expected:
            raise AssertionError(
                f"{transition.name} from {expected}, but the phase is {self._state}"
            )
        self._state = CLASSIC_TRANSITIONS[expected, transition]

    def _start_join(self, now: float, reason: str) -> None:
        owned = () if self.eager else tuple(sorted(self._assignment.partitions()))
        topics = () if self._leaving else tuple(sorted(self._topics))
        self._partitions.report(owned, self._topics)
        self._staged.joining(now)
        self._rejoin_owed = None
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout=self._config.session_timeout,
            rebalance_timeout=self._config.rebalance_timeout,
            member_id=self._member_id,
            group_instance_id=self._config.group_instance_id,
            protocols=tuple(
                (name, self._subscription(assignor, topics, owned))
                for name, assignor in self._assignors.items()
            ),
            reason=reason,
        )
        self._transition(
            self._state, ClassicTransition.JOIN if self._member_id else ClassicTransition.ASK_ID
        )
        self._outbox.emit("info", "joining", group=self._group_id, reason=reason)
        self._log.watch(
            now,
            _GROUP,
            "waiting for the group: its other members have to rejoin, or one that has vanished "
            "to time out",
            lambda: {"group": self._group_id, "phase": self._state.value},
        )
        self._join_and_sync.join(now, request, known=self._generation >= 0)

    def _subscription(
        self, assignor: Assignor, topics: tuple[str, ...], owned: tuple[TopicPartition, ...]
    ) -> bytes:
        return encode_subscription(
            Subscription(
                topics=topics,
                owned=owned,
                generation=self._generation,
                rack=self._config.client_rack,
                user_data=user_data(assignor, self._generation, owned, self._config),
            )
        )

    def join_unanswered(self, now: float) -> bool:
        """See :class:`.reactions.JoinReactions`, as for the other answers."""
        if self._leaving and self._state is ClassicState.AWAIT_ID:
            self.leave_ended(now)
            return False
        return True

    def join_answered(self, now: float, reply: JoinGroupResponse) -> None:
        """The coordinator has answered JoinGroup."""
        match reply.error:
            case ErrorCode.none:
                self._joined(now, reply)
            case ErrorCode.member_id_required:
                self._member_id = reply.member_id
                if self._leaving:
                    self._send_leave(now)
                else:
                    self._transition(ClassicState.AWAIT_ID, ClassicTransition.JOIN)
                    self._join_and_sync.join_with_id(now, reply.member_id)
            case ErrorCode.unknown_member_id:
                self._evicted(now, "the coordinator does not know this member", keep_id=False)
            case ErrorCode.fenced_instance_id if self._is_member_id_unwritten:
                self._evicted(now, "the coordinator knows a former self of ours", keep_id=False)
            case error if error in _MOVED:
                self._join_and_sync.join_elsewhere(now, error.name)
            case error if error.retriable or error in RETRIED_ERRORS:
                if error is ErrorCode.coordinator_load_in_progress:
                    self._coordinator.note_loading()
                self._join_and_sync.join_later(now, error.name)
            case error:
                self.fail(now, self._fatal_error(error))

    def _joined(self, now: float, reply: JoinGroupResponse) -> None:
        dynamic = self._config.group_instance_id is None
        if dynamic and not reply.leader and reply.generation != self._generation:
            self._joined_a_coordinator(now)
        if reply.member_id != self._member_id:
            self._member_id_unwritten_since = self._coordinator.term
        self._member_id = reply.member_id
        self._generation = reply.generation
        self._transition(self._state, ClassicTransition.JOINED)
        self._heartbeat.start(now)
        assignor = self._assignors.get(reply.protocol_name or "")
        if assignor is None:
            self.fail(now, self._fatal_error(ErrorCode.inconsistent_group_protocol))
            return
        self._protocol_name = assignor.name
        us = JoinGroupMember(
            member_id=reply.member_id,
            group_instance_id=self._config.group_instance_id,
            metadata=dict(self._join_and_sync.offered).get(assignor.name, b""),
        )
        if reply.leader == reply.member_id:
            self._leader.lead(now, assignor, reply)
        elif (again := leading_again(reply, us)) is not None:
            self._leader.lead(now, assignor, again)
        else:
            if reply.leader:
                self._leader.resign()
            else:
                self._leader.look_after(self._topics)
            self.assignment_made(now, ())

    @property
    def _is_member_id_unwritten(self) -> bool:
        """Whether a coordinator gave a static member its id, and another one may not know it."""
        return self._member_id_unwritten_since not in (None, self._coordinator.term)

    def _joined_a_coordinator(self, now: float) -> None:
        """A coordinator that assigns takes a member that it has removed for a new one of the same
        id, and does not say so: after a session without an answer others may have what we hold."""
        if self._heartbeat.may_be_evicted(now):
            self._partitions.clear_assigned()
            reason = "joined again after more than a session without an answer"
            self._revocation.lose(now, self._assignment.live(), reason)

    # --- syncing ---------------------------------------------------------------------------------

    def assignment_made(self, now: float, assignments: tuple[tuple[str, bytes], ...]) -> None:
        """Send SyncGroup with what this member has assigned as the leader, or with nothing."""
        self._join_and_sync.sync(
            now,
            SyncGroupRequest(
                group_id=self._group_id,
                generation=self._generation,
                member_id=self._member_id,
                group_instance_id=self._config.group_instance_id,
                protocol_name=self._protocol_name,
                assignments=assignments,
            ),
        )

    def sync_answered(self, now: float, sent_at: float, reply: SyncGroupResponse | None) -> None:
        """The coordinator has answered SyncGroup, or has not."""
        if self._state is not ClassicState.AWAIT_SYNC:
            return
        if reply is None:
            self._unsynced(now, "SyncGroup had no answer")
            return
        match reply.error:
            case ErrorCode.none:
                self._heartbeat.confirm(sent_at)
                self._synced_at, self._synced_generation = now, self._generation
                self._member_id_unwritten_since = None
                self._synced(now, reply.assignment)
            case ErrorCode.unknown_member_id:
                self._evicted(now, "removed from the group before the sync", keep_id=False)
            case ErrorCode.illegal_generation:
                self._evicted(now, "the group moved on before the sync", keep_id=True)
            case error if error in _REFUSED:
                self.fail(now, self._fatal_error(error))
            case error:
                if error in _MOVED:
                    why = f"SyncGroup: {error.name}"
                    self._coordinator.mark_unknown(now, why, self._join_and_sync.asked)
                elif error is ErrorCode.coordinator_load_in_progress:
                    self._coordinator.note_loading()
                self._unsynced(now, error.name, error)

    def _unsynced(self, now: float, why: str, error: ErrorCode | None = None) -> None:
        """Back from the sync to a join."""
        if error is not ErrorCode.rebalance_in_progress:
            # Also when leaving: no other coordinator takes commits of this generation.
            self._transition(ClassicState.AWAIT_SYNC, ClassicTransition.JOIN)
            at_once = error is None or error in _MOVED
            self._join_and_sync.join_again(now, self._member_id, why, at_once=at_once)
        elif self._leaving:
            # Nothing of this generation is ours; what we hold drains and is committed.
            self._transition(ClassicState.AWAIT_SYNC, ClassicTransition.REVOKE)
            self._revocation.request_barrier()
            self._reactions.membership_ready(now)
        else:
            self._start_join(now, "the group rebalances")

    def _synced(self, now: float, data: bytes) -> None:
        try:
            assigned, note_data = decode_assignment(data)
        except MalformedMemberData as error:
            self.fail(now, FatalError(f"the leader's assignment cannot be read: {error}"))
            return
        self._transition(ClassicState.AWAIT_SYNC, ClassicTransition.SYNCED)
        self._log.forget(_GROUP)
        self._staged.synced(now)
        user_data = decode_assignment_user_data(note_data)
        self._led_by_ours = user_data is not None
        self._revocation.successors_read_maps(user_data is not None and user_data.maps_are_read)
        if self._leaving:
            # Added partitions are released unseen; what we held is on its way out already.
            self._partitions.ignore(assigned)
            self._transition(ClassicState.STABLE, ClassicTransition.REVOKE)
            self._revocation.request_barrier()
            self._plan_staged_rejoin(now)
            self._reactions.membership_ready(now)
            return
        if self._leader.has_missed(user_data):
            self._rejoin_owed = "the partitions of the group's topics have changed"
        change = self._partitions.apply(assigned, self._topics)
        if change.stray:
            topics = ", ".join(change.stray)
            self._rejoin_owed = f"assigned topics that we did not subscribe to: {topics}"
        for instance in change.withdrawn:
            self._revocation.withdraw(instance)
        added = self._partitions.add_assigned()
        self._outbox.emit(
            "info",
            "assigned",
            group=self._group_id,
            generation=self._generation,
            partitions=[str(tp) for tp in sorted(self._partitions.assigned)],
            added=len(added),
            to_go=len(change.must_go),
        )
        if change.must_go or self._rejoin_owed or (self.eager and change.going):
            # Owed even if all of it was released while JoinGroup was held back: until we join
            # again the group believes that we hold it, and nobody gets it.
            self._transition(ClassicState.STABLE, ClassicTransition.REVOKE)
            self._revocation.request_barrier()
        if self.eager and self._rejoin_owed:
            self._revoke_all(now, self._own_deadline(now))
        self._revocation.request(now, change.going, self._own_deadline(now))
        awaits_more = not self._partitions.assigned or (
            user_data is not None and user_data.withheld
        )
        self._heartbeat.set_often(awaits_more or self._state is ClassicState.REVOKING)
        self._heartbeat.rebalanced(now)
        self._plan_staged_rejoin(now)
        if added:
            self._reactions.partitions_added(
                now, [instance for instance in added if not instance.terminal]
            )
        self._reactions.membership_ready(now)

    # --- rebalances and errors -------------------------------------------------------------------

    def rebalance_seen(self, now: float) -> None:
        """The coordinator says that the group prepares a rebalance."""
        if self._state is ClassicState.STABLE and self.eager:
            self._revoke_all(now, self._group_deadline(now))
            self._transition(ClassicState.STABLE, ClassicTransition.REVOKE)
        elif self._state is ClassicState.REVOKING and self.eager:
            self._revocation.tighten(self._group_deadline(now))
        elif self._state is ClassicState.AWAIT_SYNC and self._leader.is_computing:
            self._leader.resign()
            self._unsynced(now, "the group rebalances", ErrorCode.rebalance_in_progress)
        elif self._state is ClassicState.AWAIT_SYNC:
            # The sync is over, and its answer on its way or lost.
            self._join_and_sync.expect_answer(now)
        elif self._state in (ClassicState.STABLE, ClassicState.REVOKING):
            if self._state is ClassicState.STABLE or self._may_join_draining:
                self._start_join(now, "the group rebalances")
            else:
                self._revocation.tighten(self._group_deadline(now))

    def rejected(self, now: float, error: ErrorCode) -> None:
        """A commit has shown that the coordinator does not accept this membership any more."""
        if error is ErrorCode.fenced_instance_id:
            self.fail(now, self._fatal_error(ErrorCode.fenced_instance_id))
        else:
            self._evicted(
                now,
                f"the coordinator answers {error.name}",
                keep_id=error is ErrorCode.illegal_generation,
            )

    def heartbeat_confirmed(self, now: float, sent: GroupMetadata) -> None:
        """See :class:`.reactions.HeartbeatReactions`, as for the others."""
        if self._state is ClassicState.AWAIT_SYNC and sent == self.member_identity:
            # The others may be at work long ago, with our assignment lost on its way. Who has made
            # the assignment waits for nobody.
            if self._leader.leads:
                self._join_and_sync.expect_answer(now)
            else:
                self._join_and_sync.expect_answer(now, _LONG_SYNC)

    def heartbeat_during_rebalance(self, now: float, sent: GroupMetadata) -> None:
        """Rejoin."""
        if sent == self.member_identity:
            self.rebalance_seen(now)

    def heartbeat_rejected(
        self, now: float, sent: GroupMetadata, sent_at: float, error: ErrorCode
    ) -> None:
        """The membership is lost, unless it has changed since the heartbeat was sent."""
        if self.is_current_membership(sent, sent_at):
            self.rejected(now, error)
        elif sent == self.member_identity and self._state in (
            ClassicState.AWAIT_JOIN,
            ClassicState.AWAIT_SYNC,
        ):
            self._rejected_while_joining(now, error)

    def _rejected_while_joining(self, now: float, error: ErrorCode) -> None:
        """A coordinator that has moved knows us by the generation that was assigned last: by it
        we stay a member, and may commit, while the others are waited for."""
        if (
            error is ErrorCode.illegal_generation
            and self._state is ClassicState.AWAIT_JOIN
            and 0 <= self._synced_generation < self._generation
        ):
            self._generation = self._synced_generation
            self._heartbeat.soon(now)
            self._reactions.membership_ready(now)
        else:
            self._join_and_sync.expect_answer(now)

    def request_failed(self, now: float, failed: Failed) -> None:
        """The consumer cannot go on."""
        self.fail(now, fatal_error(failed))

    def heartbeat_failed(self, now: float, why: ErrorCode | Failed) -> None:
        """The consumer cannot go on."""
        self.fail(now, fatal_error(why) if isinstance(why, Failed) else self._fatal_error(why))

    def _evicted(self, now: float, reason: str, *, keep_id: bool) -> None:
        self._outbox.emit("warning", "membership lost", group=self._group_id, reason=reason)
        self._forget_join()
        self._generation = self._synced_generation = -1
        if not keep_id:
            self._member_id = ""
            self._member_id_unwritten_since = None
        self._partitions.clear_assigned()
        self._state = CLASSIC_TRANSITIONS[self._state, ClassicTransition.EVICTED]
        self._revocation.lose(now, self._assignment.live(), reason)
        if self._leaving:
            self._revocation.request_barrier()
        elif self._topics and not self._idle:
            self._start_join(now, reason)

    def _revoke_all(self, now: float, deadline: float) -> None:
        self._partitions.clear_assigned()
        self._revocation.request(now, self._assignment.live(), deadline)

    def _own_deadline(self, now: float) -> float:
        return now + (self._config.revoke_timeout or self._config.rebalance_timeout)

    def _group_deadline(self, now: float) -> float:
        confirmed = self._heartbeat.confirmed_at
        latest = (now if confirmed is None else confirmed) + self._config.rebalance_timeout
        # Leaving has a limit of its own, close_timeout.
        return latest if self._leaving else min(latest, self._own_deadline(now))

    # --- leaving and failing ---------------------------------------------------------------------

    def _forget_join(self) -> None:
        self._join_and_sync.cancel()
        self._leave_group.cancel()
        self._stop()

    def _stop(self) -> None:
        self._log.forget(_GROUP)
        self._heartbeat.stop()
        self._staged.cancel()
        self._leader.resign()

    def _send_leave(self, now: float) -> None:
        known = self._member_id or (
            self._state is ClassicState.AWAIT_ID and self._join_and_sync.outstanding
        )
        if not known or not self._sends_leave or self._state is ClassicState.FATAL:
            self._forget_join()
            self.leave_ended(now)
            return
        self._stop()
        self._state = CLASSIC_TRANSITIONS[self._state, ClassicTransition.LEAVE]
        why = "the consumer is idle" if self._idle else "the consumer is closing"
        self._leave_group.leave(now, self._member_id, why)

    def leave_ended(self, now: float) -> None:
        """The group was left, or need not be told."""
        self._state = CLASSIC_TRANSITIONS[self._state, ClassicTransition.LEFT]
        self._member_id = ""
        self._generation = self._synced_generation = -1
        was_leaving, self._leaving = self._leaving, False
        self._revocation.membership_begins()
        if was_leaving:
            self._reactions.group_left(now)
        elif not self._idle and self._topics:
            self._start_join(now, "topics to read have appeared")

    def stop_sending(self) -> None:
        """Closing has taken too long: send nothing any more."""
        self._forget_join()

    def fail(self, now: float, error: FatalError) -> None:
        """The consumer cannot go on: everything is lost, and nothing is sent any more."""
        self._forget_join()
        self._state = CLASSIC_TRANSITIONS[self._state, ClassicTransition.FAIL]
        self._partitions.clear_assigned()
        self._revocation.lose(now, self._assignment.live(), str(error))
        if self._leaving:
            self._revocation.request_barrier()
        self._reactions.membership_failed(error)

    def _fatal_error(self, error: ErrorCode) -> FatalError:
        return group_error(error, self._config, self._assignors)
