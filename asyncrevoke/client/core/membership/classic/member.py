"""Membership of a classic consumer group, EAGER and COOPERATIVE (KIP-429), in two steps (KIP-983).

A rebalance, and the states of ``state_table.py``::

    the group rebalances, says a heartbeat, or this member has a reason of its own
      EAGER: revoke all partitions, and wait until they are released            -> REVOKING
    JoinGroup: the subscription, and what is owned (EAGER: nothing)             -> AWAIT_JOIN
      without a member id, until the response has one (KIP-394)                 -> AWAIT_ID
    SyncGroup: with the assignments of all members if this one leads            -> AWAIT_SYNC
    the assignment: start what is added, revoke what is owned and not assigned  -> STABLE
      while the revoked partitions drain                                        -> REVOKING
        some are released: JoinGroup without them from time to time (staged)    -> AWAIT_JOIN
        the group rebalances: JoinGroup at once, which still lists what drains  -> AWAIT_JOIN
      barrier, all are released: JoinGroup without them                         -> AWAIT_JOIN
    UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION: lose all partitions, then JoinGroup  -> UNJOINED
    FENCED_INSTANCE_ID: lose all partitions, and end the consumer               -> FATAL

As commits and heartbeats are sent beside JoinGroup, an error counts only if it is about the present
membership (``is_current_membership``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.assignors.assignor import Assignor, RebalanceProtocol
from asyncrevoke.client.core.assignors.registry import choose_protocol
from asyncrevoke.client.core.io.wait_log import WaitLog
from asyncrevoke.client.core.membership.classic.error_table import (
    SYNC_ERRORS,
    JoinErrorAction,
    SyncErrorAction,
    join_action,
)
from asyncrevoke.client.core.membership.classic.group_leader import (
    GroupLeader,
    leading_again,
)
from asyncrevoke.client.core.membership.classic.heartbeat import ClassicHeartbeat
from asyncrevoke.client.core.membership.classic.join_and_sync import LONGEST_STORE, JoinAndSync
from asyncrevoke.client.core.membership.classic.leave_group import LeaveGroup
from asyncrevoke.client.core.membership.classic.owned_and_assigned import (
    OwnedAndAssigned,
    ReceivedAssignment,
    read_assignment,
)
from asyncrevoke.client.core.membership.classic.state_table import (
    CLASSIC_TRANSITIONS,
    ClassicState,
    ClassicTransition,
)
from asyncrevoke.client.core.membership.classic.user_data import (
    LastAssignment,
    carries_mark,
    decode_assignment_user_data,
)
from asyncrevoke.client.core.membership.fatal_errors import group_error
from asyncrevoke.client.core.membership.membership_log import MembershipLog
from asyncrevoke.client.model import GroupMetadata
from asyncrevoke.client.protocol.messages import ErrorCode, JoinGroupMember

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.membership.classic.user_data import AssignmentUserData
    from asyncrevoke.client.core.membership.reactions import MembershipReactions
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.metadata.coordinator import Coordinator
    from asyncrevoke.client.core.partition.assignment import Assignment
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.core.partition.revocation import Revocation
    from asyncrevoke.client.errors import FatalError
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.protocol.messages import JoinGroupResponse, SyncGroupResponse

_GROUP = "group"
_STAGED_TIMER = "staged-release"
_LEAST_STAGED_INTERVAL = 1.0
# Topics in the reason of a rejoin, and members in a log line.
_NAMED = 5
_MAY_COMMIT = frozenset((ClassicState.STABLE, ClassicState.REVOKING, ClassicState.AWAIT_JOIN))


class ClassicMembership:
    """One member of a classic group, its identity at the coordinator, and its state."""

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
        self._log = MembershipLog(outbox)
        self._wait_log = WaitLog(outbox)
        self._config = config
        self._cluster = cluster
        self._coordinator = coordinator
        self._assignment = assignment
        self._revocation = revocation
        self._reactions = reactions
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self.eager = choose_protocol(assignors) is RebalanceProtocol.EAGER
        self._group_id = config.group_id or ""
        self._partitions = OwnedAndAssigned(assignment, eager=self.eager)
        self._heartbeat = ClassicHeartbeat(outbox, config, coordinator, self)
        self._requests = JoinAndSync(
            outbox, config, coordinator, self._assignors, self._partitions, self
        )
        self._leader = GroupLeader(outbox, cluster, self._requests, self, reactions)
        self._leave_group = LeaveGroup(outbox, config, coordinator, self._requests, self)
        self.state = ClassicState.UNJOINED
        self.member_id = ""
        self.generation = -1
        self._synced_at = float("-inf")
        self._synced_generation = -1
        # The term of the coordinator that gave the member id, until there is an assignment for it.
        self._member_id_unwritten_since: int | None = None
        self.last_assignment = LastAssignment()
        # A static member keeps its place for its next start (KIP-345).
        self._sends_leave = config.group_instance_id is None
        self.topics: frozenset[str] = frozenset()
        # Whether the leader of the last assignment accepts a member without topics.
        self._led_by_ours = False
        # The id of the leader, if that is another member and assignments tell whose member it is.
        self._other_leader = ""
        # Members of other clients that were logged.
        self._other_clients: Sequence[str] = ()
        self.join_reason = ""
        self._rejoin_owed: str | None = None
        # Whether no assignment was received since it joined without a generation.
        self._is_new = False
        # When the last JoinGroup was sent, and the seconds from there to its assignment.
        self._joined_at = float("-inf")
        self._rebalance_took = 0.0
        self.is_leaving = False
        self._idle = False

    # --- facts -----------------------------------------------------------------------------------

    @property
    def member_identity(self) -> GroupMetadata:
        """The identity in requests of the member."""
        return GroupMetadata(
            self._group_id, self.generation, self.member_id, self._config.group_instance_id
        )

    @property
    def confirmed_at(self) -> float | None:
        """Send time of the last heartbeat or sync that the coordinator confirmed."""
        return self._heartbeat.confirmed_at

    @property
    def session(self) -> float:
        """Seconds without a heartbeat after which the group removes the member."""
        return self._config.session_timeout

    @property
    def member_at(self) -> float | None:
        """Send time of the last request that was accepted as a member's."""
        return self._heartbeat.member_at

    @property
    def has_epochs(self) -> bool:
        """Whether it is a member of a KIP-848 group."""
        return False

    @property
    def may_commit(self) -> bool:
        """While the coordinator delays a JoinGroup, it accepts the old generation; between join and
        sync it accepts none."""
        return self.generation >= 0 and self.state in _MAY_COMMIT

    def renewed_identity(self, _now: float, rejected: GroupMetadata) -> GroupMetadata | None:
        """The identity to send offsets of an open transaction with after ILLEGAL_GENERATION: that
        of the generation that has followed, also before its sync, or the same one while the
        response to JoinGroup may have that. None: the generation is the present one."""
        if self.generation < 0:
            return None
        may_change = self.state is ClassicState.AWAIT_JOIN
        return self.member_identity if may_change or rejected != self.member_identity else None

    def is_current_membership(self, sent: GroupMetadata, sent_at: float) -> bool:
        """Whether an error for ``sent`` is about the present membership: the same identity, and no
        join or sync outstanding that may have changed it. As a coordinator that has moved may reuse
        a generation, errors for requests sent before the last sync do not count."""
        return (
            sent == self.member_identity
            and self.state in (ClassicState.STABLE, ClassicState.REVOKING)
            and sent_at > self._synced_at
        )

    def _transition(self, transition: ClassicTransition) -> None:
        """Take a transition of the table; KeyError if the state does not have it."""
        self.state = CLASSIC_TRANSITIONS[self.state, transition]

    # --- a rebalance: its begin ------------------------------------------------------------------

    def rebalance_seen(self, now: float) -> None:
        """The coordinator prepares a rebalance."""
        if self.state is ClassicState.AWAIT_SYNC:
            if self._leader.is_computing:
                self._leader.resign()
                self._join_next_generation(now)
            else:
                # The sync is over, and its response on its way or lost. Before Apache Kafka 2.7, or
                # so long as a coordinator stores the assignment, the sync may be under way.
                self._requests.expect_response(now, LONGEST_STORE)
        elif self.state is ClassicState.STABLE and self.eager:
            self._revoke_all(now, self._group_deadline(now))
            self._transition(ClassicTransition.REVOKE)
        elif self.state is ClassicState.STABLE or self._may_join_draining:
            self.start_join(now, "the group rebalances")
        elif self.state is ClassicState.REVOKING:
            self._revocation.tighten(self._group_deadline(now))

    def rejoin(self, now: float, reason: str) -> None:
        """Join (again) for a reason of this member, after what must be released first."""
        match self.state:
            case ClassicState.UNJOINED:
                if self.topics and not self.is_leaving and not self._idle:
                    self.start_join(now, reason)
            case ClassicState.STABLE:
                self._rejoin_owed = reason
                if self.eager:
                    self._revoke_all(now, self._own_deadline(now))
                self._transition(ClassicTransition.REVOKE)
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

    def start_join(self, now: float, reason: str) -> None:
        """Send JoinGroup with the subscription and all that this member owns when it is sent."""
        self._joined_at = now
        self._outbox.cancel_timer(_STAGED_TIMER)
        self._rejoin_owed = None
        self._is_new = self._is_new or self.generation < 0
        self._transition(ClassicTransition.JOIN if self.member_id else ClassicTransition.ASK_ID)
        self._outbox.emit(log_events.JOINING, reason=reason)
        self._wait_log.watch(
            now, _GROUP, log_events.WAITING_FOR_OTHER_MEMBERS, self._waiting_for_group
        )
        self.join_reason = reason
        self._requests.join(now, known=self.generation >= 0)

    def _waiting_for_group(self) -> dict[str, object] | None:
        if self._coordinator.node is None:
            return None
        return {"phase": self.state.value}

    # --- a rebalance: JoinGroup and SyncGroup ----------------------------------------------------

    def join_response_received(self, now: float, reply: JoinGroupResponse) -> None:
        """The coordinator has responded to JoinGroup."""
        if reply.error is ErrorCode.none:
            self._joined(now, reply)
            return
        error = reply.error
        # Whether a static member has its id from a coordinator of another term, which may not have
        # written it.
        unwritten = self._member_id_unwritten_since not in (None, self._coordinator.term)
        match join_action(error, is_id_unwritten=unwritten):
            case JoinErrorAction.USE_MEMBER_ID:
                self._member_id_given(now, reply.member_id)
            case JoinErrorAction.REJOIN:
                self.evicted(now, "the coordinator does not know this member", keep_id=False)
            case JoinErrorAction.FIND_COORDINATOR:
                self._requests.join_elsewhere(now, error.name)
            case JoinErrorAction.WAIT_FOR_LOADING:
                self._coordinator.note_loading()
                self._requests.join_later(now, error.name)
            case JoinErrorAction.RETRY:
                self._requests.join_later(now, error.name)
            case JoinErrorAction.FAIL if error is ErrorCode.inconsistent_group_protocol:
                self._requests.describe_group(now)
            case JoinErrorAction.FENCED | JoinErrorAction.FAIL:
                self.fail_with(now, error)

    def _member_id_given(self, now: float, member_id: str) -> None:
        self.member_id = member_id
        if self.is_leaving:
            self.send_leave(now)
        else:
            self._transition(ClassicTransition.JOIN)
            self._requests.join_with_id(now)

    def _joined(self, now: float, reply: JoinGroupResponse) -> None:
        dynamic = self._config.group_instance_id is None
        is_rebalanced = reply.generation != self.generation
        if dynamic and not reply.leader and is_rebalanced and self._heartbeat.may_be_evicted(now):
            # A coordinator that assigns takes a removed member for a new one of the same id, and
            # does not say so: after a session without a response, others may have its partitions.
            self._lose_partitions(now, "joined again after more than a session without a response")
        if reply.member_id != self.member_id:
            self._member_id_unwritten_since = self._coordinator.term
        self.member_id, self.generation = reply.member_id, reply.generation
        self._transition(ClassicTransition.JOINED)
        self._heartbeat.start(now)
        assignor = self._assignors.get(reply.protocol_name or "")
        if assignor is None:
            self.fail_with(now, ErrorCode.inconsistent_group_protocol)
            return
        us = JoinGroupMember(
            member_id=reply.member_id,
            group_instance_id=self._config.group_instance_id,
            metadata=dict(self._requests.offered).get(assignor.name, b""),
        )
        self._other_leader = ""
        if reply.leader == reply.member_id:
            self._leader.lead(now, assignor, reply)
        elif (again := leading_again(reply, us)) is not None:
            self._leader.lead(now, assignor, again)
        else:
            if reply.leader:
                self._leader.resign()
                self._other_leader = reply.leader if carries_mark(assignor) else ""
            else:
                self._leader.watch_topics(self.topics)
            self._requests.sync(now, assignor.name, ())

    def sync_response_received(
        self, now: float, sent_at: float, reply: SyncGroupResponse | None
    ) -> None:
        """The coordinator has responded to SyncGroup; None: it has not, or was not asked."""
        if self.state is not ClassicState.AWAIT_SYNC:
            return
        if reply is None:
            self._join_same_generation(now, "SyncGroup had no response", at_once=True)
        elif reply.error is ErrorCode.none:
            self._heartbeat.confirm(sent_at)
            self._synced_at, self._synced_generation = now, self.generation
            self._member_id_unwritten_since = None
            received = read_assignment(reply.assignment, self.topics, self._cluster)
            self._log_invalid(received)
            self._transition(ClassicTransition.SYNCED)
            self._wait_log.forget(_GROUP)
            self.last_assignment = LastAssignment(self.generation, received.partitions)
            decoded = decode_assignment_user_data(received.user_data)
            self.assignment_received(now, received.partitions, decoded)
        else:
            self._sync_failed(now, reply.error)

    def _sync_failed(self, now: float, error: ErrorCode) -> None:
        match SYNC_ERRORS.get(error, SyncErrorAction.RETRY):
            case SyncErrorAction.REJOIN:
                self.evicted(now, "removed from the group before the sync", keep_id=False)
            case SyncErrorAction.REJOIN_WITH_ID:
                self.evicted(now, "the group moved on before the sync", keep_id=True)
            case SyncErrorAction.REBALANCE:
                self._join_next_generation(now)
            case SyncErrorAction.FIND_COORDINATOR:
                self._coordinator.mark_unknown(
                    now, f"SyncGroup: {error.name}", self._requests.sent_to
                )
                self._join_same_generation(now, error.name, at_once=True)
            case SyncErrorAction.WAIT_FOR_LOADING:
                self._coordinator.note_loading()
                self._join_same_generation(now, error.name, at_once=False)
            case SyncErrorAction.RETRY:
                self._join_same_generation(now, error.name, at_once=False)
            case SyncErrorAction.FAIL:
                self.fail_with(now, error)

    def _join_same_generation(self, now: float, why: str, *, at_once: bool) -> None:
        """Request the assignment of this generation by the JoinGroup that has led to it."""
        # Also when leaving: no other coordinator accepts commits of this generation.
        self._transition(ClassicTransition.JOIN)
        self._requests.join_again(now, why, at_once=at_once)

    def _join_next_generation(self, now: float) -> None:
        """The group rebalances again: this generation gets no assignment."""
        if self.is_leaving:
            # This generation assigns nothing; what is still assigned drains and is committed.
            self._transition(ClassicTransition.REVOKE)
            self._revocation.request_barrier()
            self._reactions.membership_ready(now)
        else:
            self.start_join(now, "the group rebalances")

    def other_clients_found(self, member_ids: Sequence[str]) -> None:
        """The members of other clients that this generation is known to have."""
        if self._config.exactly_once and member_ids and member_ids != self._other_clients:
            self._outbox.emit(
                log_events.OTHER_CLIENTS_WITH_EXACTLY_ONCE,
                members=member_ids[:_NAMED],
                count=len(member_ids),
                hazard="one that reads offsets without require_stable repeats visible results",
            )
        self._other_clients = member_ids

    def _log_invalid(self, received: ReceivedAssignment) -> None:
        if received.unreadable is not None:
            self._outbox.emit(log_events.ASSIGNMENT_NOT_DECODED, problem=received.unreadable)
        elif received.ignored is not None:
            self._outbox.emit(log_events.ASSIGNMENT_PARTLY_INVALID, problem=received.ignored)

    # --- a rebalance: the assignment, and the partitions that it takes away -----------------------

    def assignment_received(
        self, now: float, assigned: tuple[TopicPartition, ...], user_data: AssignmentUserData | None
    ) -> None:
        """The member is stable, with this assignment and its user data."""
        self._rebalance_took = now - self._joined_at
        self._led_by_ours = user_data is not None
        if self._other_leader and not self._led_by_ours:
            self.other_clients_found((self._other_leader,))
        was_new, self._is_new = self._is_new, False
        self._revocation.successors_read_maps(user_data is not None and user_data.maps_are_read)
        if self.is_leaving:
            # Added partitions are released unread; the others are being released already.
            self._partitions.ignore(assigned)
            self._transition(ClassicTransition.REVOKE)
            self._revocation.request_barrier()
            self._plan_staged_rejoin(now)
            self._reactions.membership_ready(now)
            return
        if self._leader.has_missed(user_data):
            self._rejoin_owed = "the partitions of the group's topics have changed"
        is_static = self._config.group_instance_id is not None
        if was_new and is_static and user_data is not None and user_data.withheld:
            # A static member that returns gets its assignment without a rebalance (KIP-345). If it
            # has released partitions before, no other member gets them until it joins again.
            self._rejoin_owed = "partitions wait for a former owner, which may be this member"
        change = self._partitions.apply(assigned, self.topics)
        if change.stray:
            topics = ", ".join(change.stray[:_NAMED])
            self._rejoin_owed = f"assigned topics that the member did not subscribe to: {topics}"
        for instance in change.withdrawn:
            self._revocation.withdraw(instance)
        self._log.assigned(
            self.generation,
            self._partitions.assigned,
            added=len(change.added),
            to_go=len(change.must_go),
        )
        if change.must_go or self._rejoin_owed or (self.eager and change.going):
            # Also if all of it was released while JoinGroup was delayed: until the next join the
            # group counts it as this member's.
            self._transition(ClassicTransition.REVOKE)
            self._revocation.request_barrier()
        if self.eager and self._rejoin_owed:
            self._revoke_all(now, self._own_deadline(now))
        self._revocation.request(now, change.going, self._own_deadline(now))
        awaits_more = not self._partitions.assigned or (
            user_data is not None and user_data.withheld
        )
        self._heartbeat.set_often(awaits_more or self.state is ClassicState.REVOKING)
        self._heartbeat.rebalanced(now)
        self._plan_staged_rejoin(now)
        if change.added:
            self._reactions.partitions_added(
                now, [instance for instance in change.added if not instance.terminal]
            )
        self._reactions.membership_ready(now)

    def released(self, now: float, instance: PartitionInstance) -> None:
        """An instance has ended. If the group has assigned its partition again meanwhile, start a
        new one."""
        if instance.partition in self._partitions.assigned and not self.is_leaving:
            self._reactions.partitions_added(now, self._assignment.add([instance.partition]))
        self._plan_staged_rejoin(now)

    def _plan_staged_rejoin(self, now: float) -> None:
        """Plan a join that hands over what is released before the slowest has drained, if the group
        still counts something released as this member's. As each join makes the whole group
        rebalance: at least 1 second, and twice the time of the last rebalance, after the last
        join. So a group spends at most half of its time on staged joins."""
        if (
            self._may_join_draining
            and self._partitions.released
            and not self._outbox.has_timer(_STAGED_TIMER)
        ):
            at = self._joined_at + max(_LEAST_STAGED_INTERVAL, 2 * self._rebalance_took)
            self._outbox.set_timer(_STAGED_TIMER, max(now, at), self._staged_rejoin_due)

    def _staged_rejoin_due(self, now: float) -> None:
        if (
            self._may_join_draining
            and self._partitions.released
            and not self._revocation.at_barrier
        ):
            self.start_join(now, "some partitions were released")

    @property
    def _may_join_draining(self) -> bool:
        """Whether a join may list what still drains: a cooperative member is stable at the broker
        meanwhile.

        A member that stops joins without topics, which only leaders of this library accept. A
        static one keeps its partitions for its next start.
        """
        if self.state is not ClassicState.REVOKING or self.eager:
            return False
        if self.is_leaving:
            return self._led_by_ours and self._config.group_instance_id is None
        return bool(self.topics)

    def barrier(self, now: float) -> None:
        """Nothing is being revoked, says ``Core.after_event``: leave, or join again."""
        if self.is_leaving:
            unasked = self.state is ClassicState.AWAIT_ID and not self._requests.outstanding
            if unasked or self.state in (
                ClassicState.STABLE,
                ClassicState.REVOKING,
                ClassicState.AWAIT_JOIN,
                ClassicState.UNJOINED,
                ClassicState.FATAL,
            ):
                self.send_leave(now)
        elif self.state is ClassicState.REVOKING:
            if self.topics:
                self.start_join(now, self._rejoin_owed or "partitions were released")
            else:
                # Do not send an empty subscription: some leaders assign partitions to it.
                self.send_leave(now)

    def _revoke_all(self, now: float, deadline: float) -> None:
        self._partitions.clear_assigned()
        self._revocation.request(now, self._assignment.live(), deadline)

    def _own_deadline(self, now: float) -> float:
        return now + (self._config.revoke_timeout or self._config.rebalance_timeout)

    def _group_deadline(self, now: float) -> float:
        confirmed = self._heartbeat.confirmed_at
        latest = (now if confirmed is None else confirmed) + self._config.rebalance_timeout
        # Leaving is limited by close_timeout.
        return latest if self.is_leaving else min(latest, self._own_deadline(now))

    # --- responses to heartbeats and commits -----------------------------------------------------

    def heartbeat_confirmed(self, now: float) -> None:
        """A heartbeat of the present identity was confirmed."""
        if self.state is ClassicState.AWAIT_SYNC:
            # The others may have their assignments, and this one be lost. Or the leader has not
            # made the assignment yet, or the coordinator stores it: as long as a commit may take.
            self._requests.expect_response(now, self._outbox.silence_timeout + LONGEST_STORE)

    def heartbeat_rejected(
        self, now: float, sent: GroupMetadata, sent_at: float, error: ErrorCode
    ) -> None:
        """The membership is lost, unless it has changed since the heartbeat was sent."""
        if self.is_current_membership(sent, sent_at):
            self.rejected(now, error)
        elif sent != self.member_identity:
            return
        elif (
            error is ErrorCode.illegal_generation
            and self.state is ClassicState.AWAIT_JOIN
            and 0 <= self._synced_generation < self.generation
        ):
            # A coordinator that has moved knows this member by the last synced generation: with it,
            # it stays a member and may commit, while the coordinator waits for the others.
            self.generation = self._synced_generation
            self._heartbeat.soon(now)
            self._reactions.membership_ready(now)
        elif self.state in (ClassicState.AWAIT_JOIN, ClassicState.AWAIT_SYNC):
            self._requests.expect_response(now)

    def rejected(self, now: float, error: ErrorCode) -> None:
        """A response to OffsetCommit or Heartbeat says that the membership is lost."""
        if error is ErrorCode.fenced_instance_id:
            self.fail_with(now, error)
        else:
            self.evicted(
                now,
                f"the coordinator responds with {error.name}",
                keep_id=error is ErrorCode.illegal_generation,
            )

    def evicted(self, now: float, reason: str, *, keep_id: bool) -> None:
        """The coordinator does not accept the membership; ``keep_id``: but knows the member id."""
        self._outbox.emit(log_events.MEMBERSHIP_LOST, reason=reason)
        self.stop_sending()
        self._clear_generation()
        if not keep_id:
            self.member_id = ""
            self._member_id_unwritten_since = None
        self._transition(ClassicTransition.EVICTED)
        self._lose_partitions(now, reason)
        if self.is_leaving:
            self._revocation.request_barrier()
        elif self.topics and not self._idle:
            self.start_join(now, reason)

    def _clear_generation(self) -> None:
        self.generation = self._synced_generation = -1

    def _lose_partitions(self, now: float, reason: str) -> None:
        """Lose all partitions: other members may have them."""
        self._partitions.clear_assigned()
        self._revocation.lose(now, self._assignment.live(), reason)

    # --- changes by the user and the cluster -----------------------------------------------------

    def subscribe(self, now: float, topics: frozenset[str]) -> None:
        """Set the topics to subscribe to (for a pattern: those that match now)."""
        if topics == self.topics:
            return
        self.topics = topics
        dropped = [i for i in self._assignment.live() if i.partition.topic not in self.topics]
        if dropped:
            self._partitions.drop(instance.partition for instance in dropped)
            self._revocation.request(now, dropped, self._own_deadline(now))
        self.rejoin(now, "subscription changed")

    def metadata_changed(self, now: float) -> None:
        """Topics or partitions have changed: a leader has to assign anew."""
        if self._leader.has_changed():
            self.rejoin(now, "the partitions of the group's topics have changed")

    def metadata_refreshed(self, now: float) -> None:
        """Metadata came that the leader may have waited for, or replicas have other racks."""
        if self.state is ClassicState.AWAIT_SYNC:
            self._leader.metadata_refreshed(now)
        elif self.state is ClassicState.STABLE:
            self.metadata_changed(now)

    def leave_idle(self, now: float) -> None:
        """``max_poll_interval`` is exceeded: leave until the loop asks for a batch."""
        if self.is_leaving or self.state in (ClassicState.LEAVING, ClassicState.FATAL):
            return
        self._idle = True
        self._lose_partitions(now, "max_poll_interval exceeded")
        self.send_leave(now)

    def poll_resumed(self, now: float) -> None:
        """The loop asks for a batch again."""
        if self._idle:
            self._idle = False
            self.rejoin(now, "the loop asks for records again")

    # --- leaving and failing ---------------------------------------------------------------------

    def leave(self, now: float, *, wait_for_tasks: bool) -> None:
        """Release everything, then leave; ``group_left`` follows. Called again, it may stop waiting
        for tasks."""
        self.is_leaving = True
        self._partitions.clear_assigned()
        self._revocation.leave(now, wait_for_tasks=wait_for_tasks)
        if self.state is ClassicState.STABLE:
            self._transition(ClassicTransition.REVOKE)
        self._plan_staged_rejoin(now)

    def leave_now(self, now: float) -> None:
        """Leave, whatever is not released; ``group_left`` follows."""
        if self.state is not ClassicState.LEAVING:
            self.send_leave(now)

    def set_sends_leave(self, leave: bool) -> None:
        """Whether closing sends LeaveGroup; by default dynamic members do."""
        self._sends_leave = leave

    def stop_leaving(self, now: float) -> None:
        """Stop waiting for the response to LeaveGroup."""
        if self.state is ClassicState.LEAVING:
            self._leave_group.end(now)

    def send_leave(self, now: float) -> None:
        """Send LeaveGroup, unless there is nothing to leave or the member keeps its place."""
        known = self.member_id or (
            self.state is ClassicState.AWAIT_ID and self._requests.outstanding
        )
        if not known or not self._sends_leave or self.state is ClassicState.FATAL:
            self.stop_sending()
            self.leave_ended(now)
            return
        self._stop()
        self._transition(ClassicTransition.LEAVE)
        why = "the consumer is idle" if self._idle else "the consumer is closing"
        self._leave_group.leave(now, self.member_id, why)

    def leave_ended(self, now: float) -> None:
        """The group was left, or need not be notified."""
        self._transition(ClassicTransition.LEFT)
        self.member_id = ""
        self._clear_generation()
        was_leaving, self.is_leaving = self.is_leaving, False
        self._revocation.membership_begins()
        if was_leaving:
            self._reactions.group_left(now)
        elif not self._idle and self.topics:
            self.start_join(now, "topics to read have appeared")

    def stop_sending(self) -> None:
        """Closing has taken too long, or the membership is lost: send nothing any more."""
        self._requests.cancel()
        self._leave_group.cancel()
        self._stop()

    def _stop(self) -> None:
        """Take part in no rebalance now."""
        self._wait_log.forget(_GROUP)
        self._leader.resign()
        self._heartbeat.stop()
        self._outbox.cancel_timer(_STAGED_TIMER)

    def fail(self, now: float, error: FatalError) -> None:
        """The consumer cannot go on: lose everything, and send nothing any more."""
        self.stop_sending()
        self._transition(ClassicTransition.FAIL)
        self._lose_partitions(now, str(error))
        if self.is_leaving:
            self._revocation.request_barrier()
        self._reactions.membership_failed(error)

    def fail_with(self, now: float, error: ErrorCode) -> None:
        """No request can succeed after this error of the coordinator."""
        self.fail(now, group_error(error, self._config, self._assignors))
