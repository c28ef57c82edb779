"""The whole consumer without I/O: composes the parts, and decides what each poll returns.

``handle(now, event)`` never raises on what a broker sends. Only ``poll`` moves delivered positions
and consumes ``lost``. It does not await, so that cancelling a waiting poll loses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import CompleteRequest, Effect, Event, Node
from asyncrevoke.client.core.io.outbox import LARGE_FROM
from asyncrevoke.client.core.reactions import Reactions
from asyncrevoke.client.model import (
    BlockingRecord,
    GroupMetadata,
    Health,
    OffsetAndMetadata,
    PollResult,
    Record,
    TopicPartition,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.fetch.delayed_topic import TopicDelay
    from asyncrevoke.client.core.io.deadline import Deadline
    from asyncrevoke.client.core.membership.subscription_state import Membership
    from asyncrevoke.client.core.partition.completion_map import CompletionMap
    from asyncrevoke.client.core.partition.reader_records import RecordReader
    from asyncrevoke.client.errors import FatalError
    from asyncrevoke.client.model import BrokerPattern
    from asyncrevoke.client.protocol.records import RecordDecoder


class ConsumerCore:
    """One consumer. What follows in other parts goes through its methods; the parts that it shows
    are called directly.

    ``wall_clock_offset`` is the wall clock minus ``now`` in seconds, and ``member_id`` one that no
    other consumer has (KIP-848); ``large_from``: see :class:`Outbox`.
    """

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
        self._config = config
        parts = Reactions(
            config,
            bootstrap,
            decode,
            wall_clock_offset=wall_clock_offset,
            member_id=member_id,
            large_from=large_from,
        )
        self._parts = parts
        self._outbox = parts.outbox
        self.assignment = parts.assignment
        self.revocation = parts.revocation
        self._committer = parts.committer
        self.completion_tracker = parts.completion_tracker
        self.fetcher = parts.fetcher
        self.seeking = parts.seeking
        self._poller = parts.poller
        self._subscription = parts.subscription
        self._leaving = parts.leaving
        self._calls = 0
        self._stopped_at: float | None = None

    @property
    def _membership(self) -> Membership:
        return self._subscription.membership

    # --- events ----------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Send the first requests."""
        self._parts.cluster.start(now)
        self._subscription.start(now)
        self._parts.after_event(now)

    def handle(self, now: float, event: Event) -> list[Effect]:
        """Handle one event, and return all effects since the last call."""
        self._parts.silent_brokers.handle(now, event)
        self._outbox.route(now, event)
        self._parts.after_event(now)
        return self._outbox.take()

    def take_effects(self) -> list[Effect]:
        """The effects of other calls."""
        return self._outbox.take()

    @property
    def has_effects(self) -> bool:
        """Whether :meth:`take_effects` has anything to return."""
        return self._outbox.pending

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
    ) -> PollResult | None:
        """Return records, revocations and losses; None if there are none yet: call again.

        The first call after a result begins a step: the last batch is completed, and announced
        partitions are released or delayed (``docs/internals/how-it-runs.md``, the rules of a
        poll). ``expired`` ends the step with whatever there is. Raises an error once; a fatal error
        each time. When ``ended`` is True there will be no further result.

        With ``until_moved``, a step also ends, without records, when a position has passed offsets
        that have none: control batches, aborted transactions, records completed earlier. So a loop
        that reads up to an offset finds out.

        With ``records_first``, if there are records, fetches are left for :meth:`plan_owed`, which
        is to be called soon. With a ``reader`` the user gets the records one by one, see
        :mod:`.reader_records`.
        """
        result = None
        try:
            result = self._poller.poll(
                now, max_records, expired=expired, until_moved=until_moved, reader=reader
            )
            return result
        finally:
            has_records = result is not None and bool(result.by_partition())
            self._parts.after_event(now, plans=not (records_first and has_records))

    def poll_for_handlers(self) -> None:
        """Handlers take the records: polls return more than ``max_poll_records`` if these are
        small, but at most a quarter of ``max_in_flight``."""
        self._poller.poll_for_handlers()

    @property
    def owes_plan(self) -> bool:
        """Whether a poll has left fetches to be planned."""
        return self._parts.owes_plan

    def plan_owed(self, now: float) -> None:
        """Plan the fetches that a poll has left."""
        if self._parts.owes_plan:
            self._parts.after_event(now)

    @property
    def ended(self) -> bool:
        """Whether the iterator ends: stopped (the last batch has been counted) or closing."""
        return self._poller.ended

    @property
    def stopping(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._poller.stopping

    def interrupt(self, now: float) -> None:
        """A waiting step was cancelled; see :meth:`Poller.interrupt`."""
        self._poller.interrupt(now)
        self._parts.after_event(now)

    def stop(self, now: float) -> None:
        """End the iterator with its next step, which counts the last batch, or a waiting one."""
        if self._stopped_at is None:
            self._stopped_at = now
        self._poller.stop()
        self._parts.after_event(now)

    def boundary(self, now: float, *, inside: bool) -> None:
        """The application starts or stops to await the library outside a poll; see
        :meth:`Poller.boundary`."""
        self._poller.boundary(now, inside=inside)
        self._parts.after_event(now)

    def may_begin_until(self, now: float) -> float:
        """Until when queued records may be started without asking again; before ``now``: none, as
        the membership is not confirmed."""
        return self._parts.session_guard.may_begin_until(now)

    def await_confirmation(self, now: float) -> int:
        """Wait until queued records may be started. Completes the call."""
        call_id = self._call_id()
        self._parts.session_guard.wait(now, call_id)
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

    # --- lifespans -------------------------------------------------------------------------------

    def listener_called(self, now: float, instance_ids: Sequence[int]) -> None:
        """``on_partitions_assigned`` has returned for these: they may be delivered."""
        self._parts.listener_called(now, instance_ids)

    def lifespan_entered(self, now: float, instance_id: int) -> None:
        """A lifespan is entered: its partition may be delivered."""
        self._parts.lifespan_entered(now, instance_id)

    def lifespan_exited(self, now: float, instance_id: int) -> None:
        """A lifespan has exited, or was not entered: its partition may be released."""
        self._parts.lifespan_exited(now, instance_id)

    def lifespan_failed(self, now: float, instance_id: int, reason: str) -> None:
        """The exit of a lifespan has failed: its partition is lost without a final commit."""
        self._parts.lifespan_failed(now, instance_id, reason)

    def offset_to_commit(self, partition: TopicPartition) -> int | None:
        """The offset before which all records are done; None while there is no position."""
        instance = self.assignment.get(partition)
        tracker = None if instance is None else instance.tracker
        return None if tracker is None else tracker.commit_point

    def has_completed_beyond(self, partition: TopicPartition) -> bool:
        """Whether a record after :meth:`offset_to_commit` was completed since the partition was
        positioned."""
        instance = self.assignment.get(partition)
        tracker = None if instance is None else instance.tracker
        return tracker is not None and tracker.count_done(tracker.commit_point) > 0

    def completion_map(self, partition: TopicPartition) -> str | None:
        """What is completed after :meth:`offset_to_commit`, empty if nothing is; None if a map has
        no room for it."""
        instance = self.assignment.get(partition)
        tracker = None if instance is None else instance.tracker
        return "" if tracker is None else self._parts.maps.complete(tracker)

    def revocation_ends_in(self, now: float, partition: TopicPartition) -> float | None:
        """Seconds until the partition is lost unless it is released, or its last commit is sent;
        None if it is not revoked, or has no deadline."""
        instance = self.assignment.get(partition)
        if instance is None or not instance.revoking or instance.deadline is None:
            return None
        return instance.deadline - self.revocation.margin(instance) - now

    # --- subscription ----------------------------------------------------------------------------

    def subscribe(
        self,
        now: float,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | BrokerPattern | None = None,
    ) -> None:
        """Replace the subscription; the assignment changes with the next rebalance (KIP-70)."""
        self._subscription.subscribe(now, topics, pattern)
        self._parts.after_event(now)

    def assign(self, now: float, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without the group's help."""
        self._subscription.assign(now, partitions)
        self._parts.after_event(now)

    def delay(self, delays: Mapping[str, TopicDelay]) -> None:
        """Deliver the records of these topics when they are due, and skip none, whatever
        ``auto_offset_reset`` says. Call before they are subscribed to."""
        self.fetcher.set_delays(delays)
        self._parts.positions.set_complete_topics(delays.keys())

    def set_output_topics(self, topics: Iterable[str]) -> None:
        """Report these topics as missing unless they exist; to be called before :meth:`start`."""
        self._parts.output_topics.set_topics(topics)

    def set_wall_clock(self, offset: float) -> None:
        """Set the wall clock minus ``now``, in seconds."""
        self._parts.wall_clock.set_offset(offset)

    def unsubscribe(self, now: float) -> int:
        """Drain, commit, release, leave, then clear the subscription. Completes the call within
        close_timeout: what is not committed by then is lost."""
        call_id = self._call_id()
        self._subscription.forget_next()
        self._leaving.unsubscribe(now, call_id)
        return call_id

    def subscription(self) -> frozenset[str]:
        """See :meth:`SubscriptionState.subscription`."""
        return self._subscription.subscription()

    # --- positions -------------------------------------------------------------------------------

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See :meth:`Seeking.pause`."""
        self.seeking.pause(partitions)

    def resume(self, now: float, partitions: Iterable[TopicPartition]) -> None:
        """See :meth:`Seeking.resume`."""
        self.seeking.resume(partitions)
        self._parts.after_event(now)

    def fetch_until(self, now: float, ends: Mapping[TopicPartition, int]) -> None:
        """See :meth:`Seeking.fetch_until`."""
        self.seeking.fetch_until(ends)
        self._parts.after_event(now)

    def seek(
        self,
        now: float,
        partition: TopicPartition,
        offset: int,
        completed: CompletionMap | None = None,
    ) -> None:
        """See :meth:`Seeking.seek`."""
        self.seeking.seek(now, partition, offset, completed)
        self._poller.position_set((partition,))
        self._parts.after_event(now)

    def seek_to(self, now: float, partitions: Iterable[TopicPartition], timestamp: int) -> int:
        """See :meth:`Seeking.seek_to`. Completes the call."""
        call_id, wanted = self._call_id(), tuple(partitions)
        self.seeking.seek_to(now, call_id, wanted, timestamp)
        self._poller.position_set(wanted)
        self._parts.after_event(now)
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
        if self._poller.fatal is not None:
            self._outbox.put(CompleteRequest(call_id, error=self._poller.fatal))
        else:
            self._committer.request(now, call_id, offsets)
        self._parts.after_event(now)
        return call_id

    def wait_for_assignment(self, now: float) -> int:
        """Wait until partitions are assigned. Completes the call with all that are."""
        call_id = self._call_id()
        if self._poller.fatal is not None:
            self._outbox.put(CompleteRequest(call_id, error=self._poller.fatal))
        else:
            self.assignment.wait(call_id)
        self._parts.after_event(now)
        return call_id

    def committed(self, now: float, partitions: Iterable[TopicPartition]) -> int:
        """Ask the coordinator what the group has committed. Completes the call."""
        call_id = self._call_id()
        self._parts.offset_queries.committed(now, call_id, list(partitions))
        return call_id

    def offsets_for_times(self, now: float, timestamps: Mapping[TopicPartition, int]) -> int:
        """Ask the leaders for offsets by timestamp (or EARLIEST/LATEST). Completes the call."""
        call_id = self._call_id()
        self._parts.offset_queries.offsets_for_times(now, call_id, timestamps)
        return call_id

    def partitions_for_topic(self, now: float, topic: str) -> int:
        """Ask the cluster which partitions a topic has. Completes the call."""
        call_id = self._call_id()
        self._parts.offset_queries.partitions_for_topic(now, call_id, topic)
        return call_id

    def describe_topics(self, now: float, topics: Iterable[str] | None) -> int:
        """Ask the cluster for ids and partitions of topics, all for None. Completes the call."""
        call_id = self._call_id()
        self._parts.offset_queries.describe_topics(now, call_id, topics)
        return call_id

    # --- leaving ---------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether closing has ended."""
        return self._leaving.closed

    def leave_at_close(self, leave: bool) -> None:
        """Whether closing leaves the group: by default dynamic members do, static ones do not."""
        for membership in (self._parts.classic, self._parts.kip848):
            if membership is not None:
                membership.set_sends_leave(leave)

    def close(self, now: float, *, graceful: bool = True, deadline: Deadline | None = None) -> int:
        """Release everything, commit what is done, leave. Completes the call by ``deadline`` (None:
        after close_timeout). ``graceful`` waits for tasks and handlers until ``deadline.work``;
        another call may end that wait."""
        call_id = self._call_id()
        joined = self._subscription.started and self._poller.fatal is None
        self._poller.end()
        if joined and not self._leaving.closing:
            self._leaving.set_sessions_ending(self.fetcher.end_sessions())
        self._leaving.close(now, call_id, graceful=graceful, joined=joined, deadline=deadline)
        return call_id

    # --- errors and facts ------------------------------------------------------------------------

    def fail(self, now: float, error: FatalError) -> None:
        """A permanent failure outside the core: everything is lost, and polls raise ``error``."""
        self._membership.fail(now, error)
        self._parts.after_event(now)

    def alive_until(self, now: float) -> float:
        """When ``max_poll_interval`` is over for the loop body that runs, or for one that started
        now."""
        self._poller.note_records_taken(now)
        since = now if self._poller.idle_since is None else self._poller.idle_since
        return since + self._config.max_poll_interval

    def group_metadata(self) -> GroupMetadata:
        """The identity of this member in the group."""
        return self._membership.member_identity

    def blocking_records(self, now: float) -> list[BlockingRecord]:
        """See :meth:`Revocation.blocking_records`."""
        return self.revocation.blocking_records(now, self._stopped_at)

    def health(self, now: float) -> Health:
        """A snapshot of the consumer's state."""
        self._poller.note_records_taken(now)
        confirmed = self._membership.confirmed_at
        node = self._parts.coordinator.node
        return Health(
            state=self._membership.state.value,
            coordinator=None if node is None else node.address,
            heartbeat_age=None if confirmed is None else now - confirmed,
            idle_seconds=None if self._poller.idle_since is None else now - self._poller.idle_since,
            in_flight=sum(self.assignment.returned().values()),
            assigned=len(self.assignment),
            revoking=len(self.assignment.revoking()),
            paused_partitions=self.seeking.paused(),
            skipped_completed=self.assignment.skipped_completed(),
            error=self._poller.fatal,
            missing_topics=self._parts.cluster.missing_topics(),
            rejected_topics=self._parts.cluster.rejected_topics(),
            unreachable_brokers=tuple(
                node.address for node in self._parts.cluster.unreachable_brokers()
            ),
            session_timeout=self._membership.session,
            throttled_brokers=self._parts.cluster.brokers.throttled(now),
        )
