"""The whole consumer without I/O: what follows from what, and its parts.

A part calls those below it directly, and reports upward by the protocol of its folder
(``reactions.py`` there). :class:`Core` implements all of these protocols, where each method is
documented: one method for each event, whose body says in order what follows.

No method raises on what a broker sends. Only ``poll`` moves delivered positions and consumes
``lost``. It does not await, so that cancelling a waiting poll loses nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.assignors.registry import find_assignors
from asyncrevoke.client.core.commit.committed_maps import CommittedMaps
from asyncrevoke.client.core.commit.committer import Committer
from asyncrevoke.client.core.commit.returned_records import ReturnedRecords
from asyncrevoke.client.core.commit.transactional_committer import TransactionalCommitter
from asyncrevoke.client.core.commit.user_commits import RequestedOffsets
from asyncrevoke.client.core.fetch.fetcher import Fetcher
from asyncrevoke.client.core.io.effects import CompleteRequest, Effect, Event, Node
from asyncrevoke.client.core.io.link_silence import silence_timeout_of
from asyncrevoke.client.core.io.outbox import LARGE_FROM, Outbox
from asyncrevoke.client.core.io.wall_clock import WallClock
from asyncrevoke.client.core.membership.classic.member import ClassicMembership
from asyncrevoke.client.core.membership.kip848.member import ConsumerGroupMembership
from asyncrevoke.client.core.membership.manual import ManualMembership
from asyncrevoke.client.core.membership.session_guard import SessionGuard
from asyncrevoke.client.core.membership.subscription_state import SubscriptionState
from asyncrevoke.client.core.metadata.brokers import SilentBrokers
from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
from asyncrevoke.client.core.metadata.coordinator import Coordinator
from asyncrevoke.client.core.metadata.missing_topics import OutputTopics
from asyncrevoke.client.core.metadata.topic import TopicIds
from asyncrevoke.client.core.partition.assignment import Assignment
from asyncrevoke.client.core.partition.instance import InstanceState, PartitionInstance
from asyncrevoke.client.core.partition.revocation import Revocation
from asyncrevoke.client.core.poll.leave import Leaving
from asyncrevoke.client.core.poll.poll import Poller, StepErrors
from asyncrevoke.client.core.position.resolver import PositionResolver
from asyncrevoke.client.core.position.seek import Seeking
from asyncrevoke.client.core.queries.offset_queries import OffsetQueries
from asyncrevoke.client.errors import ConsumerClosedError, FatalError, PartitionsError
from asyncrevoke.client.model import (
    BlockingRecord,
    GroupMetadata,
    Health,
    OffsetAndMetadata,
    PollResult,
    Record,
    TopicPartition,
)
from asyncrevoke.client.printable import named_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.fetch.delayed_topic import TopicDelay
    from asyncrevoke.client.core.io.deadline import Deadline
    from asyncrevoke.client.core.membership.subscription_state import Membership
    from asyncrevoke.client.core.partition.completion_map import CompletionMap
    from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
    from asyncrevoke.client.core.partition.reader_records import RecordReader
    from asyncrevoke.client.core.poll.large_polls import LargePoll
    from asyncrevoke.client.protocol.records import RecordBatch, RecordDecoder


class Core:
    """One consumer, on paper: :meth:`handle` takes events, other methods are calls of the user, and
    :meth:`take_effects` returns what is to be done.

    Who calls it takes the effects after each call, as ``Driver`` does: what follows from a call
    (:meth:`after_event`) is decided then. The parts that it shows are called directly.
    """

    def after_event(self, now: float) -> None:
        """What follows from every event and every call, in this order: when all revocations are
        complete the membership goes on; deadlines of revocations take the slowest commit into
        account; delivery goes on or pauses with the confirmation of the membership; fetches are
        planned; the listener is notified."""
        while self.revocation.take_barrier_request():
            if self.revocation.at_barrier and not self.leaving.waits_for_abort:
                self.membership.barrier(now)
        self.revocation.set_slowest_commit(self.committer.slowest)
        if self.session_guard.is_enabled:
            self.session_guard.resume_if_confirmed(now)
            self.poller.stop_reader_if_paused(now)
        if not (self.owes_plan or self.leaving.closing):
            self.fetcher.plan(now)
        self.assignment.flush_notices()

    # --- lifespans -------------------------------------------------------------------------------

    def listener_called(self, _now: float, instance_ids: Sequence[int]) -> None:
        """Records of these may be delivered, unless their lifespans are not entered yet."""
        for instance_id in instance_ids:
            self._started(self.lifespans.listener_called(instance_id))

    def lifespan_entered(self, _now: float, instance_id: int) -> None:
        """Records of it may be delivered, unless the listener has not returned yet."""
        self._started(self.lifespans.entered(instance_id))

    def _started(self, instance: PartitionInstance | None) -> None:
        if instance is not None and instance.is_started:
            self.seeking.positioned(instance)
            self.outbox.wake()

    def lifespan_exited(self, now: float, instance_id: int) -> None:
        """The revocation of the partition proceeds to the final commit."""
        if self.lifespans.exited(instance_id) is not None:
            self.revocation.progress(now)

    def lifespan_failed(self, now: float, instance_id: int, reason: str) -> None:
        """The partition is lost, and its final commit is not sent."""
        instance = self.lifespans.exited(instance_id)
        if instance is not None:
            self.revocation.lifespan_failed(now, instance, reason)

    # --- partitions ------------------------------------------------------------------------------

    def position_changed(self, instance: PartitionInstance) -> None:
        self.seeking.positioned(instance)

    def instance_ended(self, instance: PartitionInstance) -> None:
        """Nothing is fetched, looked up or committed for it any more."""
        self.seeking.ended(instance)
        self.committer.forget(instance)

    def revocation_ended(self, now: float, instance: PartitionInstance) -> None:
        self.membership.released(now, instance)

    def is_committed(self, instance: PartitionInstance) -> bool:
        return self.committer.is_acknowledged(instance)

    def commit_now(self, now: float) -> None:
        self.committer.flush(now)

    # --- commits ---------------------------------------------------------------------------------

    def commit_acknowledged(self, now: float, instances: Sequence[PartitionInstance]) -> None:
        """Instances that were to start at this commit look it up; revocations progress."""
        unplaced = [instance for instance in instances if instance.state is InstanceState.INIT]
        if unplaced:
            self.step_errors.position_set([instance.partition for instance in unplaced])
            self.positions.find(now, unplaced)
        self.revocation.progress(now)

    def commit_rejected(
        self, now: float, instance: PartitionInstance, error: PartitionsError
    ) -> None:
        """Unsubscribing or closing raises the error; the partition is released uncommitted."""
        if instance.state is InstanceState.COMMITTING:
            self.leaving.commit_rejected(error)
        self.revocation.commit_rejected(now, instance, str(error))

    def commit_topic_unknown(self, now: float) -> None:
        self.cluster.refresh(now, "the coordinator does not know a topic")

    # --- fetching --------------------------------------------------------------------------------

    @property
    def is_poll_waiting(self) -> bool:
        return self.poller.is_waiting()

    def position_out_of_range(self, now: float, instance: PartitionInstance) -> None:
        self.seeking.out_of_range(now, instance)

    def log_truncated(
        self, now: float, instance: PartitionInstance, offset: int | None, leader_epoch: int
    ) -> None:
        self.seeking.truncated(now, instance, offset, leader_epoch)

    def log_end_known(self, now: float, instance: PartitionInstance) -> None:
        self.seeking.log_end_known(now, instance)

    def position_passed(self, now: float, instance: PartitionInstance) -> None:
        """The position is committed, and ends a step that waits for it."""
        if self.returned_records.position_passed(now, instance):
            self.poller.position_passed()

    def sessions_ended(self) -> None:
        self.leaving.sessions_ended()

    # --- positions -------------------------------------------------------------------------------

    @property
    def offset_fetch_identity(self) -> tuple[str | None, int]:
        membership = self.membership
        if membership is not self.kip848 or not membership.may_commit:
            return None, -1
        identity = membership.member_identity
        return identity.member_id, identity.generation

    def is_added(self, partition: TopicPartition) -> bool:
        return partition in self.subscription_state.added_partitions

    def position_found(
        self, now: float, instance: PartitionInstance, found: OffsetAndMetadata, from_reset: bool
    ) -> None:
        self.seeking.found(now, instance, found, from_reset)

    # --- metadata --------------------------------------------------------------------------------

    def topics_changed(self, now: float) -> None:
        self.subscription_state.added_partitions.topics_changed()
        self.subscription_state.metadata_received()
        gone = [i for i in self.assignment.live() if not self.topic_ids.exists(i.partition)]
        self.topic_ids.learn()
        if gone:
            self.revocation.lose(now, gone, "the partition does not exist any more")
            self.membership.rejoin(now, "partitions have gone")
        self.subscription_state.cluster_changed(now)
        self.membership.metadata_changed(now)

    def metadata_refreshed(self, now: float) -> None:
        """Look-ups and fetches that waited for a leader or a topic are sent."""
        self.subscription_state.metadata_received()
        self.seeking.leaders_known(now)
        self.positions.leaders_known(now)
        self.fetcher.leaders_known(now)
        self.membership.metadata_refreshed(now)

    # --- membership ------------------------------------------------------------------------------

    @property
    def is_leaving(self) -> bool:
        return self.leaving.under_way

    def partitions_added(self, now: float, instances: list[PartitionInstance]) -> None:
        self.positions.find(now, instances)

    def membership_ready(self, now: float) -> None:
        self.committer.resume(now)

    def epoch_changed(self, now: float) -> None:
        """Send the commits and the look-ups that waited for the epoch."""
        self.committer.resume(now)
        self.positions.membership_known(now)

    def group_topics_known(self, now: float, topics: frozenset[str]) -> None:
        self.subscription_state.group_topics_known(now, topics)

    def group_left(self, now: float) -> None:
        """Complete the calls that wait for it, and start what was subscribed to meanwhile."""
        self.subscription_state.left(now, closing=self.leaving.closing)
        self.leaving.left()
        self.subscription_state.apply_next(now)

    def group_protocol_unsupported(self, now: float, why: str) -> None:
        self.subscription_state.fall_back(now, why)

    def membership_failed(self, error: FatalError) -> None:
        """Every poll raises the error, and every waiting call fails with it."""
        if self.poller.fatal is None:
            self.poller.fail(error)
            self.outbox.emit(log_events.FATAL_ERROR, error=named_error(error))
        self.committer.waiters.fail(error)
        self.offset_queries.fail_all(error)
        self.assignment.fail_waiting(error)
        self.outbox.wake()
        if self.leaving.closing:
            self.leaving.finish()

    # --- polls -----------------------------------------------------------------------------------

    def poll_started(self, now: float) -> None:
        self.membership.poll_resumed(now)

    def max_poll_interval_exceeded(self, now: float) -> None:
        self.membership.leave_idle(now)

    # --- leaving ---------------------------------------------------------------------------------

    def closing_ended(self) -> None:
        """Every waiting call fails with ConsumerClosedError."""
        error = ConsumerClosedError("the consumer was closed meanwhile")
        self.committer.waiters.fail(error)
        self.offset_queries.fail_all(error)
        self.seeking.fail_calls(error)
        self.assignment.fail_waiting(error)
        self.cluster.stop()

    # --- errors ----------------------------------------------------------------------------------

    def failed(self, now: float, error: Exception) -> None:
        """A fatal error ends the membership; the next poll raises any other."""
        if isinstance(error, FatalError):
            self.membership.fail(now, error)
        else:
            self.poller.error(error)

    # --- events ----------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Send the first requests."""
        self.cluster.start(now)
        self.subscription_state.start(now)

    def handle(self, now: float, event: Event) -> list[Effect]:
        """Handle one event, and return all effects since the last call."""
        self.silent_brokers.handle(now, event)
        self.outbox.route(now, event)
        self.owes_plan = False
        return self.take_effects(now)

    def take_effects(self, now: float) -> list[Effect]:
        """All effects since the last call, and those of what follows."""
        self.after_event(now)
        return self.outbox.take()

    @property
    def has_effects(self) -> bool:
        """Whether records that have ended have any effect: from most of them nothing follows."""
        return self.outbox.pending or self.revocation.barrier_requested

    # --- the poller ------------------------------------------------------------------------------

    def poll(
        self,
        now: float,
        max_records: int | None = None,
        *,
        expired: bool = False,
        records_first: bool = False,
        until_moved: bool = False,
        reader: RecordReader | None = None,
        large: LargePoll | None = None,
    ) -> PollResult | None:
        """Return records, revocations and losses; None if there are none yet: call again.

        The first call after a result begins a step: the last batch is completed, and announced
        partitions are released or delayed (``docs/internals/how-it-runs.md``, the rules of a
        poll). ``expired`` ends the step with whatever there is. Raises an error once; a fatal error
        each time. When ``poller.ended`` is True there will be no further result.

        With ``until_moved``, a step also ends, without records, when a position has passed offsets
        that have none: control batches, aborted transactions, records completed earlier. So a loop
        that reads up to an offset finds out.

        With ``records_first``, if there are records, fetches are left for :meth:`plan_owed`, which
        is to be called soon. With a ``reader`` the user gets the records one by one, see
        :mod:`.reader_records`. ``large`` says how many records to return in place of
        ``max_poll_records``, and how long to wait for them.
        """
        self.owes_plan = False
        result = self.poller.poll(
            now, max_records, expired=expired, until_moved=until_moved, reader=reader, large=large
        )
        self.owes_plan = records_first and result is not None and bool(result.by_partition())
        return result

    def deliver_unreadable(self) -> None:
        """From now on return an ``UnreadableRecord``, as the last record of its partition, instead
        of raising UnreadableRecordError."""
        self.fetcher.collector.deliver_unreadable()

    def decode_by(
        self,
        _now: float,
        decode: RecordDecoder,
        grouped: Callable[[str, Sequence[RecordBatch]], Sequence[RecordBatch]],
        records: int,
    ) -> None:
        """Decode batches by ``decode`` from now on, and those that were fetched before as
        ``grouped`` puts those of a topic together. Polls take so many ``records``
        from now on, and enough are buffered for them."""
        self.fetcher.collector.decode_by(decode)
        for instance in self.assignment.live():
            if instance.buffer is not None:
                instance.buffer.group(partial(grouped, instance.partition.topic))
        self.fetcher.memory.poll_at_once(records)

    def poll_for_handlers(self) -> None:
        """Handlers take the records, also unreadable ones: polls return more than
        ``max_poll_records`` if these are small, but at most a quarter of ``max_in_flight``."""
        self.deliver_unreadable()
        self.poller.poll_for_handlers()

    def plan_owed(self, _now: float) -> None:
        """The records of the last poll are delivered: the fetches that it left are planned."""
        self.owes_plan = False

    def await_confirmation(self, now: float) -> int:
        """Wait until queued records may be started. Completes the call."""
        call_id = self._call_id()
        self.session_guard.wait(now, call_id)
        return call_id

    # --- tracking --------------------------------------------------------------------------------

    def owns(self, record: Record) -> bool:
        """Whether its partition is assigned since it was returned. Raises ValueError for a record
        of another consumer."""
        return self.assignment.instance_of(record.tracker_id) is not None

    def is_revoking(self, partition: TopicPartition) -> bool:
        """Whether the partition is being revoked."""
        instance = self.assignment.get(partition)
        return instance is not None and instance.revoking

    def delay_revoke(self, _now: float, partitions: Iterable[TopicPartition]) -> bool:
        """See :meth:`Revocation.delay`."""
        return self.revocation.delay(partitions)

    def offset_to_commit(self, partition: TopicPartition) -> int | None:
        """The offset before which all records are done; None while there is no position."""
        tracker = self._tracker_of(partition)
        return None if tracker is None else tracker.commit_point

    def has_completed_beyond(self, partition: TopicPartition) -> bool:
        """Whether a record after :meth:`offset_to_commit` was completed since the partition was
        positioned."""
        tracker = self._tracker_of(partition)
        return tracker is not None and tracker.count_done(tracker.commit_point) > 0

    def completion_map(self, partition: TopicPartition) -> str | None:
        """What is completed after :meth:`offset_to_commit`, empty if nothing is; None if a map has
        no room for it."""
        tracker = self._tracker_of(partition)
        return "" if tracker is None else self.maps.complete(tracker)

    def _tracker_of(self, partition: TopicPartition) -> OffsetTracker | None:
        instance = self.assignment.get(partition)
        return None if instance is None else instance.tracker

    def revocation_ends_in(self, now: float, partition: TopicPartition) -> float | None:
        """Seconds until the partition is lost unless it is released, or its last commit is sent;
        None if it is not revoked, or has no deadline."""
        instance = self.assignment.get(partition)
        if instance is None or not instance.revoking or instance.deadline is None:
            return None
        return instance.deadline - self.revocation.margin(instance) - now

    # --- subscription ----------------------------------------------------------------------------

    def delay(self, delays: Mapping[str, TopicDelay]) -> None:
        """Deliver the records of these topics when they are due, and skip none, whatever
        ``auto_offset_reset`` says. Call before they are subscribed to."""
        self.fetcher.set_delays(delays)
        self.positions.set_complete_topics(delays.keys())

    def unsubscribe(self, now: float) -> int:
        """Drain, commit, release, leave, then clear the subscription. Completes the call within
        close_timeout: what is not committed by then is lost."""
        call_id = self._call_id()
        self.subscription_state.forget_next()
        self.leaving.unsubscribe(now, call_id)
        return call_id

    # --- positions -------------------------------------------------------------------------------

    def seek(
        self,
        now: float,
        partition: TopicPartition,
        offset: int,
        completed: CompletionMap | None = None,
    ) -> None:
        """See :meth:`Seeking.seek`."""
        self.seeking.seek(now, partition, offset, completed)
        self.step_errors.position_set((partition,))

    def seek_to(self, now: float, partitions: Iterable[TopicPartition], timestamp: int) -> int:
        """See :meth:`Seeking.seek_to`. Completes the call."""
        call_id, wanted = self._call_id(), tuple(partitions)
        self.seeking.seek_to(now, call_id, wanted, timestamp)
        self.step_errors.position_set(wanted)
        return call_id

    def position(self, partition: TopicPartition) -> int | None:
        """See :meth:`Seeking.position`."""
        return self.seeking.position(partition)

    # --- calls of the user -----------------------------------------------------------------------

    def _call_id(self) -> int:
        self._calls += 1
        return self._calls

    def commit(
        self, now: float, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> int:
        """Commit what is done (manual mode: what was returned) or ``offsets``, and complete the
        call."""
        call_id = self._call_id()
        if offsets is None:
            self.assignment.take_back()
        if self.poller.fatal is not None:
            self.outbox.put(CompleteRequest(call_id, error=self.poller.fatal))
        else:
            self.committer.request(now, call_id, offsets)
        return call_id

    def wait_for_assignment(self, _now: float) -> int:
        """Wait until partitions are assigned. Completes the call with all that are."""
        call_id = self._call_id()
        if self.poller.fatal is not None:
            self.outbox.put(CompleteRequest(call_id, error=self.poller.fatal))
        else:
            self.assignment.wait(call_id)
        return call_id

    def committed(self, now: float, partitions: Iterable[TopicPartition]) -> int:
        """Ask the coordinator what the group has committed. Completes the call."""
        call_id = self._call_id()
        self.offset_queries.committed(now, call_id, list(partitions))
        return call_id

    def offsets_for_times(self, now: float, timestamps: Mapping[TopicPartition, int]) -> int:
        """Ask the leaders for offsets by timestamp (or EARLIEST/LATEST). Completes the call."""
        call_id = self._call_id()
        self.offset_queries.offsets_for_times(now, call_id, timestamps)
        return call_id

    def partitions_for_topic(self, now: float, topic: str) -> int:
        """Ask the cluster which partitions a topic has. Completes the call."""
        call_id = self._call_id()
        self.offset_queries.partitions_for_topic(now, call_id, topic)
        return call_id

    def describe_topics(self, now: float, topics: Iterable[str] | None) -> int:
        """Ask the cluster for ids and partitions of topics, all for None. Completes the call."""
        call_id = self._call_id()
        self.offset_queries.describe_topics(now, call_id, topics)
        return call_id

    # --- closing ---------------------------------------------------------------------------------

    def stop(self, now: float) -> None:
        """End the iterator with its next step, which counts the last batch, or a waiting one."""
        self.poller.stop(now)

    def leave_at_close(self, leave: bool) -> None:
        """Whether closing leaves the group: by default dynamic members do, static ones do not."""
        for membership in (self.classic, self.kip848):
            if membership is not None:
                membership.set_sends_leave(leave)

    def close(self, now: float, *, graceful: bool = True, deadline: Deadline | None = None) -> int:
        """Release everything, commit what is done, leave. Completes the call by ``deadline`` (None:
        after close_timeout). ``graceful`` waits for tasks and handlers until ``deadline.work``;
        another call may end that wait."""
        call_id = self._call_id()
        self.leaving.close(now, call_id, graceful=graceful, deadline=deadline)
        return call_id

    # --- errors and facts ------------------------------------------------------------------------

    def alive_until(self, now: float) -> float:
        """When ``max_poll_interval`` is over for the loop body that runs, or for one that started
        now."""
        self.poller.note_records_taken(now)
        since = now if self.poller.idle_since is None else self.poller.idle_since
        return since + self._config.max_poll_interval

    def group_metadata(self) -> GroupMetadata:
        """The identity of this member in the group."""
        return self.membership.member_identity

    def blocking_records(self, now: float) -> list[BlockingRecord]:
        """See :meth:`Revocation.blocking_records`."""
        return self.revocation.blocking_records(now, self.poller.stopped_at)

    def health(self, now: float) -> Health:
        """A snapshot of the consumer's state."""
        self.poller.note_records_taken(now)
        confirmed = self.membership.confirmed_at
        node = self.coordinator.node
        return Health(
            state=self.membership.state.value,
            coordinator=None if node is None else node.address,
            heartbeat_age=None if confirmed is None else now - confirmed,
            idle_seconds=None if self.poller.idle_since is None else now - self.poller.idle_since,
            in_flight=sum(self.assignment.returned().values()),
            assigned=len(self.assignment),
            revoking=len(self.assignment.revoking()),
            paused_partitions=self.seeking.paused(),
            skipped_completed=self.assignment.skipped_completed(),
            error=self.poller.fatal,
            missing_topics=self.cluster.missing_topics(),
            rejected_topics=self.cluster.rejected_topics(),
            unreachable_brokers=tuple(node.address for node in self.cluster.unreachable_brokers()),
            session_timeout=self.membership.session,
            throttled_brokers=self.cluster.brokers.throttled(now),
        )

    # --- what it is made of ----------------------------------------------------------------------

    @property
    def membership(self) -> Membership:
        return self.subscription_state.membership

    def __init__(
        self,
        config: ConsumerConfig,
        bootstrap: Sequence[Node],
        decode: RecordDecoder,
        *,
        wall_clock_offset: float = 0.0,
        member_id: str = "",
        large_from: int = LARGE_FROM,
    ) -> None:
        """``wall_clock_offset`` is the wall clock minus ``now`` in seconds, and ``member_id`` one
        that no other consumer has (KIP-848); ``large_from``: see :class:`Outbox`.

        Constructors of parts call no method of this class.
        """
        self._config = config
        self.outbox = outbox = Outbox(silence_timeout_of(config), large_from)
        self.wall_clock = WallClock(wall_clock_offset)
        self.assignment = Assignment(outbox, self)
        self.lifespans = self.assignment.lifespans
        self.revocation = Revocation(outbox, config, self.assignment, self)
        self.output_topics = OutputTopics(outbox, bootstrap[0])
        self.cluster = ClusterMetadata(outbox, config, bootstrap, self.output_topics, self)
        self.topic_ids = TopicIds(self.cluster)
        self.coordinator = Coordinator(outbox, config, self.cluster, self)
        self.silent_brokers = SilentBrokers(outbox, self.cluster, self.coordinator)
        self.maps = CommittedMaps(outbox, config)
        requested = RequestedOffsets(outbox)
        kind = TransactionalCommitter if config.exactly_once else Committer
        self.committer: Committer = kind(
            outbox,
            config,
            self.cluster,
            self.coordinator,
            self.assignment,
            self.maps,
            requested,
            self,
        )
        self.returned_records = ReturnedRecords(
            outbox, config, self.assignment, self.revocation, self.committer, self.maps
        )
        if isinstance(self.committer, TransactionalCommitter):
            self.committer.compose_with(self.revocation, self.returned_records)
        self.fetcher = Fetcher(
            outbox,
            config,
            self.cluster,
            decode,
            self.wall_clock,
            self.returned_records.partition_capacity,
            self,
        )
        self._compose_positions(config, requested)
        self._compose_membership(config, member_id)
        self._compose_polls(config)
        # Whether the last poll has left fetches to be planned.
        self.owes_plan = False
        self._calls = 0

    def _compose_positions(self, config: ConsumerConfig, requested: RequestedOffsets) -> None:
        self.positions = PositionResolver(
            self.outbox, config, self.cluster, self.coordinator, requested, self.wall_clock, self
        )
        self.seeking = Seeking(
            self.outbox,
            config,
            self.cluster,
            self.assignment,
            self.positions,
            self.fetcher,
            self.committer,
            self.maps,
            self.returned_records,
            self,
        )
        self.offset_queries = OffsetQueries(self.outbox, config, self.cluster, self.coordinator)

    def _compose_membership(self, config: ConsumerConfig, member_id: str) -> None:
        self.manual = ManualMembership(config, self.cluster, self.assignment, self.revocation, self)
        self.classic: ClassicMembership | None = None
        self.kip848: ConsumerGroupMembership | None = None
        if config.group_id is not None and config.group_protocol != "consumer":
            self.classic = ClassicMembership(
                self.outbox,
                config,
                self.cluster,
                self.coordinator,
                self.assignment,
                self.revocation,
                find_assignors(config.assignors),
                self,
            )
        if config.group_id is not None and config.group_protocol != "classic":
            self.kip848 = ConsumerGroupMembership(
                self.outbox,
                config,
                self.cluster,
                self.coordinator,
                self.assignment,
                self.revocation,
                member_id,
                self,
                has_fallback=self.classic is not None,
            )
        self.subscription_state = SubscriptionState(
            self.outbox,
            self.cluster,
            self.assignment,
            self.manual,
            self.classic,
            self.kip848,
            self,
        )

    def _compose_polls(self, config: ConsumerConfig) -> None:
        self.session_guard = SessionGuard(self.outbox, config, self.subscription_state)
        self.step_errors = StepErrors(self.assignment)
        self.poller = Poller(
            self.outbox,
            config,
            self.assignment,
            self.revocation,
            self.returned_records,
            self.fetcher,
            self.session_guard,
            self.step_errors,
            self,
        )
        self.leaving = Leaving(
            self.outbox,
            config,
            self.assignment,
            self.revocation,
            self.fetcher,
            self.subscription_state,
            self.poller,
            self.committer,
            self,
        )
