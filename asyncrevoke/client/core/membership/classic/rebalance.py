"""One rebalance of a member: JoinGroup, the assignment if it leads, SyncGroup.

Composes JoinGroup, and decides what follows from responses; ``join_and_sync.py`` sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.fatal_error import fatal_error
from asyncrevoke.client.core.io.wait_log import WaitLog
from asyncrevoke.client.core.membership.classic.assignment_user_data import (
    decode_assignment_user_data,
)
from asyncrevoke.client.core.membership.classic.error_table import (
    SYNC_ERRORS,
    JoinErrorAction,
    SyncErrorAction,
    join_action,
)
from asyncrevoke.client.core.membership.classic.join_and_sync import LONGEST_STORE, JoinAndSync
from asyncrevoke.client.core.membership.classic.leader.group_leader import (
    GroupLeader,
    leading_again,
)
from asyncrevoke.client.core.membership.classic.state_table import ClassicState, ClassicTransition
from asyncrevoke.client.core.membership.classic.subscription_user_data import (
    LastAssignment,
    user_data,
)
from asyncrevoke.client.core.membership.fatal_errors import group_error, no_common_assignor
from asyncrevoke.client.core.membership.received_assignment import (
    ReceivedAssignment,
    read_assignment,
)
from asyncrevoke.client.protocol.messages import (
    DescribeGroupsResponse,
    ErrorCode,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from asyncrevoke.client.protocol.subscription import Subscription, encode_subscription

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.assignors.assignor import Assignor
    from asyncrevoke.client.core.io.effects import Failed
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.membership.classic.heartbeat import ClassicHeartbeat
    from asyncrevoke.client.core.membership.classic.identity import ClassicIdentity
    from asyncrevoke.client.core.membership.classic.reactions import RebalanceReactions
    from asyncrevoke.client.core.membership.reactions import MembershipReactions
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.metadata.coordinator import Coordinator
    from asyncrevoke.client.core.partition.revocation import Revocation
    from asyncrevoke.client.errors import FatalError
    from asyncrevoke.client.model import TopicPartition

_GROUP = "group"


class MemberRebalance:
    """Takes one member from JoinGroup to its assignment. ``requests`` sends JoinGroup and
    SyncGroup; ``leader`` makes the assignment of the group if this member leads it."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        cluster: ClusterMetadata,
        coordinator: Coordinator,
        revocation: Revocation,
        assignors: Mapping[str, Assignor],
        identity: ClassicIdentity,
        heartbeat: ClassicHeartbeat,
        member: RebalanceReactions,
        reactions: MembershipReactions,
    ) -> None:
        self._outbox = outbox
        self._log = WaitLog(outbox)
        self._config = config
        self._cluster = cluster
        self._coordinator = coordinator
        self._revocation = revocation
        self._assignors = assignors
        self._identity = identity
        self._heartbeat = heartbeat
        self._member = member
        self._reactions = reactions
        self._group_id = config.group_id or ""
        self._protocol_name = ""
        self._reason = ""
        self._last_assignment = LastAssignment()
        self.requests = JoinAndSync(outbox, config, coordinator, self)
        self.leader = GroupLeader(outbox, cluster, self, reactions)

    # --- joining ---------------------------------------------------------------------------------

    def join(self, now: float, reason: str) -> None:
        """Send JoinGroup when the coordinator is known."""
        identity = self._identity
        self._reason = reason
        identity.transition(
            identity.state,
            ClassicTransition.JOIN if identity.member_id else ClassicTransition.ASK_ID,
        )
        self._outbox.emit(log_events.JOINING, group=self._group_id, reason=reason)
        self._log.watch(now, _GROUP, log_events.WAITING_FOR_OTHER_MEMBERS, self._waiting_for_group)
        self.requests.join(now, known=identity.generation >= 0)

    def compose_join(self) -> JoinGroupRequest:
        """See :class:`.reactions.JoinReactions`."""
        topics = () if self._member.is_leaving else tuple(sorted(self._member.topics))
        owned = self._member.report_owned()
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout=self._config.session_timeout,
            rebalance_timeout=self._config.rebalance_timeout,
            member_id=self._identity.member_id,
            group_instance_id=self._config.group_instance_id,
            protocols=tuple(
                (name, self._subscription(assignor, topics, owned))
                for name, assignor in self._assignors.items()
            ),
            reason=self._reason,
        )

    def _waiting_for_group(self) -> dict[str, object] | None:
        if self._coordinator.node is None:
            return None
        return {"group": self._group_id, "phase": self._identity.state.value}

    def _subscription(
        self, assignor: Assignor, topics: tuple[str, ...], owned: tuple[TopicPartition, ...]
    ) -> bytes:
        generation = self._identity.generation
        return encode_subscription(
            Subscription(
                topics=topics,
                owned=owned,
                generation=generation,
                rack=self._config.client_rack,
                user_data=user_data(
                    assignor, generation, owned, self._last_assignment, self._config
                ),
            )
        )

    def no_join_response(self, now: float) -> bool:
        """See :class:`.reactions.JoinReactions`, as for the other responses."""
        if self._member.is_leaving and self._identity.state is ClassicState.AWAIT_ID:
            self._member.leave_ended(now)
            return False
        return True

    def join_response_received(self, now: float, reply: JoinGroupResponse) -> None:
        """The coordinator has responded to JoinGroup."""
        if reply.error is ErrorCode.none:
            self._joined(now, reply)
            return
        error, term = reply.error, self._coordinator.term
        unwritten = self._identity.is_member_id_unwritten(term)
        match join_action(error, is_id_unwritten=unwritten):
            case JoinErrorAction.USE_MEMBER_ID:
                self._member_id_given(now, reply.member_id)
            case JoinErrorAction.REJOIN:
                why = "the coordinator does not know this member"
                self._member.evicted(now, why, keep_id=False)
            case JoinErrorAction.FIND_COORDINATOR:
                self.requests.join_elsewhere(now, error.name)
            case JoinErrorAction.WAIT_FOR_LOADING:
                self._coordinator.note_loading()
                self.requests.join_later(now, error.name)
            case JoinErrorAction.RETRY:
                self.requests.join_later(now, error.name)
            case JoinErrorAction.FAIL if error is ErrorCode.inconsistent_group_protocol:
                self.requests.describe_group(now, self._group_id)
            case JoinErrorAction.FENCED | JoinErrorAction.FAIL:
                self._fail(now, error)

    def group_described(self, now: float, group: DescribeGroupsResponse | None) -> None:
        """See :class:`.reactions.JoinReactions`, as for the other responses."""
        self._member.fail(now, no_common_assignor(self._group_id, self._assignors, group))

    def _member_id_given(self, now: float, member_id: str) -> None:
        self._identity.set_member_id(member_id)
        if self._member.is_leaving:
            self._member.send_leave(now)
        else:
            self._identity.transition(ClassicState.AWAIT_ID, ClassicTransition.JOIN)
            self.requests.join_with_id(now, member_id)

    def _joined(self, now: float, reply: JoinGroupResponse) -> None:
        identity = self._identity
        dynamic = self._config.group_instance_id is None
        if dynamic and not reply.leader and reply.generation != identity.generation:
            self._joined_a_coordinator(now)
        identity.joined(reply.member_id, reply.generation, self._coordinator.term)
        identity.transition(identity.state, ClassicTransition.JOINED)
        self._heartbeat.start(now)
        assignor = self._assignors.get(reply.protocol_name or "")
        if assignor is None:
            self._fail(now, ErrorCode.inconsistent_group_protocol)
            return
        self._protocol_name = assignor.name
        us = JoinGroupMember(
            member_id=reply.member_id,
            group_instance_id=self._config.group_instance_id,
            metadata=dict(self.requests.offered).get(assignor.name, b""),
        )
        if reply.leader == reply.member_id:
            self.leader.lead(now, assignor, reply)
        elif (again := leading_again(reply, us)) is not None:
            self.leader.lead(now, assignor, again)
        else:
            if reply.leader:
                self.leader.resign()
            else:
                self.leader.watch_topics(self._member.topics)
            self.assignment_made(now, ())

    def _joined_a_coordinator(self, now: float) -> None:
        """A coordinator that assigns takes a removed member for a new one of the same id, and does
        not say so: after a session without a response, others may have its partitions."""
        if self._heartbeat.may_be_evicted(now):
            self._member.lose_partitions(
                now, "joined again after more than a session without a response"
            )

    # --- syncing ---------------------------------------------------------------------------------

    def assignment_made(self, now: float, assignments: tuple[tuple[str, bytes], ...]) -> None:
        """Send SyncGroup with the assignment if this member leads, or with nothing."""
        self.requests.sync(
            now,
            SyncGroupRequest(
                group_id=self._group_id,
                generation=self._identity.generation,
                member_id=self._identity.member_id,
                group_instance_id=self._config.group_instance_id,
                protocol_name=self._protocol_name,
                assignments=assignments,
            ),
        )

    def assignment_failed(self, now: float, error: FatalError) -> None:
        """This member leads, and cannot assign."""
        self._member.fail(now, error)

    def sync_response_received(
        self, now: float, sent_at: float, reply: SyncGroupResponse | None
    ) -> None:
        """The coordinator has responded to SyncGroup, or has not."""
        if self._identity.state is not ClassicState.AWAIT_SYNC:
            return
        if reply is None:
            self._join_same_generation(now, "SyncGroup had no response", at_once=True)
        elif reply.error is ErrorCode.none:
            self._heartbeat.confirm(sent_at)
            self._identity.synced(now)
            self._synced(now, reply.assignment)
        else:
            self._sync_failed(now, reply.error)

    def _sync_failed(self, now: float, error: ErrorCode) -> None:
        match SYNC_ERRORS.get(error, SyncErrorAction.RETRY):
            case SyncErrorAction.REJOIN:
                self._member.evicted(now, "removed from the group before the sync", keep_id=False)
            case SyncErrorAction.REJOIN_WITH_ID:
                self._member.evicted(now, "the group moved on before the sync", keep_id=True)
            case SyncErrorAction.REBALANCE:
                self._join_next_generation(now)
            case SyncErrorAction.FIND_COORDINATOR:
                self._coordinator.mark_unknown(
                    now, f"SyncGroup: {error.name}", self.requests.sent_to
                )
                self._join_same_generation(now, error.name, at_once=True)
            case SyncErrorAction.WAIT_FOR_LOADING:
                self._coordinator.note_loading()
                self._join_same_generation(now, error.name, at_once=False)
            case SyncErrorAction.RETRY:
                self._join_same_generation(now, error.name, at_once=False)
            case SyncErrorAction.FAIL:
                self._fail(now, error)

    def _join_same_generation(self, now: float, why: str, *, at_once: bool) -> None:
        """Request the assignment of this generation by the JoinGroup that has led to it."""
        # Also when leaving: no other coordinator accepts commits of this generation.
        self._identity.transition(ClassicState.AWAIT_SYNC, ClassicTransition.JOIN)
        self.requests.join_again(now, self._identity.member_id, why, at_once=at_once)

    def _join_next_generation(self, now: float) -> None:
        """The group rebalances again: this generation gets no assignment."""
        if self._member.is_leaving:
            # This generation assigns nothing; what is still assigned drains and is committed.
            self._identity.transition(ClassicState.AWAIT_SYNC, ClassicTransition.REVOKE)
            self._revocation.request_barrier()
            self._reactions.membership_ready(now)
        else:
            self._member.start_join(now, "the group rebalances")

    def _synced(self, now: float, data: bytes) -> None:
        received = read_assignment(data, self._member.topics, self._cluster)
        self._log_invalid(received)
        self._identity.transition(ClassicState.AWAIT_SYNC, ClassicTransition.SYNCED)
        self._log.forget(_GROUP)
        self._last_assignment = LastAssignment(self._identity.generation, received.partitions)
        decoded = decode_assignment_user_data(received.user_data)
        self._member.assignment_received(now, received.partitions, decoded)

    def _log_invalid(self, received: ReceivedAssignment) -> None:
        if received.unreadable is not None:
            self._outbox.emit(
                log_events.ASSIGNMENT_NOT_DECODED, group=self._group_id, problem=received.unreadable
            )
        elif received.ignored is not None:
            self._outbox.emit(
                log_events.ASSIGNMENT_PARTLY_INVALID, group=self._group_id, problem=received.ignored
            )

    # --- heartbeats and commits meanwhile --------------------------------------------------------

    def rebalance_seen(self, now: float) -> None:
        """The coordinator prepares another rebalance before its response to SyncGroup."""
        if self.leader.is_computing:
            self.leader.resign()
            self._join_next_generation(now)
        else:
            # The sync is over, and its response on its way or lost. Before Apache Kafka 2.7, or so
            # long as a coordinator stores the assignment, the sync may be under way.
            self.requests.expect_response(now, LONGEST_STORE)

    def heartbeat_confirmed(self, now: float) -> None:
        """A heartbeat of this generation was confirmed before the response to SyncGroup."""
        # The others may have their assignments, and this one be lost. Or the leader has not made
        # the assignment yet, or the coordinator stores it: as long as a commit may take.
        self.requests.expect_response(now, self._outbox.silence_timeout + LONGEST_STORE)

    def heartbeat_rejected(self, now: float, error: ErrorCode) -> None:
        """A coordinator that has moved knows this member by the last synced generation: with it,
        it stays a member and may commit, while the coordinator waits for the others."""
        if (
            error is ErrorCode.illegal_generation
            and self._identity.state is ClassicState.AWAIT_JOIN
            and self._identity.return_to_synced_generation()
        ):
            self._heartbeat.soon(now)
            self._reactions.membership_ready(now)
        else:
            self.requests.expect_response(now)

    def request_failed(self, now: float, failed: Failed) -> None:
        """The consumer cannot go on."""
        self._member.fail(now, fatal_error(failed))

    # --- the end ---------------------------------------------------------------------------------

    def _fail(self, now: float, error: ErrorCode) -> None:
        self._member.fail(now, group_error(error, self._config, self._assignors))

    def stop(self) -> None:
        """The member takes part in no rebalance now."""
        self._log.forget(_GROUP)
        self.leader.resign()
