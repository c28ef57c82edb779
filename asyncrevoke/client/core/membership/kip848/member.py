"""Membership of a consumer group whose coordinator assigns (KIP-848), in two steps (KIP-983).

The only request is the heartbeat, and one is in flight. A rebalance, and the states of
``state_table.py``::

    a full heartbeat with epoch 0: the subscription, and nothing owned            -> JOINING
    a response has another assignment: start what is added, and revoke the rest   -> RECONCILING
      while it drains, heartbeats omit what is owned: nobody else gets it
    barrier, all are released or lost: a heartbeat lists what is owned            -> ACKNOWLEDGING
    its response, which may have another epoch                                    -> STABLE
    UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH: lose all partitions, and join         -> UNSUBSCRIBED
    a heartbeat with epoch -1 or -2: leave                                        -> LEAVING

A revocation cannot be withdrawn: the member gets no other assignment until it is acknowledged. A
partition that is assigned again becomes a new instance.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import Failed, FailureKind
from asyncrevoke.client.core.io.fatal_error import fatal_error
from asyncrevoke.client.core.membership.fatal_errors import (
    consumer_group_error,
    consumer_protocol_not_sent,
    no_consumer_protocol,
)
from asyncrevoke.client.core.membership.kip848.error_table import (
    HeartbeatErrorAction,
    heartbeat_action,
)
from asyncrevoke.client.core.membership.kip848.heartbeat import ConsumerGroupHeartbeat
from asyncrevoke.client.core.membership.kip848.state_table import (
    MEMBER_TRANSITIONS,
    MemberState,
    MemberTransition,
)
from asyncrevoke.client.core.membership.kip848.target_assignment import (
    TargetAssignment,
    UnknownTopics,
)
from asyncrevoke.client.core.membership.membership_log import MembershipLog
from asyncrevoke.client.model import GroupMetadata, TopicPartition
from asyncrevoke.client.protocol.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ApiVersionsResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ErrorCode,
)

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.membership.reactions import MembershipReactions
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.metadata.coordinator import Coordinator
    from asyncrevoke.client.core.partition.assignment import Assignment
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.core.partition.revocation import Revocation
    from asyncrevoke.client.errors import FatalError
    from asyncrevoke.client.protocol.messages import TopicIdPartitions

_LEAVE_TIMER = "leave"
_LEAVE_TIMEOUT = 5.0
_OFTEN_AFTER_JOIN = 10.0
_OFTEN_AFTER_EPOCH = 5.0
# A member that is fenced again so soon joins after a pause.
_FENCED_OFTEN = 1.0

_MOVED = frozenset((ErrorCode.not_coordinator, ErrorCode.coordinator_not_available))
_MEMBER = frozenset((MemberState.RECONCILING, MemberState.ACKNOWLEDGING, MemberState.STABLE))
_NOT_THERE = frozenset((MemberState.UNSUBSCRIBED, MemberState.FATAL))


class ConsumerGroupMembership:
    """One member of a consumer group.

    The client makes ``member_id`` once, and keeps it when the member is fenced. With
    ``has_fallback`` a group that does not offer this protocol is not an error.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        cluster: ClusterMetadata,
        coordinator: Coordinator,
        assignment: Assignment,
        revocation: Revocation,
        member_id: str,
        reactions: MembershipReactions,
        *,
        has_fallback: bool,
    ) -> None:
        self._outbox = outbox
        self._log = MembershipLog(outbox)
        self._config = config
        self._cluster = cluster
        self._assignment = assignment
        self._revocation = revocation
        self._group_id = config.group_id or ""
        self._member_id = member_id
        # Whether closing frees the instance id. A static member sends a last heartbeat anyway.
        self._sends_leave = config.group_instance_id is None
        self._heartbeat = ConsumerGroupHeartbeat(outbox, config, coordinator, self)
        self._reactions = reactions
        self._has_fallback = has_fallback
        self.state = MemberState.UNSUBSCRIBED
        self._epoch = JOIN_EPOCH
        self._topics: frozenset[str] = frozenset()
        self._regex: str | None = None
        # The subscription that the coordinator has from this member.
        self._sent: tuple[tuple[str, ...], str | None] | None = None
        self._target = TargetAssignment(cluster)
        # The newest assignment: a partition of it that is released is started anew.
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._unknown = UnknownTopics(outbox, cluster, config)
        self._fenced_at = float("-inf")
        # Whether the coordinator may know this member.
        self._known = False
        # An earlier membership of this consumer may still have the instance id.
        self._release_instance = False
        self._leaving = False
        self._idle = False

    # --- facts -----------------------------------------------------------------------------------

    @property
    def member_identity(self) -> GroupMetadata:
        """Its identity; the generation is the member epoch, -1 while there is none."""
        epoch = self._epoch if self._epoch > JOIN_EPOCH else -1
        return GroupMetadata(self._group_id, epoch, self._member_id, self._config.group_instance_id)

    @property
    def confirmed_at(self) -> float | None:
        """Send time of the last heartbeat that the coordinator confirmed."""
        return self._heartbeat.confirmed_at

    @property
    def member_at(self) -> float | None:
        """The same: only the responses to members have no error."""
        return self._heartbeat.confirmed_at

    @property
    def session(self) -> float:
        """Seconds without a heartbeat after which the member may have been removed."""
        return self._heartbeat.session

    @property
    def has_epochs(self) -> bool:
        """Whether it is a member of a KIP-848 group."""
        return True

    @property
    def may_commit(self) -> bool:
        """Whether it is a member: the epoch does not change while partitions drain."""
        return self.state in _MEMBER

    def renewed_identity(self, now: float, rejected: GroupMetadata) -> GroupMetadata | None:
        """The identity to send offsets of an open transaction with after this one was rejected: it
        has the present epoch, which a heartbeat requests if this is the last known one."""
        if not self.may_commit:
            return None
        if self.member_identity == rejected:
            self.rebalance_seen(now)
        return self.member_identity

    def is_current_membership(self, sent: GroupMetadata, _sent_at: float) -> bool:
        """Whether a rejection of ``sent`` is about the present membership."""
        return self.state in _MEMBER and sent == self.member_identity

    @property
    def _wanted(self) -> bool:
        return bool(self._topics) or self._regex is not None

    # --- changes by the user and the cluster -----------------------------------------------------

    def subscribe(self, now: float, topics: frozenset[str], regex: str | None = None) -> None:
        """Set the topics, or the ``regex`` (RE2) that the broker resolves (KIP-70)."""
        if (topics, regex) == (self._topics, self._regex):
            return
        self._topics, self._regex = topics, regex
        if not self._wanted:
            self._drop_all(now)
        elif self.state is MemberState.UNSUBSCRIBED:
            if not self._leaving and not self._idle:
                self._join(now)
        else:
            if self.state in _MEMBER:
                # All of it may be being revoked.
                self._reconcile(now)
            self._heartbeat.soon(now)

    def _drop_all(self, now: float) -> None:
        """Nothing is subscribed to: release everything, then leave."""
        if self.state is MemberState.JOINING:
            self._revocation.request_barrier()
        elif self.state in _MEMBER:
            self._assigned = frozenset()
            self._transition(MemberTransition.RECONCILE)
            self._revocation.request(now, self._assignment.live(), self._deadline(now, now))

    def rejoin(self, now: float, _reason: str) -> None:
        """Partitions were deleted. If they stay assigned, their topics exist again, or will."""
        self._unknown.expect()
        self._heartbeat.soon(now)

    def metadata_changed(self, now: float) -> None:
        """Topics or partitions have changed: they may have been assigned before."""
        if self.state in _MEMBER and self._unknown.are_assigned:
            self._reconcile(now)

    def metadata_refreshed(self, now: float) -> None:
        """Assigned topics may be known now; if not, ask again later."""
        self.metadata_changed(now)
        if self.state in _MEMBER:
            self._unknown.ask_later(now)

    def leave(self, now: float, *, wait_for_tasks: bool) -> None:
        """Release everything, then leave. Called again, it may stop waiting for tasks."""
        self._leaving = True
        self._assigned = frozenset()
        self._revocation.leave(now, wait_for_tasks=wait_for_tasks)

    def leave_now(self, now: float) -> None:
        """Leave, whatever is not released; ``group_left`` follows."""
        if self.state is not MemberState.LEAVING:
            self._send_leave(now)

    def set_sends_leave(self, leave: bool) -> None:
        """Whether closing removes the member from the group; by default if it is dynamic."""
        self._sends_leave = leave

    def stop_leaving(self, now: float) -> None:
        """Stop waiting for the response to the last heartbeat."""
        if self.state is MemberState.LEAVING:
            self._leave_overdue(now)

    def leave_idle(self, now: float) -> None:
        """``max_poll_interval`` is exceeded: leave until the loop asks for a batch."""
        if self._leaving or self.state in (MemberState.LEAVING, MemberState.FATAL):
            return
        self._idle = True
        self._assigned = frozenset()
        self._revocation.lose(now, self._assignment.live(), "max_poll_interval exceeded")
        self._send_leave(now)

    def poll_resumed(self, now: float) -> None:
        """The loop asks for a batch again."""
        if self._idle:
            self._idle = False
            if self.state is MemberState.UNSUBSCRIBED and self._wanted:
                self._join(now)

    def released(self, now: float, instance: PartitionInstance) -> None:
        """An instance has ended. If its partition is assigned again, another one begins."""
        if instance.partition in self._assigned and not self._leaving:
            self._reactions.partitions_added(now, self._assignment.add([instance.partition]))

    def barrier(self, now: float) -> None:
        """Nothing is being revoked, says ``Core.after_event``: leave, or acknowledge."""
        if self._leaving or not self._wanted:
            if self.state is not MemberState.LEAVING:
                self._send_leave(now)
        elif self.state is MemberState.RECONCILING:
            self._transition(MemberTransition.REVOCATION_COMPLETE)
            self._heartbeat.soon(now)

    # --- heartbeats ------------------------------------------------------------------------------

    def _transition(self, transition: MemberTransition) -> None:
        """Take a transition of the table; KeyError if the state does not have it."""
        self.state = MEMBER_TRANSITIONS[self.state, transition]

    def _join(self, now: float, *, after: float = 0.0) -> None:
        self._transition(MemberTransition.JOIN)
        self._epoch = JOIN_EPOCH
        self._outbox.emit(log_events.JOINING, reason="by a heartbeat")
        self._heartbeat.often(now + _OFTEN_AFTER_JOIN)
        self._heartbeat.start(now, after=after)

    def compose_heartbeat(self, full: bool) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat, with all fields if ``full``, as the last one may not have arrived.
        The subscription is sent when it has changed."""
        if self.state is MemberState.LEAVING or self._release_instance:
            for_good = self._sends_leave and not self._release_instance
            return self._short_heartbeat(LEAVE_EPOCH if for_good else LEAVE_STATIC_EPOCH)
        owned: tuple[TopicIdPartitions, ...] | None = None
        if self.state is MemberState.JOINING:
            self._known = True
            owned = ()
        elif full or self.state is MemberState.ACKNOWLEDGING:
            owned = self._owned()
        subscription = tuple(sorted(self._topics)), self._regex
        if not self._wanted and self._sent is not None:
            # The member leaves by another heartbeat.
            subscription = self._sent
        tells = full or subscription != self._sent
        topics, regex = subscription
        if regex is None and self._sent is not None and self._sent[1]:
            regex = ""
        self._sent = subscription
        return replace(
            self._short_heartbeat(self._epoch),
            rack=self._config.client_rack if full else None,
            rebalance_timeout=self._config.rebalance_timeout if full else None,
            topics=topics if tells else None,
            regex=regex if tells else None,
            assignor=self._config.server_assignor if full else None,
            owned=owned,
        )

    def _short_heartbeat(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat without fields that may change."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            group_instance_id=self._config.group_instance_id,
        )

    def _owned(self) -> tuple[TopicIdPartitions, ...]:
        return self._target.owned(self._assignment.partitions())

    def background_heartbeat(self) -> ConsumerGroupHeartbeatRequest | None:
        """A heartbeat for the thread, which keeps the membership and changes nothing."""
        return self._short_heartbeat(self._epoch) if self.state in _MEMBER else None

    def background_epoch(self, now: float, epoch: int) -> bool:
        """The heartbeat thread has received this epoch. Returns whether it is a new one."""
        if epoch <= self._epoch:
            return False
        self._epoch = epoch
        self._heartbeat.often(now + _OFTEN_AFTER_EPOCH)
        self._reactions.epoch_changed(now)
        return True

    def heartbeat_response_received(
        self, now: float, sent: ConsumerGroupHeartbeatRequest, sent_at: float, reply: Reply
    ) -> None:
        """The response to a heartbeat was received, or it has failed."""
        match reply:
            case ConsumerGroupHeartbeatResponse(error=error) if error in _MOVED:
                self._heartbeat.elsewhere(now, error.name)
            case ConsumerGroupHeartbeatResponse() if sent.member_epoch < JOIN_EPOCH:
                self._leave_response_received(now, reply)
            case ConsumerGroupHeartbeatResponse() if self.state is MemberState.LEAVING:
                self._heartbeat.soon(now)
            case ConsumerGroupHeartbeatResponse(error=ErrorCode.none, member_epoch=epoch) if (
                epoch < self._epoch
            ):
                # Older than the epoch that the thread got.
                self._heartbeat.send_full(now)
            case ConsumerGroupHeartbeatResponse(error=ErrorCode.none):
                self._confirmed(now, sent, sent_at, reply)
            case ConsumerGroupHeartbeatResponse(error=ErrorCode.fenced_member_epoch) if (
                sent.owned is None or sent.member_epoch < self._epoch
            ):
                # A request without a response may have changed the epoch: the coordinator accepts
                # the one before with all that is owned, which no other member has meanwhile.
                self._heartbeat.send_full(now)
            case ConsumerGroupHeartbeatResponse():
                self._handle_error(now, reply)
            case Failed(kind=FailureKind.UNSUPPORTED, detail=detail) if self._has_fallback:
                self._use_classic(now, detail)
            case Failed(kind=FailureKind.UNSUPPORTED, detail=detail):
                self.fail(now, consumer_protocol_not_sent(self._group_id, detail))
            case Failed(kind=FailureKind.AUTHENTICATION):
                self.fail(now, fatal_error(reply))
            case _:
                self._log.no_response(now, self._heartbeat.confirmed_at, self._heartbeat.session)
                self._heartbeat.no_response(now, reply)

    def _confirmed(
        self,
        now: float,
        sent: ConsumerGroupHeartbeatRequest,
        sent_at: float,
        reply: ConsumerGroupHeartbeatResponse,
    ) -> None:
        since = self._heartbeat.unconfirmed_since(sent_at)
        self._log.confirmed(now)
        if reply.member_id:
            self._member_id = reply.member_id
        moved = reply.member_epoch != self._epoch
        self._epoch = reply.member_epoch
        if moved:
            self._heartbeat.often(now + _OFTEN_AFTER_EPOCH)
        self._heartbeat.confirm(now, sent_at, reply.heartbeat_interval)
        # Not by one that was on its way when the last of it was released.
        if self.state is MemberState.ACKNOWLEDGING and sent.owned == self._owned():
            self._transition(MemberTransition.ACKNOWLEDGED)
        if reply.assignment is not None or self.state is MemberState.JOINING:
            if self._target.replace(reply.assignment or ()) or self.state is MemberState.JOINING:
                self._reconcile(now, since, news=True)
        else:
            self._unknown.ask(now)
        if moved:
            self._reactions.epoch_changed(now)

    def _reconcile(self, now: float, since: float | None = None, *, news: bool = False) -> None:
        """Start what the newest assignment adds, whose former owners have acknowledged its release,
        and revoke what it removes, from ``since`` on, before which nobody asked for it."""
        kept, usable, missing, internal = self._target.resolve(
            self._assignment.partitions(), self._topics
        )
        self._unknown.note(missing)
        self._log.not_read(internal)
        if news:
            self._unknown.assignment_changed(now)
        if self._leaving or not self._wanted:
            return
        live = self._assignment.live()
        going = [i for i in live if i.partition not in kept and not i.revoking]
        self._assigned = usable
        added = self._assignment.add(tp for tp in sorted(usable) if tp not in self._assignment)
        if news:
            self._log.assigned(self._epoch, kept, added=len(added), to_go=len(going))
        if news or going or added:
            self._transition(MemberTransition.RECONCILE)
            self._revocation.request_barrier()
        self._revocation.request(now, going, self._deadline(now, now if since is None else since))
        if added:
            self._reactions.partitions_added(now, added)

    def _deadline(self, now: float, since: float) -> float:
        """The coordinator fences a member that does not acknowledge in time."""
        fenced, own = since + self._config.rebalance_timeout, self._config.revoke_timeout
        return fenced if own is None else min(fenced, now + own)

    # --- errors --------------------------------------------------------------------------------

    def rebalance_seen(self, now: float) -> None:
        """The member epoch has changed: request it."""
        self._heartbeat.soon(now)

    def rejected(self, now: float, error: ErrorCode) -> None:
        """A commit has shown that the coordinator does not accept this membership any more."""
        if error is ErrorCode.fenced_instance_id:
            self.fail(now, consumer_group_error(error, "", self._config))
        else:
            self._fenced(now, f"the coordinator responds with {error.name}")

    def _handle_error(self, now: float, reply: ConsumerGroupHeartbeatResponse) -> None:
        error, joining = reply.error, self.state is MemberState.JOINING
        match heartbeat_action(error, joining=joining, has_fallback=self._has_fallback):
            case HeartbeatErrorAction.REJOIN:
                self._fenced(now, f"the coordinator responds with {error.name}")
            case HeartbeatErrorAction.USE_CLASSIC if self._has_fallback:
                self._use_classic(now, reply.detail)
            case HeartbeatErrorAction.USE_CLASSIC:
                self._heartbeat.ask_features(partial(self._features_received, reply.detail))
            case HeartbeatErrorAction.FAIL:
                self.fail(now, consumer_group_error(error, reply.detail, self._config))
            case action:
                if action is HeartbeatErrorAction.WAIT_FOR_INSTANCE_ID:
                    self._release_instance = True
                self._log.waiting(now, action.value, error.name, reply.detail)
                self._heartbeat.retry(now)

    def _fenced(self, now: float, reason: str) -> None:
        self._outbox.emit(log_events.MEMBERSHIP_LOST, reason=reason)
        self._forget(MemberTransition.FENCED)
        self._known = False
        self._revocation.lose(now, self._assignment.live(), reason)
        if self._leaving or not self._wanted:
            self._revocation.request_barrier()
        else:
            again = now - self._fenced_at < _FENCED_OFTEN
            self._fenced_at = now
            self._join(now, after=_FENCED_OFTEN if again else 0.0)

    def _features_received(self, detail: str, now: float, reply: Reply) -> None:
        """The features of the cluster say why it rejects the protocol."""
        if self.state not in (MemberState.UNSUBSCRIBED, MemberState.LEAVING, MemberState.FATAL):
            features = reply.features if isinstance(reply, ApiVersionsResponse) else None
            self.fail(now, no_consumer_protocol(self._group_id, detail, features))

    def _use_classic(self, now: float, detail: str) -> None:
        self._forget(MemberTransition.FENCED)
        self._known = False
        self._revocation.lose(now, self._assignment.live(), "the group protocol has changed")
        if self._leaving:
            self._revocation.request_barrier()
        else:
            self._reactions.group_protocol_unsupported(now, detail)

    def _forget(self, move: MemberTransition) -> None:
        """Stop heartbeats, and forget the assignment and the epoch."""
        self._heartbeat.stop()
        self._outbox.cancel_timer(_LEAVE_TIMER)
        self._target.replace(())
        self._assigned = frozenset()
        self._unknown.note({})
        self._release_instance = False
        self._sent = None
        self._epoch = JOIN_EPOCH
        self._transition(move)

    # --- leaving and failing ---------------------------------------------------------------------

    def _send_leave(self, now: float) -> None:
        silent = self._config.group_instance_id is None and not self._sends_leave
        if silent or not self._known or self.state in _NOT_THERE:
            self._left(now)
            return
        self._transition(MemberTransition.LEAVE)
        self._outbox.set_timer(_LEAVE_TIMER, now + _LEAVE_TIMEOUT, self._leave_overdue)
        self._heartbeat.soon(now)

    def _leave_response_received(self, now: float, reply: ConsumerGroupHeartbeatResponse) -> None:
        if self.state is MemberState.LEAVING:
            self._log.left(None if reply.error is ErrorCode.none else reply.error.name)
            self._left(now)
        else:
            self._release_instance = False
            self._heartbeat.retry(now)

    def _leave_overdue(self, now: float) -> None:
        """No response in time: the member is removed at its session timeout."""
        self._outbox.emit(log_events.LEFT_WITHOUT_COORDINATOR)
        self._left(now)

    def _left(self, now: float) -> None:
        if self.state not in (MemberState.UNSUBSCRIBED, MemberState.FATAL, MemberState.LEAVING):
            self._transition(MemberTransition.LEAVE)
        self._forget(MemberTransition.LEFT)
        self._known = False
        was_leaving, self._leaving = self._leaving, False
        self._revocation.membership_begins()
        if was_leaving:
            self._reactions.group_left(now)
        elif not self._idle and self._wanted and self.state is MemberState.UNSUBSCRIBED:
            self._join(now)

    def stop_sending(self) -> None:
        """Closing has taken too long: send nothing any more."""
        self._heartbeat.stop()
        self._outbox.cancel_timer(_LEAVE_TIMER)

    def fail(self, now: float, error: FatalError) -> None:
        """The consumer cannot go on: lose everything, and send nothing any more."""
        self._forget(MemberTransition.FAIL)
        self._revocation.lose(now, self._assignment.live(), str(error))
        if self._leaving:
            self._revocation.request_barrier()
        self._reactions.membership_failed(error)
