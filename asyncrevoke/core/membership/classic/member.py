"""Membership of a classic consumer group, EAGER and COOPERATIVE (KIP-429), in two steps (KIP-983).

Theory of operation. A member joins, syncs and is stable. When the group rebalances, an EAGER
member first releases everything and then joins with nothing; a COOPERATIVE one joins at once and
lists what it still holds. What the new assignment takes from it must then go: it drains while the
group is stable, and a follow-up join, owed from that moment, tells the group when it is released.
If another rebalance starts meanwhile we join at once and still list what is delayed. So we do by
ourselves, now and then, if some of it is released and some is not (see ``staged_release.py``).

Whatever the coordinator says about our membership is believed only if it is about the membership
that we have now (see ``is_verdict``): commits and heartbeats travel beside JoinGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.assignors.assignor import Assignor, RebalanceProtocol
from asyncrevoke.core.assignors.registry import choose_protocol
from asyncrevoke.core.io.effects import Failed
from asyncrevoke.core.io.wait_log import WaitLog
from asyncrevoke.core.membership.classic.assignment_user_data import decode_note
from asyncrevoke.core.membership.classic.fatal_errors import ASKED_AGAIN, refusal, unanswerable
from asyncrevoke.core.membership.classic.heartbeat import Heartbeat
from asyncrevoke.core.membership.classic.join_and_sync import JoinExchange
from asyncrevoke.core.membership.classic.leader import Leader, leading_again
from asyncrevoke.core.membership.classic.leave_group import LeaveExchange
from asyncrevoke.core.membership.classic.owned_and_assigned import OwnedAndGranted
from asyncrevoke.core.membership.classic.staged_rejoin import StagedRelease
from asyncrevoke.core.membership.classic.state_table import MOVES, Move, Phase
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
    from collections.abc import Callable, Sequence

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.outbox import Outbox
    from asyncrevoke.core.metadata.cluster import Cluster
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
    """One member of a classic group. The composer sets the callbacks and calls :meth:`barrier`."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        cluster: Cluster,
        coordinator: Coordinator,
        assignment: Assignment,
        revocation: Revocation,
        assignors: Sequence[Assignor],
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
        self._heartbeat = Heartbeat(outbox, config, coordinator, lambda: self.stamp)
        self._heartbeat.on_confirmed = self._confirmed
        self._heartbeat.on_rebalance = self._rebalance_told
        self._heartbeat.on_verdict = self._verdict_told
        self._heartbeat.on_refused = self._heartbeat_refused
        self._exchange = JoinExchange(outbox, config, coordinator)
        self._exchange.on_joined = self._join_answered
        self._exchange.on_synced = self._sync_answered
        self._exchange.on_unanswered = self._join_still_wanted
        self._exchange.on_refused = lambda now, failed: self.fail(now, unanswerable(failed))
        self._leave = LeaveExchange(outbox, config, coordinator, self._exchange)
        self._leave.on_ended = self._left
        # A static member keeps its place for its next start (KIP-345).
        self.tells_leaving = config.group_instance_id is None
        self.on_added: Callable[[float, list[PartitionInstance]], None] = lambda _now, _added: None
        self.on_ready: Callable[[float], None] = lambda _now: None
        self.on_left: Callable[[float], None] = lambda _now: None
        self.on_fatal: Callable[[float, FatalError], None] = lambda _now, _error: None
        self.on_group_topics: Callable[[float, frozenset[str]], None] = lambda _now, _topics: None
        self._phase = Phase.UNJOINED
        self._topics: frozenset[str] = frozenset()
        self._member_id = ""
        self._generation = -1
        self._protocol_name = ""
        self._leader = Leader(outbox, cluster)
        self._leader.on_topics = lambda now, t: self.on_group_topics(now, t)  # noqa: PLW0108
        self._leader.on_assigned = self._sync
        self._leader.on_failed = self.fail
        self._holdings = OwnedAndGranted(assignment)
        self._staged = StagedRelease(outbox, self._stage)
        # Whether the leader of the last assignment knows what a member without topics is.
        self._led_by_ours = False
        self._synced_at = float("-inf")
        self._synced_generation = -1
        # The term of the coordinator that gave us our id, until there was an assignment for it.
        self._unwritten_since: int | None = None
        self._rejoin_owed: str | None = None
        self._leaving = False
        self._idle = False

    # --- facts -----------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """Where this member is."""
        return self._phase

    @property
    def stamp(self) -> GroupMetadata:
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
        """While a JoinGroup is parked the broker still accepts the old generation; between join
        and sync it accepts none."""
        return self._generation >= 0 and self._phase in (
            Phase.STABLE,
            Phase.DRAIN,
            Phase.AWAIT_JOIN,
        )

    def is_verdict(self, sent: GroupMetadata, sent_at: float) -> bool:
        """Whether a refusal of ``sent`` is about our membership as it is now: the same identity,
        and no join or sync outstanding that may just have changed it at the broker. A coordinator
        that has moved may count to the same generation again, so that what was sent before the
        last sync does not tell."""
        return (
            sent == self.stamp
            and self._phase in (Phase.STABLE, Phase.DRAIN)
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
            self._holdings.drop(instance.partition for instance in dropped)
            self._revocation.request(now, dropped, self._own_deadline(now))

    def rejoin(self, now: float, reason: str) -> None:
        """Join (again) for a reason of our own, after what has to be released first."""
        match self._phase:
            case Phase.UNJOINED:
                if self._topics and not self._leaving and not self._idle:
                    self._start_join(now, reason)
            case Phase.STABLE:
                self._rejoin_owed = reason
                if self.eager:
                    self._revoke_all(now, self._own_deadline(now))
                self._move(Phase.STABLE, Move.DRAIN)
                self._revocation.barrier_due = True
                self._hand_over(now)
            case Phase.AWAIT_ID | Phase.AWAIT_JOIN | Phase.AWAIT_SYNC | Phase.DRAIN:
                self._rejoin_owed = reason
            case Phase.LEAVING | Phase.FATAL:
                pass

    def metadata_changed(self, now: float) -> None:
        """Topics or partitions have changed: a leader has to assign anew."""
        if self._leader.has_changed():
            self.rejoin(now, "the partitions of the group's topics have changed")

    def metadata_refreshed(self, now: float) -> None:
        """The cluster's answer is there that the leader may have waited for; or replicas have moved
        to other racks."""
        if self._phase is Phase.AWAIT_SYNC:
            self._leader.metadata_refreshed(now)
        elif self._phase is Phase.STABLE:
            self.metadata_changed(now)

    def leave(self, now: float, *, wait_for_tasks: bool) -> None:
        """Give everything up, then leave; ``on_left`` follows. A second call may stop waiting."""
        self._leaving = True
        self._holdings.grant_nothing()
        self._revocation.leave(now, wait_for_tasks=wait_for_tasks)
        if self._phase is Phase.STABLE:
            self._move(Phase.STABLE, Move.DRAIN)
        self._hand_over(now)

    def leave_now(self, now: float) -> None:
        """Leave, whatever the group still owes us; ``on_left`` follows."""
        if self._phase is not Phase.LEAVING:
            self._send_leave(now)

    def stop_leaving(self, now: float) -> None:
        """No coordinator confirms that we leave; ``on_left`` follows at once."""
        if self._phase is Phase.LEAVING:
            self._leave.stop_waiting(now)

    def leave_idle(self, now: float) -> None:
        """The loop has not asked for a batch for too long: hand everything over until it does."""
        if self._leaving or self._phase in (Phase.LEAVING, Phase.FATAL):
            return
        self._idle = True
        self._revocation.lose(now, self._assignment.live(), "max_poll_interval exceeded")
        self._holdings.grant_nothing()
        self._send_leave(now)

    def wake(self, now: float) -> None:
        """The loop asks for a batch again."""
        if self._idle:
            self._idle = False
            self.rejoin(now, "the loop asks for records again")

    def released(self, now: float, instance: PartitionInstance) -> None:
        """An instance has ended. If the group has given its partition back meanwhile, it is a
        new assignment to us."""
        if instance.partition in self._holdings.granted and not self._leaving:
            self.on_added(now, self._assignment.add([instance.partition]))
        self._hand_over(now)

    def barrier(self, now: float) -> None:
        """Nothing is between being requested and being released or lost."""
        if self._leaving:
            unasked = self._phase is Phase.AWAIT_ID and not self._exchange.outstanding
            if unasked or self._phase in (
                Phase.STABLE,
                Phase.DRAIN,
                Phase.AWAIT_JOIN,
                Phase.UNJOINED,
                Phase.FATAL,
            ):
                self._send_leave(now)
        elif self._phase is Phase.DRAIN:
            if self._topics:
                self._start_join(now, self._rejoin_owed or "partitions were released")
            else:
                # An empty subscription must not be sent: some leaders assign anything to it.
                self._send_leave(now)

    # --- handing over ----------------------------------------------------------------------------

    def _hand_over(self, now: float) -> None:
        """Plan a staged join if something was released that the group believes to be ours."""
        if self._may_join_draining and self._holdings.released:
            self._staged.released(now)

    def _stage(self, now: float) -> None:
        if self._may_join_draining and self._holdings.released and not self._revocation.at_barrier:
            self._start_join(now, "some partitions were released")

    @property
    def _may_join_draining(self) -> bool:
        """Whether a join may tell the group what still drains.

        A member that stops joins without topics, which only a leader of ours takes for what it
        is; a static one keeps what it has for its next life.
        """
        if self._phase is not Phase.DRAIN or self.eager:
            return False
        if self._leaving:
            return self._led_by_ours and self._config.group_instance_id is None
        return bool(self._topics)

    # --- joining ---------------------------------------------------------------------------------

    def _move(self, expected: Phase, move: Move) -> None:
        """Take a move of the table. ``expected`` is where the caller believes we are."""
        if self._phase is not expected:
            raise AssertionError(f"{move.name} from {expected}, but the phase is {self._phase}")
        self._phase = MOVES[expected, move]

    def _start_join(self, now: float, reason: str) -> None:
        owned = () if self.eager else tuple(sorted(self._assignment.partitions()))
        topics = () if self._leaving else tuple(sorted(self._topics))
        self._holdings.told(owned, self._topics)
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
        self._move(self._phase, Move.JOIN if self._member_id else Move.ASK_ID)
        self._outbox.emit("info", "joining", group=self._group_id, reason=reason)
        self._log.watch(
            now,
            _GROUP,
            "waiting for the group: its other members have to rejoin, or one that has vanished "
            "to time out",
            lambda: {"group": self._group_id, "phase": self._phase.value},
        )
        self._exchange.join(now, request, known=self._generation >= 0)

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

    def _join_still_wanted(self, now: float) -> bool:
        if self._leaving and self._phase is Phase.AWAIT_ID:
            self._left(now)
            return False
        return True

    def _join_answered(self, now: float, reply: JoinGroupResponse) -> None:
        match reply.error:
            case ErrorCode.none:
                self._joined(now, reply)
            case ErrorCode.member_id_required:
                self._member_id = reply.member_id
                if self._leaving:
                    self._send_leave(now)
                else:
                    self._move(Phase.AWAIT_ID, Move.JOIN)
                    self._exchange.join_with_id(now, reply.member_id)
            case ErrorCode.unknown_member_id:
                self._evicted(now, "the coordinator does not know this member", keep_id=False)
            case ErrorCode.fenced_instance_id if self._is_unwritten:
                self._evicted(now, "the coordinator knows a former self of ours", keep_id=False)
            case error if error in _MOVED:
                self._exchange.join_elsewhere(now, error.name)
            case error if error.retriable or error in ASKED_AGAIN:
                if error is ErrorCode.coordinator_load_in_progress:
                    self._coordinator.loads()
                self._exchange.join_later(now, error.name)
            case error:
                self.fail(now, self._refusal(error))

    def _joined(self, now: float, reply: JoinGroupResponse) -> None:
        dynamic = self._config.group_instance_id is None
        if dynamic and not reply.leader and reply.generation != self._generation:
            self._joined_a_coordinator(now)
        if reply.member_id != self._member_id:
            self._unwritten_since = self._coordinator.term
        self._member_id = reply.member_id
        self._generation = reply.generation
        self._move(self._phase, Move.JOINED)
        self._heartbeat.start(now)
        assignor = self._assignors.get(reply.protocol_name or "")
        if assignor is None:
            self.fail(now, self._refusal(ErrorCode.inconsistent_group_protocol))
            return
        self._protocol_name = assignor.name
        us = JoinGroupMember(
            member_id=reply.member_id,
            group_instance_id=self._config.group_instance_id,
            metadata=dict(self._exchange.offered).get(assignor.name, b""),
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
            self._sync(now, ())

    @property
    def _is_unwritten(self) -> bool:
        """Whether a coordinator gave a static member its id, and another one may not know it."""
        return self._unwritten_since not in (None, self._coordinator.term)

    def _joined_a_coordinator(self, now: float) -> None:
        """A coordinator that assigns takes a member that it has put out for a new one of the same
        id, and does not say so: after a session without an answer others may have what we hold."""
        if self._heartbeat.may_be_put_out(now):
            self._holdings.grant_nothing()
            reason = "joined again after more than a session without an answer"
            self._revocation.lose(now, self._assignment.live(), reason)

    # --- syncing ---------------------------------------------------------------------------------

    def _sync(self, now: float, assignments: tuple[tuple[str, bytes], ...]) -> None:
        self._exchange.sync(
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

    def _sync_answered(self, now: float, sent_at: float, reply: SyncGroupResponse | None) -> None:
        if self._phase is not Phase.AWAIT_SYNC:
            return
        if reply is None:
            self._unsynced(now, "SyncGroup had no answer")
            return
        match reply.error:
            case ErrorCode.none:
                self._heartbeat.confirm(sent_at)
                self._synced_at, self._synced_generation = now, self._generation
                self._unwritten_since = None
                self._synced(now, reply.assignment)
            case ErrorCode.unknown_member_id:
                self._evicted(now, "removed from the group before the sync", keep_id=False)
            case ErrorCode.illegal_generation:
                self._evicted(now, "the group moved on before the sync", keep_id=True)
            case error if error in _REFUSED:
                self.fail(now, self._refusal(error))
            case error:
                if error in _MOVED:
                    why = f"SyncGroup: {error.name}"
                    self._coordinator.unknown(now, why, self._exchange.asked)
                elif error is ErrorCode.coordinator_load_in_progress:
                    self._coordinator.loads()
                self._unsynced(now, error.name, error)

    def _unsynced(self, now: float, why: str, error: ErrorCode | None = None) -> None:
        """Back from the sync to a join."""
        if error is not ErrorCode.rebalance_in_progress:
            # Also when leaving: no other coordinator takes commits of this generation.
            self._move(Phase.AWAIT_SYNC, Move.JOIN)
            at_once = error is None or error in _MOVED
            self._exchange.join_again(now, self._member_id, why, at_once=at_once)
        elif self._leaving:
            # Nothing of this generation is ours; what we hold drains and is committed.
            self._move(Phase.AWAIT_SYNC, Move.DRAIN)
            self._revocation.barrier_due = True
            self.on_ready(now)
        else:
            self._start_join(now, "the group rebalances")

    def _synced(self, now: float, data: bytes) -> None:
        try:
            assigned, note_data = decode_assignment(data)
        except MalformedMemberData as error:
            self.fail(now, FatalError(f"the leader's assignment cannot be read: {error}"))
            return
        self._move(Phase.AWAIT_SYNC, Move.SYNCED)
        self._log.forget(_GROUP)
        self._staged.synced(now)
        note = decode_note(note_data)
        self._led_by_ours = note is not None
        self._revocation.successors_read_maps(note is not None and note.maps_are_read)
        if self._leaving:
            # Added partitions are released unseen; what we held is on its way out already.
            self._holdings.refuse(assigned)
            self._move(Phase.STABLE, Move.DRAIN)
            self._revocation.barrier_due = True
            self._hand_over(now)
            self.on_ready(now)
            return
        if self._leader.has_missed(note):
            self._rejoin_owed = "the partitions of the group's topics have changed"
        change = self._holdings.assigned(assigned, self._topics)
        if change.stray:
            topics = ", ".join(change.stray)
            self._rejoin_owed = f"assigned topics that we did not subscribe to: {topics}"
        for instance in change.withdrawn:
            self._revocation.withdraw(instance)
        added = self._holdings.add_granted()
        self._outbox.emit(
            "info",
            "assigned",
            group=self._group_id,
            generation=self._generation,
            partitions=[f"{tp.topic}-{tp.partition}" for tp in sorted(self._holdings.granted)],
            added=len(added),
            to_go=len(change.must_go),
        )
        if change.must_go or self._rejoin_owed or (self.eager and change.going):
            # Owed even if all of it was released while the JoinGroup was parked: until we join
            # again the group believes that we hold it, and nobody gets it.
            self._move(Phase.STABLE, Move.DRAIN)
            self._revocation.barrier_due = True
        if self.eager and self._rejoin_owed:
            self._revoke_all(now, self._own_deadline(now))
        self._revocation.request(now, change.going, self._own_deadline(now))
        awaits_more = not self._holdings.granted or (note is not None and note.withheld)
        self._heartbeat.often = awaits_more or self._phase is Phase.DRAIN
        self._heartbeat.rebalanced(now)
        self._hand_over(now)
        if added:
            self.on_added(now, [instance for instance in added if not instance.terminal])
        self.on_ready(now)

    # --- rebalances and verdicts -----------------------------------------------------------------

    def rebalance_seen(self, now: float) -> None:
        """The coordinator says that the group prepares a rebalance."""
        if self._phase is Phase.STABLE and self.eager:
            self._revoke_all(now, self._group_deadline(now))
            self._move(Phase.STABLE, Move.DRAIN)
        elif self._phase is Phase.DRAIN and self.eager:
            self._revocation.tighten(self._group_deadline(now))
        elif self._phase is Phase.AWAIT_SYNC and self._leader.is_computing:
            self._leader.resign()
            self._unsynced(now, "the group rebalances", ErrorCode.rebalance_in_progress)
        elif self._phase is Phase.AWAIT_SYNC:
            # The sync is over, and its answer on its way or lost.
            self._exchange.doubt(now)
        elif self._phase in (Phase.STABLE, Phase.DRAIN):
            if self._phase is Phase.STABLE or self._may_join_draining:
                self._start_join(now, "the group rebalances")
            else:
                self._revocation.tighten(self._group_deadline(now))

    def refused(self, now: float, error: ErrorCode) -> None:
        """A true verdict: the coordinator does not accept our membership any more."""
        if error is ErrorCode.fenced_instance_id:
            self.fail(now, self._refusal(ErrorCode.fenced_instance_id))
        else:
            self._evicted(
                now,
                f"the coordinator answers {error.name}",
                keep_id=error is ErrorCode.illegal_generation,
            )

    def _confirmed(self, now: float, sent: GroupMetadata) -> None:
        if self._phase is Phase.AWAIT_SYNC and sent == self.stamp:
            # The others may be at work long ago, with our assignment lost on its way. Who has made
            # the assignment waits for nobody.
            if self._leader.leads:
                self._exchange.doubt(now)
            else:
                self._exchange.doubt(now, _LONG_SYNC)

    def _rebalance_told(self, now: float, sent: GroupMetadata) -> None:
        if sent == self.stamp:
            self.rebalance_seen(now)

    def _verdict_told(
        self, now: float, sent: GroupMetadata, sent_at: float, error: ErrorCode
    ) -> None:
        if self.is_verdict(sent, sent_at):
            self.refused(now, error)
        elif sent == self.stamp and self._phase in (Phase.AWAIT_JOIN, Phase.AWAIT_SYNC):
            self._refused_amid_join(now, error)

    def _refused_amid_join(self, now: float, error: ErrorCode) -> None:
        """A coordinator that has moved knows us by the generation that was assigned last: by it
        we stay a member, and may commit, while the others are waited for."""
        if (
            error is ErrorCode.illegal_generation
            and self._phase is Phase.AWAIT_JOIN
            and 0 <= self._synced_generation < self._generation
        ):
            self._generation = self._synced_generation
            self._heartbeat.soon(now)
            self.on_ready(now)
        else:
            self._exchange.doubt(now)

    def _heartbeat_refused(self, now: float, why: ErrorCode | Failed) -> None:
        self.fail(now, unanswerable(why) if isinstance(why, Failed) else self._refusal(why))

    def _evicted(self, now: float, reason: str, *, keep_id: bool) -> None:
        self._outbox.emit("warning", "membership lost", group=self._group_id, reason=reason)
        self._forget_join()
        self._generation = self._synced_generation = -1
        if not keep_id:
            self._member_id = ""
            self._unwritten_since = None
        self._holdings.grant_nothing()
        self._phase = MOVES[self._phase, Move.RESET]
        self._revocation.lose(now, self._assignment.live(), reason)
        if self._leaving:
            self._revocation.barrier_due = True
        elif self._topics and not self._idle:
            self._start_join(now, reason)

    def _revoke_all(self, now: float, deadline: float) -> None:
        self._holdings.grant_nothing()
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
        self._exchange.cancel()
        self._leave.cancel()
        self._stop()

    def _stop(self) -> None:
        self._log.forget(_GROUP)
        self._heartbeat.stop()
        self._staged.cancel()
        self._leader.resign()

    def _send_leave(self, now: float) -> None:
        known = self._member_id or (self._phase is Phase.AWAIT_ID and self._exchange.outstanding)
        if not known or not self.tells_leaving or self._phase is Phase.FATAL:
            self._forget_join()
            self._left(now)
            return
        self._stop()
        self._phase = MOVES[self._phase, Move.LEAVE]
        why = "the consumer is idle" if self._idle else "the consumer is closing"
        self._leave.leave(now, self._member_id, why)

    def _left(self, now: float) -> None:
        self._phase = MOVES[self._phase, Move.LEFT]
        self._member_id = ""
        self._generation = self._synced_generation = -1
        was_leaving, self._leaving = self._leaving, False
        self._revocation.rejoined()
        if was_leaving:
            self.on_left(now)
        elif not self._idle and self._topics:
            self._start_join(now, "topics to read have appeared")

    def abandon(self) -> None:
        """Closing has taken too long: send nothing any more."""
        self._forget_join()

    def fail(self, now: float, error: FatalError) -> None:
        """The consumer cannot go on: everything is lost, and nothing is sent any more."""
        self._forget_join()
        self._phase = MOVES[self._phase, Move.FAIL]
        self._holdings.grant_nothing()
        self._revocation.lose(now, self._assignment.live(), str(error))
        self._revocation.barrier_due = self._revocation.barrier_due or self._leaving
        self.on_fatal(now, error)

    def _refusal(self, error: ErrorCode) -> FatalError:
        return refusal(error, self._config, self._assignors)
