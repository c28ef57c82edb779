"""Calls all oracles for the events of a run, and checks at its end what must hold then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.brokers.coordinator_events import CoordinatorEvents
from simulation.invariants.evictions import Evictions
from simulation.invariants.liveness.busy_loop_oracle import BusyLoopOracle
from simulation.invariants.liveness.call_oracle import CallOracle
from simulation.invariants.liveness.silence_oracle import SilenceOracle
from simulation.invariants.liveness.stall_oracle import StallOracle
from simulation.invariants.oracle_state import MemberView, OracleState, Violation
from simulation.invariants.ownership.follow_up_oracle import FollowUpOracle
from simulation.invariants.ownership.notice_oracle import NoticeOracle
from simulation.invariants.ownership.ownership_oracle import OwnershipOracle
from simulation.invariants.ownership.request_oracle import RequestOracle
from simulation.invariants.records.commit_oracle import CommitOracle
from simulation.invariants.records.delivery_oracles import DeliveryOracles
from simulation.invariants.records.lifespan_oracle import LifespanOracle
from simulation.invariants.responses import Responses
from simulation.members.application_events import ApplicationEvents
from simulation.members.member import CoreObserver, SimulatedMember

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import (
    BackgroundHeartbeat,
    BackgroundHeartbeatReply,
    CompleteRequest,
    Effect,
    Emit,
    Event,
    Failed,
    Notify,
    Replied,
    Send,
    SetTimer,
    TimerFired,
)
from asyncrevoke.client.errors import FencedInstanceError, InconsistentGroupError, PartitionsError
from asyncrevoke.testing.fake_kafka.group_state import GroupState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simulation.members.lifespans import StoredState

    from asyncrevoke.client.model import OffsetAndMetadata, PollResult, Record, TopicPartition
    from asyncrevoke.client.protocol.messages import Request


class InvariantChecker(CoreObserver, ApplicationEvents, CoordinatorEvents):
    """Raises :class:`OwnershipViolation` as soon as an invariant does not hold.

    Each oracle uses only those that are made before it: decisions and work first, then requests.
    """

    def __init__(self, state: OracleState) -> None:
        self.state = state
        self.deliveries = DeliveryOracles(state)
        self._evictions = Evictions(state)
        self._lifespans = LifespanOracle(state, self.deliveries)
        self._ownership = OwnershipOracle(state, self._evictions, self.deliveries)
        self._follow_ups = FollowUpOracle(state, self._evictions)
        self._acknowledgements = CommitOracle(state)
        self._notices = NoticeOracle(
            state, self._evictions, self._follow_ups, self.deliveries, self._acknowledgements
        )
        self._responses = Responses(state, self._evictions, self._follow_ups, self.deliveries)
        self._calls = CallOracle(state)
        self._requests = RequestOracle(state, self._follow_ups, self._calls)
        self._busy_loops = BusyLoopOracle(state)
        self._stalls = StallOracle(state)
        self._silence = SilenceOracle(state)
        self.loads = 0

    def admit(self, member: SimulatedMember) -> None:
        """A member comes into the world."""
        eager = (
            member.config.assignors[0] != "cooperative-sticky" or len(member.config.assignors) > 1
        )
        self.state.views[member.client] = MemberView(member, eager)

    def _view(self, member: SimulatedMember) -> MemberView:
        return self.state.views[member.client]

    # --- the core --------------------------------------------------------------------------------

    def before(self, member: SimulatedMember, event: Event) -> None:
        """An event is about to enter a core."""
        if isinstance(event, (Replied, Failed)):
            if not isinstance(event, Replied) or type(event.message).__name__ != "FetchResponse":
                self.state.note(member.client, event)
            self._responses.received(self._view(member), event)
        elif isinstance(event, BackgroundHeartbeatReply):
            self.state.note(member.client, event)
            self.state.counts["heartbeats of threads"] += 1
            self._responses.thread_received(self._view(member), event)
        elif isinstance(event, TimerFired):
            self._busy_loops.fired(member, event.key)

    def effect(self, member: SimulatedMember, effect: Effect) -> None:
        """An effect leaves a core."""
        self.state.fold(member.client, effect)
        view = self._view(member)
        match effect:
            case Send():
                self._requests.sent(view, effect)
                if type(effect.message).__name__ != "FetchRequest":
                    self.state.note(member.client, effect)
            case BackgroundHeartbeat(heartbeat_id=heartbeat_id, message=message):
                view.background_heartbeats[heartbeat_id] = message
            case Notify():
                self.state.note(member.client, effect)
                self._notices.notified(view, effect)
            case CompleteRequest():
                self._calls.completed(member.client, effect.call_id)
                self._acknowledgements.completed(view, effect)
            case Emit():
                self.state.note(member.client, effect)
                self._emitted(view, effect)
            case SetTimer():
                if not (effect.at < float("inf") and effect.spread >= 0):
                    raise Violation("timers", f"client {member.client}: {effect}")
            case _:
                pass

    def _emitted(self, view: MemberView, emit: Emit) -> None:
        if emit.event == log_events.JOINING.name:
            self._follow_ups.decided(view, emit.fields["reason"])
        elif emit.event == log_events.FATAL_ERROR.name:
            view.failed = True
        elif emit.event == log_events.LOG_TRUNCATED.name:
            raise Violation("undue truncation", f"client {view.member.client}: {emit.fields}")

    def call_ended(self, member: SimulatedMember) -> None:
        """A call into a core has ended."""
        view = self._view(member)
        self._notices.call_ended(view)
        self._follow_ups.call_ended(view)

    def is_kept(self, member: SimulatedMember) -> bool:
        """Whether the thread of a member that is about to be frozen has to keep its membership:
        it takes part in no rebalance, and nothing else goes wrong."""
        state, view = self.state, self._view(member)
        # A lost response may have moved its epoch on; and a group goes on without a static member.
        certain = member.config.group_protocol == "classic" or not state.lossy
        stable = view.join is None and view.sync is None and bool(view.held) and not view.closing
        return (
            member.thread is not None
            and member.config.group_instance_id is None
            and stable
            and certain
            and not state.disturbed(member.client, 20.0)
        )

    # --- the application -------------------------------------------------------------------------

    def polled_without_result(self, member: SimulatedMember) -> None:
        """A poll has returned nothing."""
        self._busy_loops.polled_without_result(member)

    def began(self, member: SimulatedMember) -> None:
        """A record begins: none may while the membership is unconfirmed, if the member waits."""
        view = self._view(member)
        if member.config.on_unconfirmed_membership != "pause" or view.heard_at is None:
            return
        unconfirmed = self.state.clock.now - view.heard_at
        if unconfirmed > min(member.config.session_timeout, view.session) + 1e-6:
            raise Violation(
                "unconfirmed",
                f"client {member.client} begins with a record, and no request of it was accepted "
                f"as a member's for {unconfirmed:.3f} s",
            )

    def returned(self, member: SimulatedMember, result: PollResult) -> None:
        """A step has returned this."""
        if any(result.by_partition().values()):
            self.began(member)
        if result.to_be_revoked or result.lost:
            self.state.note(member.client, result)
        self.deliveries.returned(self._view(member), result)
        self._acknowledgements.returned(self._view(member), result)

    def committing(
        self, member: SimulatedMember, call_id: int, unfinished: Mapping[TopicPartition, int] | None
    ) -> None:
        """The application asks to commit what it has done."""
        self._acknowledgements.requested(self._view(member), call_id, unfinished)

    def delayed(
        self, member: SimulatedMember, wanted: frozenset[TopicPartition], ours: bool
    ) -> None:
        """``delay_revoke`` has returned."""
        self.state.note(member.client, ("delay_revoke", sorted(wanted), ours))
        self.deliveries.delayed(self._view(member), wanted, ours)

    def dropped(
        self, member: SimulatedMember, partition: TopicPartition, offset: int, gaps: frozenset[int]
    ) -> None:
        """Records after ``offset``, and ``gaps`` before it, were dropped without being started."""
        self.state.note(member.client, ("dropped", partition, offset, sorted(gaps)))
        self.deliveries.dropped(self._view(member), partition, offset, gaps)

    def sought(self, member: SimulatedMember, partition: TopicPartition, offset: int) -> None:
        """It has sought back to the first record that it was given and had not worked on."""
        self.state.note(member.client, ("seek", partition, offset))
        self.state.counts["seeks"] += 1
        self.deliveries.sought(self._view(member), partition, offset)

    def seeking_to(self, member: SimulatedMember, partition: TopicPartition, to_end: bool) -> None:
        """It is about to seek to an end of a partition, which is looked up."""
        self.state.note(member.client, ("seek to the end" if to_end else "rewind", partition))
        self.state.counts["seeks to an end"] += 1
        self.deliveries.seeking_to(self._view(member), partition, to_end)

    def sought_to(self, member: SimulatedMember, partitions: Sequence[TopicPartition]) -> None:
        """The ends of these that it wanted were found."""
        self.state.note(member.client, ("sought to", partitions))
        for partition in partitions:
            holding = self._view(member).held.get(partition)
            if holding is not None:
                holding.seeks_end = False

    def committed_offsets_received(
        self,
        member: SimulatedMember,
        seconds: float,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | None],
    ) -> None:
        """It requested committed offsets so many seconds ago and received these."""
        self.state.counts["committed offsets asked for"] += len(offsets)
        self._acknowledgements.committed_offsets_received(self._view(member), seconds, offsets)

    def paused(self, member: SimulatedMember, partition: TopicPartition, on: bool) -> None:
        """It has paused a partition, or resumed it."""
        self.state.note(member.client, ("pause" if on else "resume", partition))
        self.state.counts["pauses"] += on
        holding = self._view(member).held.get(partition)
        if holding is not None:
            holding.paused = on

    def done(self, member: SimulatedMember, record: Record) -> None:
        """The application has worked on a record."""
        self.deliveries.done(self._view(member), record)

    def state_loaded(
        self, member: SimulatedMember, partition: TopicPartition, state: StoredState
    ) -> None:
        """A lifespan has loaded the state of its partition, and is about to seek to its end."""
        self.state.note(member.client, ("state loaded", partition, state[2:]))
        self._lifespans.loaded(self._view(member), partition, state)

    def added_to_state(self, member: SimulatedMember, record: Record, *, known: bool) -> None:
        """A record was handled."""
        self._lifespans.added(self._view(member), record, known=known)

    def state_stored(
        self, member: SimulatedMember, partition: TopicPartition, state: StoredState, *, sole: bool
    ) -> None:
        """A lifespan has stored its state."""
        self.state.note(member.client, ("state stored", partition, state[2:]))
        self._lifespans.stored(self._view(member), partition, state, sole=sole)

    def gap_dropped(self, member: SimulatedMember, partition: TopicPartition) -> None:
        """The deadline of a revocation is near: records of a gap are dropped unstarted."""
        self._lifespans.gap_dropped(self._view(member), partition)

    def state_not_stored(self, member: SimulatedMember, partition: TopicPartition) -> None:
        """A lifespan stores an offset alone, which does not say what its state contains."""
        self.state.note(member.client, ("state not stored", partition))
        self._lifespans.not_stored(self._view(member), partition)

    def failed(self, member: SimulatedMember, error: Exception) -> None:
        """A step, or a request of the application, has raised this."""
        self.state.note(member.client, ("raised", error))
        # A coordinator that was loaded knows only the protocol that was in use: a member that
        # upgrades the group's protocol is then rejected, until the others have joined again.
        if isinstance(error, InconsistentGroupError) and self.loads:
            self.state.counts["upgrades rejected after a coordinator moved"] += 1
            return
        # Two JoinGroups of one static member, processed in the wrong order, fence it.
        if isinstance(error, FencedInstanceError) and member.client in self._evictions.late_joins:
            self.state.counts["static members fenced by their own late JoinGroup"] += 1
            return
        # So does a coordinator that was loaded again while its response was on the way to it.
        if isinstance(error, FencedInstanceError) and self._evictions.is_evicted(member.client):
            self.state.counts["static members forgotten by their coordinator"] += 1
            return
        # Nothing else that is done to a member here is an error that its user should see.
        if not (isinstance(error, PartitionsError) and self.state.disturbed(member.client, 60.0)):
            raise Violation("errors", f"client {member.client} received {error!r}")

    def subscribed(self, member: SimulatedMember) -> None:
        """What it does not want any more may be on its way out, and its deadline run; of an eager
        member all that it has."""
        wanted = member.core.subscription_state.subscription()
        view = self._view(member)
        view.first_counts = {t: n for t, n in view.first_counts.items() if t in wanted}
        view.changes.append(self.state.clock.now)
        for partition, holding in view.held.items():
            if partition.topic not in wanted and holding.dropped_since is None:
                holding.dropped_since = self.state.clock.now

    def requested(
        self, member: SimulatedMember, call_id: int, call: str, bound: float | None
    ) -> None:
        """It waits for the result of a call, for ``bound`` seconds at most."""
        self.state.note(member.client, (call, call_id))
        self.state.counts["requests of applications"] += 1
        self._calls.asked(member, call_id, call, bound)

    def look(self) -> None:
        """Time has gone on."""
        self._stalls.look()

    def changed_style(self, member: SimulatedMember, tracked: bool) -> None:
        """From the next step on it takes records in another way; ``tracked``: in a task group."""
        self.state.note(
            member.client,
            "takes records in a task group" if tracked else "takes batches or single records",
        )
        self.state.counts["changes of style"] += 1

    def unsubscribing(self, member: SimulatedMember) -> None:
        """It unsubscribes: what it has is given back, and nothing follows for now."""
        self.state.note(member.client, "unsubscribe")
        self.state.counts["unsubscribed"] += 1
        self._leaves(member)
        view = self._view(member)
        view.unsubscribes_since = self.state.clock.now
        view.first_counts = {}
        view.left_as = member.core.group_metadata().member_id

    def unsubscribed(self, member: SimulatedMember) -> None:
        """It has unsubscribed."""
        self.state.note(member.client, "unsubscribed")
        self._has_left(member, "unsubscribe")
        view = self._view(member)
        # What it was told of topics while it left is not of its next subscription.
        wanted = member.core.subscription_state.subscription()
        view.first_counts = {t: n for t, n in view.first_counts.items() if t in wanted}
        view.closing = False
        view.granted_before = view.granted = frozenset()

    def closing(self, member: SimulatedMember) -> None:
        """The application is about to close its consumer."""
        self.state.note(member.client, "close")
        self._leaves(member)

    def _leaves(self, member: SimulatedMember) -> None:
        view = self._view(member)
        view.closing = True
        for holding in view.held.values():
            if holding.revoking_since is None:
                holding.revoking_since = self.state.clock.now
        view.closing_since = self.state.clock.now

    def left_uncounted(self, member: SimulatedMember) -> None:
        """It left the loop with work that does not count."""
        self.state.permit_duplicates(member.client, "the loop was left before its work counted")

    def acknowledged_too_late(self, member: SimulatedMember, partition: TopicPartition) -> None:
        """It has stopped, and the partition was released before it acknowledged a record of it."""
        cause = "released after a stop, before it was acknowledged"
        self.state.permit_partition_duplicates(member.client, partition, cause)

    def closed(self, member: SimulatedMember) -> None:
        """The consumer has closed."""
        self.state.note(member.client, "closed")
        self._acknowledgements.closed(self._view(member))
        self._has_left(member, "close")

    def _has_left(self, member: SimulatedMember, what: str) -> None:
        view = self._view(member)
        took = self.state.clock.now - view.closing_since
        if took > member.config.close_timeout + 0.5 + self.state.client_frozen.get(
            member.client, 0.0
        ):
            raise Violation(what, f"client {member.client} took {took:.3f} s to {what}")
        if view.held:
            raise Violation(
                what, f"client {member.client} did {what}, and still has {sorted(view.held)}"
            )

    # --- the coordinator -------------------------------------------------------------------------

    def commit_accepted(
        self, client: int, partition: TopicPartition, old: int | None, new: OffsetAndMetadata
    ) -> None:
        """An offset was stored."""
        view = self.state.views[client]
        self._ownership.commit_accepted(view, partition)
        self._acknowledgements.stored(client, partition, new.offset)
        self.deliveries.committed(view, partition, old, new)

    def commit_rejected(self, client: int, partition: TopicPartition) -> None:
        """An offset was not stored."""
        self._acknowledgements.rejected(client, partition)

    def offsets_fetched(self, client: int, partitions: tuple[TopicPartition, ...]) -> None:
        """Offsets were read."""
        self.deliveries.offsets_fetched(client, partitions)

    def member_removed(self, client: int, member_id: str, reason: str) -> None:
        """A member was put out of the group by a timer."""
        self.state.note(client, ("put out", reason))
        self._evictions.removed(client, member_id, reason)

    def member_replaced(self, old: int, new: int) -> None:
        """A static member has come back, and has what its former self had."""
        self.state.note(new, ("replaces client", old))
        self._evictions.replaced(old)
        self._ownership.replaced(old, new)

    def stable(self, generation: int, assignments: dict[int, bytes]) -> None:
        """A generation has its assignment."""
        self.state.note(-1, ("stable", generation, tuple(assignments)))
        self.state.assigned(generation, assignments)
        self._ownership.stable(assignments)

    def converted(self, owners: dict[TopicPartition, int], behind: tuple[int, ...]) -> None:
        """The group has become of another kind."""
        self.state.note(-1, ("converted", behind))
        self._ownership.converted(owners, behind)

    def deleted(self, topic: str) -> None:
        """A topic is about to be deleted; another one of the name will have nothing of it."""
        self.deliveries.deleted(topic)
        self._acknowledgements.deleted(topic)
        for view in self.state.views.values():
            view.deleted(topic)
        self._follow_ups.deleted(topic)

    def owned(self, owners: dict[TopicPartition, int]) -> None:
        """A coordinator that assigns has changed who has which partition."""
        self._ownership.owned(owners)

    def silence(self, member: SimulatedMember) -> None:
        """The connections of a member have just died without a word."""
        self._silence.began(self._view(member))

    def loaded(self) -> None:
        """A coordinator was loaded."""
        self.loads += 1
        self._evictions.loaded()

    def generation_forgotten(self, generation: int, clients: tuple[int, ...]) -> None:
        """A coordinator was loaded that does not know the generation in which these had joined."""
        self.state.note(-1, ("forgotten", generation, clients))
        self._evictions.generation_forgotten(clients)

    def processed_late(self, client: int, message: Request) -> None:
        """A broker has processed a request of a connection that its member had closed."""
        self._evictions.processed_late(client, message)

    # --- the end ---------------------------------------------------------------------------------

    def unfinished(self, live: list[int]) -> list[str]:
        """Why the world is not at rest; empty once all is done and committed, and the group is
        stable."""
        return [
            *self._unsettled(live),
            *self.deliveries.missing().values(),
            *self._calls.incomplete(),
        ]

    def lacks_readers_alone(self, live: list[int], unread: frozenset[TopicPartition]) -> bool:
        """Whether the world would be at rest, were it not for ``unread`` partitions."""
        missing = self.deliveries.missing().keys()
        return bool(missing) and missing <= unread and not self._unsettled(live)

    def _unsettled(self, live: list[int]) -> list[str]:
        group = self.state.brokers.group
        members = sorted(member.client for member in group.members.values())
        if live and group.state is not GroupState.STABLE:
            return [f"the group is {group.state.value}"]
        if members != sorted(live):
            return [f"the group has clients {members}, and {sorted(live)} are alive"]
        return []

    def must_be_at_rest(self, live: list[int], report: str) -> None:
        """I14, and nothing lost."""
        reasons = self.unfinished(live)
        if reasons:
            raise Violation("I14", "no progress: " + "; ".join(reasons) + "\n" + report)
