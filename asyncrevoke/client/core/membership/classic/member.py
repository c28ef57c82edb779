"""Membership of a classic consumer group, EAGER and COOPERATIVE (KIP-429), in two steps (KIP-983).

A member joins, syncs and is stable. When the group rebalances, an EAGER member first releases
everything and joins with nothing; a COOPERATIVE one joins at once and lists what it owns. Those
partitions that the new assignment takes away drain while the group is stable; then the member joins
again without them. If another rebalance starts meanwhile, it joins at once and still lists those
that drain. If only some are released, it makes the group rebalance from time to time
(``staged_rejoin.py``).

As commits and heartbeats are sent beside JoinGroup, an error counts only if it is about the present
membership (``is_current_membership``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.assignors.assignor import Assignor, RebalanceProtocol
from asyncrevoke.client.core.assignors.registry import choose_protocol
from asyncrevoke.client.core.io.effects import Failed
from asyncrevoke.client.core.io.fatal_error import fatal_error
from asyncrevoke.client.core.membership.classic.heartbeat import ClassicHeartbeat
from asyncrevoke.client.core.membership.classic.identity import ClassicIdentity
from asyncrevoke.client.core.membership.classic.leave_group import LeaveGroup
from asyncrevoke.client.core.membership.classic.owned_and_assigned import OwnedAndAssigned
from asyncrevoke.client.core.membership.classic.rebalance import MemberRebalance
from asyncrevoke.client.core.membership.classic.staged_rejoin import StagedRejoin
from asyncrevoke.client.core.membership.classic.state_table import ClassicState, ClassicTransition
from asyncrevoke.client.core.membership.fatal_errors import group_error
from asyncrevoke.client.core.membership.membership_log import MembershipLog
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.membership.classic.assignment_user_data import AssignmentUserData
    from asyncrevoke.client.core.membership.reactions import MembershipReactions
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.metadata.coordinator import Coordinator
    from asyncrevoke.client.core.partition.assignment import Assignment
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.core.partition.revocation import Revocation
    from asyncrevoke.client.errors import FatalError
    from asyncrevoke.client.model import GroupMetadata, TopicPartition

# Topics in the reason of a rejoin.
_NAMED = 5


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
        self._log = MembershipLog(outbox, config.group_id)
        self._config = config
        self._assignment = assignment
        self._revocation = revocation
        self._reactions = reactions
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self.eager = choose_protocol(assignors) is RebalanceProtocol.EAGER
        self._group_id = config.group_id or ""
        self._identity = ClassicIdentity(config)
        self._heartbeat = ClassicHeartbeat(outbox, config, coordinator, self)
        self._rebalance = MemberRebalance(
            outbox,
            config,
            cluster,
            coordinator,
            revocation,
            self._assignors,
            self._identity,
            self._heartbeat,
            self,
            reactions,
        )
        self._requests = self._rebalance.requests
        self._leader = self._rebalance.leader
        self._leave_group = LeaveGroup(outbox, config, coordinator, self._requests, self)
        self._partitions = OwnedAndAssigned(assignment)
        self._staged = StagedRejoin(outbox, self)
        # A static member keeps its place for its next start (KIP-345).
        self._sends_leave = config.group_instance_id is None
        self.topics: frozenset[str] = frozenset()
        # Whether the leader of the last assignment accepts a member without topics.
        self._led_by_ours = False
        self._rejoin_owed: str | None = None
        # Whether no assignment was received since it joined without a generation.
        self._is_new = False
        self.is_leaving = False
        self._idle = False

    # --- facts -----------------------------------------------------------------------------------

    @property
    def state(self) -> ClassicState:
        """Where this member is."""
        return self._identity.state

    @property
    def member_identity(self) -> GroupMetadata:
        """The identity that the coordinator knows this member by."""
        return self._identity.member_identity

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
    def may_commit(self) -> bool:
        """See :attr:`.identity.ClassicIdentity.may_commit`."""
        return self._identity.may_commit

    def is_current_membership(self, sent: GroupMetadata, sent_at: float) -> bool:
        """See :meth:`.identity.ClassicIdentity.is_current_membership`."""
        return self._identity.is_current_membership(sent, sent_at)

    # --- changes by the user and the cluster -----------------------------------------------------

    def subscribe(self, now: float, topics: frozenset[str]) -> None:
        """Set the topics to subscribe to (for a pattern: those that match now)."""
        if topics == self.topics:
            return
        self.topics = topics
        self._drop_topics(now)
        self.rejoin(now, "subscription changed")

    def _drop_topics(self, now: float) -> None:
        dropped = [i for i in self._assignment.live() if i.partition.topic not in self.topics]
        if dropped:
            self._partitions.drop(instance.partition for instance in dropped)
            self._revocation.request(now, dropped, self._own_deadline(now))

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
                self._identity.transition(ClassicState.STABLE, ClassicTransition.REVOKE)
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
        """Metadata came that the leader may have waited for, or replicas have other racks."""
        if self.state is ClassicState.AWAIT_SYNC:
            self._leader.metadata_refreshed(now)
        elif self.state is ClassicState.STABLE:
            self.metadata_changed(now)

    def leave(self, now: float, *, wait_for_tasks: bool) -> None:
        """Release everything, then leave; ``group_left`` follows. Called again, it may stop waiting
        for tasks."""
        self.is_leaving = True
        self._partitions.clear_assigned()
        self._revocation.leave(now, wait_for_tasks=wait_for_tasks)
        if self.state is ClassicState.STABLE:
            self._identity.transition(ClassicState.STABLE, ClassicTransition.REVOKE)
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
            self._leave_group.stop_waiting(now)

    def leave_idle(self, now: float) -> None:
        """``max_poll_interval`` is exceeded: leave until the loop asks for a batch."""
        if self.is_leaving or self.state in (ClassicState.LEAVING, ClassicState.FATAL):
            return
        self._idle = True
        self.lose_partitions(now, "max_poll_interval exceeded")
        self.send_leave(now)

    def poll_resumed(self, now: float) -> None:
        """The loop asks for a batch again."""
        if self._idle:
            self._idle = False
            self.rejoin(now, "the loop asks for records again")

    def released(self, now: float, instance: PartitionInstance) -> None:
        """An instance has ended. If the group has assigned its partition again meanwhile, start a
        new one."""
        if instance.partition in self._partitions.assigned and not self.is_leaving:
            self._reactions.partitions_added(now, self._assignment.add([instance.partition]))
        self._plan_staged_rejoin(now)

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

    # --- staged rejoins --------------------------------------------------------------------------

    def _plan_staged_rejoin(self, now: float) -> None:
        """Plan a staged join if the group still counts a released partition as this member's."""
        if self._may_join_draining and self._partitions.released:
            self._staged.released(now)

    def staged_rejoin_due(self, now: float) -> None:
        """See :class:`.reactions.StagedRejoinReactions`."""
        if (
            self._may_join_draining
            and self._partitions.released
            and not self._revocation.at_barrier
        ):
            self.start_join(now, "some partitions were released")

    @property
    def _may_join_draining(self) -> bool:
        """Whether a join may list what still drains.

        A member that stops joins without topics, which only leaders of this library accept. A
        static one keeps its partitions for its next start.
        """
        if self.state is not ClassicState.REVOKING or self.eager:
            return False
        if self.is_leaving:
            return self._led_by_ours and self._config.group_instance_id is None
        return bool(self.topics)

    # --- joining ---------------------------------------------------------------------------------

    def start_join(self, now: float, reason: str) -> None:
        """Send JoinGroup with the subscription and all that this member owns when it is sent."""
        self._staged.joining(now)
        self._rejoin_owed = None
        self._is_new = self._is_new or self._identity.generation < 0
        self._rebalance.join(now, reason)

    def report_owned(self) -> tuple[TopicPartition, ...]:
        """See :class:`.reactions.RebalanceReactions`."""
        owned = () if self.eager else tuple(sorted(self._assignment.partitions()))
        self._partitions.report(owned, self.topics)
        return owned

    def assignment_received(
        self, now: float, assigned: tuple[TopicPartition, ...], user_data: AssignmentUserData | None
    ) -> None:
        """See :class:`.reactions.RebalanceReactions`."""
        self._staged.synced(now)
        self._led_by_ours = user_data is not None
        was_new, self._is_new = self._is_new, False
        self._revocation.successors_read_maps(user_data is not None and user_data.maps_are_read)
        if self.is_leaving:
            # Added partitions are released unread; the others are being released already.
            self._partitions.ignore(assigned)
            self._identity.transition(ClassicState.STABLE, ClassicTransition.REVOKE)
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
        added = self._partitions.add_assigned()
        self._log.assigned(
            self._identity.generation,
            self._partitions.assigned,
            added=len(added),
            to_go=len(change.must_go),
        )
        if change.must_go or self._rejoin_owed or (self.eager and change.going):
            # Also if all of it was released while JoinGroup was delayed: until the next join the
            # group counts it as this member's.
            self._identity.transition(ClassicState.STABLE, ClassicTransition.REVOKE)
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
        if added:
            self._reactions.partitions_added(
                now, [instance for instance in added if not instance.terminal]
            )
        self._reactions.membership_ready(now)

    # --- rebalances and errors -------------------------------------------------------------------

    def rebalance_seen(self, now: float) -> None:
        """The coordinator prepares a rebalance."""
        if self.state is ClassicState.STABLE and self.eager:
            self._revoke_all(now, self._group_deadline(now))
            self._identity.transition(ClassicState.STABLE, ClassicTransition.REVOKE)
        elif self.state is ClassicState.REVOKING and self.eager:
            self._revocation.tighten(self._group_deadline(now))
        elif self.state is ClassicState.AWAIT_SYNC:
            self._rebalance.rebalance_seen(now)
        elif self.state in (ClassicState.STABLE, ClassicState.REVOKING):
            if self.state is ClassicState.STABLE or self._may_join_draining:
                self.start_join(now, "the group rebalances")
            else:
                self._revocation.tighten(self._group_deadline(now))

    def rejected(self, now: float, error: ErrorCode) -> None:
        """A response to OffsetCommit or Heartbeat says that the membership is lost."""
        if error is ErrorCode.fenced_instance_id:
            self._failed_with(now, error)
        else:
            self.evicted(
                now,
                f"the coordinator responds with {error.name}",
                keep_id=error is ErrorCode.illegal_generation,
            )

    def heartbeat_confirmed(self, now: float, sent: GroupMetadata) -> None:
        """See :class:`.reactions.ClassicHeartbeatReactions`, as for the others."""
        if self.state is ClassicState.AWAIT_SYNC and sent == self.member_identity:
            self._rebalance.heartbeat_confirmed(now)

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
        elif sent == self.member_identity and self.state in (
            ClassicState.AWAIT_JOIN,
            ClassicState.AWAIT_SYNC,
        ):
            self._rebalance.heartbeat_rejected(now, error)

    def heartbeat_failed(self, now: float, why: ErrorCode | Failed) -> None:
        """The consumer cannot go on."""
        if isinstance(why, Failed):
            self.fail(now, fatal_error(why))
        else:
            self._failed_with(now, why)

    def evicted(self, now: float, reason: str, *, keep_id: bool) -> None:
        """See :class:`.reactions.RebalanceReactions`."""
        self._outbox.emit(log_events.MEMBERSHIP_LOST, group=self._group_id, reason=reason)
        self._forget_join()
        self._identity.clear_generation()
        if not keep_id:
            self._identity.clear_member_id()
        self._identity.transition_from_any(ClassicTransition.EVICTED)
        self.lose_partitions(now, reason)
        if self.is_leaving:
            self._revocation.request_barrier()
        elif self.topics and not self._idle:
            self.start_join(now, reason)

    def lose_partitions(self, now: float, reason: str) -> None:
        """Lose all partitions: other members may have them."""
        self._partitions.clear_assigned()
        self._revocation.lose(now, self._assignment.live(), reason)

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

    # --- leaving and failing ---------------------------------------------------------------------

    def _forget_join(self) -> None:
        self._requests.cancel()
        self._leave_group.cancel()
        self._stop()

    def _stop(self) -> None:
        self._rebalance.stop()
        self._heartbeat.stop()
        self._staged.cancel()

    def send_leave(self, now: float) -> None:
        """Send LeaveGroup, unless there is nothing to leave or the member keeps its place."""
        known = self._identity.member_id or (
            self.state is ClassicState.AWAIT_ID and self._requests.outstanding
        )
        if not known or not self._sends_leave or self.state is ClassicState.FATAL:
            self._forget_join()
            self.leave_ended(now)
            return
        self._stop()
        self._identity.transition_from_any(ClassicTransition.LEAVE)
        why = "the consumer is idle" if self._idle else "the consumer is closing"
        self._leave_group.leave(now, self._identity.member_id, why)

    def leave_ended(self, now: float) -> None:
        """The group was left, or need not be notified."""
        self._identity.left()
        was_leaving, self.is_leaving = self.is_leaving, False
        self._revocation.membership_begins()
        if was_leaving:
            self._reactions.group_left(now)
        elif not self._idle and self.topics:
            self.start_join(now, "topics to read have appeared")

    def stop_sending(self) -> None:
        """Closing has taken too long: send nothing any more."""
        self._forget_join()

    def fail(self, now: float, error: FatalError) -> None:
        """The consumer cannot go on: lose everything, and send nothing any more."""
        self._forget_join()
        self._identity.transition_from_any(ClassicTransition.FAIL)
        self.lose_partitions(now, str(error))
        if self.is_leaving:
            self._revocation.request_barrier()
        self._reactions.membership_failed(error)

    def _failed_with(self, now: float, error: ErrorCode) -> None:
        self.fail(now, group_error(error, self._config, self._assignors))
