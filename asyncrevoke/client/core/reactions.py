"""The parts of the core, and what follows in the others from what happens in one of them.

A part calls those below it directly, and reports upward by the protocol of its room
(``reactions.py`` there). :class:`Reactions` implements all of these protocols, where each method is
documented: one method for each event, whose body says in order what follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.assignors.registry import find_assignors
from asyncrevoke.client.core.commit.committer import Committer
from asyncrevoke.client.core.commit.completion_maps import CompletionMaps
from asyncrevoke.client.core.commit.completion_tracker import CompletionTracker
from asyncrevoke.client.core.commit.requested_offsets import RequestedOffsets
from asyncrevoke.client.core.fetch.fetcher import Fetcher
from asyncrevoke.client.core.io.link_silence import silence_timeout_of
from asyncrevoke.client.core.io.outbox import Outbox
from asyncrevoke.client.core.io.wall_clock import WallClock
from asyncrevoke.client.core.membership.classic.member import ClassicMembership
from asyncrevoke.client.core.membership.kip848.member import ConsumerGroupMembership
from asyncrevoke.client.core.membership.manual import ManualMembership
from asyncrevoke.client.core.membership.session_guard import SessionGuard
from asyncrevoke.client.core.membership.subscription_state import SubscriptionState
from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
from asyncrevoke.client.core.metadata.coordinator import Coordinator
from asyncrevoke.client.core.metadata.output_topics import OutputTopics
from asyncrevoke.client.core.metadata.silent_brokers import SilentBrokers
from asyncrevoke.client.core.metadata.topic_ids import TopicIds
from asyncrevoke.client.core.partition.assignment import Assignment
from asyncrevoke.client.core.partition.instance import InstanceState
from asyncrevoke.client.core.partition.revocation import Revocation
from asyncrevoke.client.core.poll.leave import Leaving
from asyncrevoke.client.core.poll.poll import Poller
from asyncrevoke.client.core.position.resolver import PositionResolver
from asyncrevoke.client.core.position.seek import Seeking
from asyncrevoke.client.core.queries.offset_queries import OffsetQueries
from asyncrevoke.client.errors import ConsumerClosedError, FatalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.membership.subscription_state import Membership
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.errors import PartitionsError
    from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition
    from asyncrevoke.client.protocol.records import RecordDecoder


class Reactions:
    """Composes the parts, and implements the protocol of each room. Constructors of parts call none
    of these methods."""

    def __init__(
        self,
        config: ConsumerConfig,
        bootstrap: Sequence[Node],
        decode: RecordDecoder,
        *,
        wall_clock_offset: float,
        member_id: str,
        large_from: int,
    ) -> None:
        self.outbox = outbox = Outbox(silence_timeout_of(config), large_from)
        self.wall_clock = WallClock(wall_clock_offset)
        self.assignment = Assignment(outbox, self)
        self.revocation = Revocation(outbox, config, self.assignment, self)
        self.output_topics = OutputTopics(outbox, bootstrap[0])
        self.cluster = ClusterMetadata(outbox, config, bootstrap, self.output_topics, self)
        self.topic_ids = TopicIds(self.cluster)
        self.coordinator = Coordinator(outbox, config, self.cluster, self)
        self.silent_brokers = SilentBrokers(outbox, self.cluster, self.coordinator)
        self.maps = CompletionMaps(outbox, config)
        requested = RequestedOffsets(outbox)
        self.committer = Committer(
            outbox,
            config,
            self.cluster,
            self.coordinator,
            self.assignment,
            self.maps,
            requested,
            self,
        )
        self.completion_tracker = CompletionTracker(
            outbox, config, self.assignment, self.revocation, self.committer, self.maps, self
        )
        self.fetcher = Fetcher(
            outbox, config, self.cluster, decode, self.wall_clock, self.completion_tracker, self
        )
        self.positions = PositionResolver(
            outbox, config, self.cluster, self.coordinator, requested, self.wall_clock, self
        )
        self.seeking = Seeking(
            outbox,
            config,
            self.cluster,
            self.assignment,
            self.positions,
            self.fetcher,
            self.committer,
            self.maps,
            self.completion_tracker,
            self,
        )
        self.offset_queries = OffsetQueries(outbox, config, self.cluster, self.coordinator)
        self._compose_membership(config, member_id)
        self._compose_polls(config)
        self.owes_plan = False

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
        self.subscription = SubscriptionState(
            self.outbox,
            config,
            self.cluster,
            self.assignment,
            self.manual,
            self.classic,
            self.kip848,
            self,
        )

    def _compose_polls(self, config: ConsumerConfig) -> None:
        self.session_guard = SessionGuard(self.outbox, config, self.subscription)
        self.poller = Poller(
            self.outbox,
            config,
            self.assignment,
            self.revocation,
            self.completion_tracker,
            self.fetcher,
            self.session_guard,
            self,
        )
        self.leaving = Leaving(self.outbox, config, self)

    @property
    def membership(self) -> Membership:
        return self.subscription.membership

    # --- each event and each call of the user ----------------------------------------------------

    def after_event(self, now: float, *, plans: bool = True) -> None:
        """What follows from any event: when all revocations are complete the membership goes on,
        fetches are planned, and the listener is notified."""
        while self.revocation.take_barrier_request():
            if self.revocation.at_barrier:
                self.membership.barrier(now)
        self.revocation.set_slowest_commit(self.committer.slowest)
        if self.session_guard.is_enabled:
            self.session_guard.resume_if_confirmed(now)
            self.poller.stop_reader_if_paused(now)
        self.owes_plan = not plans
        if plans and not self.leaving.closing:
            self.fetcher.plan(now)
        self.assignment.flush_notices()

    # --- lifespans -------------------------------------------------------------------------------

    def listener_called(self, now: float, instance_ids: Sequence[int]) -> None:
        """Records of these may be delivered, unless their lifespans are not entered yet."""
        for instance_id in instance_ids:
            self._started(self.assignment.lifespans.listener_called(instance_id))
        self.after_event(now)

    def lifespan_entered(self, now: float, instance_id: int) -> None:
        """Records of it may be delivered, unless the listener has not returned yet."""
        self._started(self.assignment.lifespans.entered(instance_id))
        self.after_event(now)

    def _started(self, instance: PartitionInstance | None) -> None:
        if instance is not None and instance.is_started:
            self.seeking.positioned(instance)
            self.outbox.wake()

    def lifespan_exited(self, now: float, instance_id: int) -> None:
        """The revocation of the partition proceeds to the final commit."""
        if self.assignment.lifespans.exited(instance_id) is not None:
            self.revocation.progress(now)
            self.after_event(now)

    def lifespan_failed(self, now: float, instance_id: int, reason: str) -> None:
        """The partition is lost, and its final commit is not sent."""
        instance = self.assignment.lifespans.exited(instance_id)
        if instance is not None:
            self.revocation.lifespan_failed(now, instance, reason)
            self.after_event(now)

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
        unplaced = [each for each in instances if each.state is InstanceState.INIT]
        if unplaced:
            self.poller.position_set([each.partition for each in unplaced])
            self.seeking.find(now, unplaced)
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

    def revocation_progressed(self, now: float) -> None:
        self.after_event(now)

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
        if self.completion_tracker.position_passed(now, instance):
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
        return partition in self.subscription.added_partitions

    def position_found(
        self, now: float, instance: PartitionInstance, found: OffsetAndMetadata, from_reset: bool
    ) -> None:
        self.seeking.found(now, instance, found, from_reset)

    # --- metadata --------------------------------------------------------------------------------

    def topics_changed(self, now: float) -> None:
        self.subscription.added_partitions.topics_changed()
        self.subscription.metadata_received()
        gone = [i for i in self.assignment.live() if not self.topic_ids.exists(i.partition)]
        self.topic_ids.learn()
        if gone:
            self.revocation.lose(now, gone, "the partition does not exist any more")
            self.membership.rejoin(now, "partitions have gone")
        self.subscription.cluster_changed(now)
        self.membership.metadata_changed(now)

    def metadata_refreshed(self, now: float) -> None:
        """Look-ups and fetches that waited for a leader or a topic are sent."""
        self.subscription.metadata_received()
        self.seeking.leaders_known(now)
        self.positions.leaders_known(now)
        self.fetcher.leaders_known(now)
        self.membership.metadata_refreshed(now)

    # --- membership ------------------------------------------------------------------------------

    @property
    def is_leaving(self) -> bool:
        return self.leaving.under_way

    def partitions_added(self, now: float, instances: list[PartitionInstance]) -> None:
        self.seeking.find(now, instances)

    def membership_ready(self, now: float) -> None:
        self.committer.resume(now)

    def epoch_changed(self, now: float) -> None:
        """Send the commits and the look-ups that waited for the epoch."""
        self.committer.resume(now)
        self.positions.membership_known(now)

    def group_topics_known(self, now: float, topics: frozenset[str]) -> None:
        self.subscription.group_topics_known(now, topics)

    def group_left(self, now: float) -> None:
        """Complete the calls that wait for it, and start what was subscribed to meanwhile."""
        self.subscription.left(now, closing=self.leaving.closing)
        self.leaving.left()
        self.subscription.apply_next(now)

    def group_protocol_unsupported(self, now: float, why: str) -> None:
        self.subscription.fall_back(now, why)

    def membership_failed(self, error: FatalError) -> None:
        """Every poll raises the error, and every waiting call fails with it."""
        if self.poller.fatal is None:
            self.poller.fail(error)
            self.outbox.emit("error", "fatal error; consumer stopped", error=str(error))
        self.committer.fail_waiters(error)
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

    def start_leaving(self, now: float, wait_for_tasks: bool) -> None:
        self.poller.disable_idle_check()
        self.membership.leave(now, wait_for_tasks=wait_for_tasks)
        self.after_event(now)

    def leave_uncommitted(self, now: float) -> None:
        """What is not committed is lost, and the group is left."""
        self.revocation.lose(
            now, self.assignment.live(), "no commit of it was acknowledged within close_timeout"
        )
        self.membership.leave_now(now)
        self.after_event(now)

    def stop_leaving(self, now: float) -> None:
        """The membership ends without the coordinator's response."""
        self.membership.stop_leaving(now)
        self.after_event(now)

    def close_timed_out(self, now: float) -> None:
        """Nothing is sent any more, and what is still assigned is lost."""
        self.membership.stop_sending()
        self.revocation.lose(now, self.assignment.live(), "closing took too long")

    def closed(self) -> None:
        """Every waiting call fails with ConsumerClosedError."""
        error = ConsumerClosedError("the consumer was closed meanwhile")
        self.committer.fail_waiters(error)
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
