"""The records that polls have returned: which are done, and how many more may be returned."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from asyncrevoke.client import log_events
from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
from asyncrevoke.client.errors import IllegalStateError
from asyncrevoke.client.record_parts import SizedRecords

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.commit.committed_maps import CommittedMaps
    from asyncrevoke.client.core.commit.committer import Committer
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.partition.assignment import Assignment
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.core.partition.reader_records import RecordReader
    from asyncrevoke.client.core.partition.revocation import Revocation
    from asyncrevoke.client.core.partition.truncated_tracker import TruncatedTracker
    from asyncrevoke.client.model import Record, TopicPartition

_ROOM_TIMER = "room"
_ROOM_DELAY = 0.002
_FULL_TIMER = "in-flight-full"
_FULL_AFTER = 5.0
_UNLIMITED = 2**31
# Of the records that wait unstarted if ``max_in_flight`` are in flight, one in so many is reserved.
_RESERVED = 4
_NO_OFFSET = 2**63 - 1


class InFlightLimits(Protocol):
    """Limits below ``max_in_flight``. Implemented by
    :class:`asyncrevoke.handlers.scheduling.handler_ordering.HandlerInFlightLimits`."""

    def of_topic(self, topic: str) -> tuple[str, int] | None:
        """A name, and how many records of all topics with that name may be in flight (at most one
        more for each partition); None for a topic that only ``max_in_flight`` limits."""
        ...


class ReturnedRecords:
    """Counts what polls return and what the user completes: by batch, one by one or by task.

    By batch, the next step completes the whole last batch. One by one (``track``), :meth:`complete`
    completes each record; for task groups, the next step also completes the records that no task
    runs. Records of a reader are completed one by one when the next is taken.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        assignment: Assignment,
        revocation: Revocation,
        commits: Committer,
        maps: CommittedMaps,
    ) -> None:
        self._outbox = outbox
        self._assignment = assignment
        self._revocation = revocation
        self._commits = commits
        self._maps = maps
        self._max_in_flight = config.max_in_flight
        unstarted = max(0, config.max_in_flight - config.concurrency)
        self._reserve = unstarted // _RESERVED
        # Whether partitions are asked for what they may return of their own reserve alone.
        self._draws_on_reserve = False
        self._reserves = False
        # Polls for a record or two at a time would cost more than they return.
        self._enough_capacity = min(config.max_poll_records, max(1, config.max_in_flight // 8))
        # While so many records wait unstarted, less capacity is used after a delay.
        self._small_capacity = min(self._enough_capacity, unstarted // 2)
        self._delay_is_over = False
        self._commits_by_itself = config.commit_mode != "manual"
        self._one_by_one = config.commit_mode == "ack"
        self._next_poll_completes = not self._one_by_one
        self._drops_gaps = config.revoke_gaps == "drop"
        # The last poll result, to be completed when the next step starts.
        self._returned: list[tuple[PartitionInstance, Sequence[Record]]] = []
        # A poll found no capacity: wake it when some is free.
        self._at_limit = False
        # Only topics with a limit of their own had no capacity.
        self._limited = False
        self._limits: InFlightLimits | None = None
        # The capacity of each partition with a limit's name in one round of polling.
        self._shares: dict[str, int] = {}
        self._round = -1
        # Records in flight whose handlers have ended, and that wait for their transaction.
        self._finished = 0

    def set_finished(self, now: float, records: int) -> None:
        """So many records in flight wait for their transaction only: they use no capacity."""
        freed, self._finished = records > self._finished, records
        if freed and self._at_limit:
            self._capacity_freed(now)

    def _free(self) -> int:
        """How many records more may be in flight."""
        return min(
            self._max_in_flight, self._max_in_flight - self._assignment.in_flight + self._finished
        )

    def track(self, *, one_by_one: bool, next_poll_completes: bool = False) -> None:
        """From now on track one by one or by batch, the present batch included; see the class."""
        if one_by_one and not self._one_by_one:
            self.track_returned()
        self._one_by_one = one_by_one
        self._next_poll_completes = next_poll_completes or not one_by_one

    def track_returned(self) -> None:
        """Track the records of the last poll one by one."""
        untracked: dict[OffsetTracker, list[Record]] = {}
        for instance, records in self._returned:
            tracker = _tracker(instance, records[0].tracker_id)
            if isinstance(tracker, OffsetTracker) and tracker.untracked and not instance.terminal:
                untracked.setdefault(tracker, []).extend(records)
        for tracker, records in untracked.items():
            position, epoch = tracker.position, tracker.position_epoch
            tracker.truncate(tracker.commit_point - 1)
            tracker.deliver(records, position, epoch)

    def capacity(self, now: float, limit: int) -> int:
        """How many of ``limit`` records may be returned now, whatever partitions they are of."""
        self._draws_on_reserve = self._reserves = False
        if self._one_by_one:
            shared = self._shared_capacity(limit)
            self._reserves = shared < min(limit, self._free())
            if 0 < shared < min(limit, self._small_capacity) and not self._delay_is_over:
                shared = 0
                self._wake_after_delay(now)
            limit = min(limit, shared)
        self._delay_is_over = False
        self._at_limit = limit <= 0
        self._limited = False
        if self._at_limit and not self._outbox.has_timer(_FULL_TIMER):
            self._outbox.set_timer(_FULL_TIMER, now + _FULL_AFTER, self._warn_at_limit)
        return limit

    def reserved_capacity(self, limit: int) -> int:
        """How many of ``limit`` records more may be returned now of partitions with few in flight,
        if :attr:`reserves_capacity`.

        From now on, until the next :meth:`capacity`, :meth:`partition_capacity` is that of its
        reserve. So a backlog of other partitions does not delay their records until it is done.
        """
        self._draws_on_reserve = True
        return min(limit, self._free())

    @property
    def reserves_capacity(self) -> bool:
        """Whether :meth:`capacity` has left some to partitions with few records in flight."""
        return self._reserves

    def _shared_capacity(self, enough: int) -> int:
        """How many records more may be in flight, without what is reserved for partitions that have
        few; more than ``enough`` may be an estimate."""
        free = self._free()
        reserve = self._partition_reserve()
        if not reserve or free - self._reserve >= enough:
            return free
        return free - sum(max(0, reserve - i.in_flight) for i in self._assignment.live())

    def _partition_reserve(self) -> int:
        partitions = len(self._assignment)
        return self._reserve // partitions if partitions > 1 else 0

    def set_limits(self, limits: InFlightLimits) -> None:
        """From now on these limits apply besides ``max_in_flight``."""
        self._limits = limits

    def partition_capacity(self, instance: PartitionInstance, round_number: int) -> int:
        """How many records of one partition may be returned in this round of polling. The rest of a
        limit is shared between its partitions, rounded up so that none starves."""
        unnamed = _UNLIMITED
        if self._draws_on_reserve:
            unnamed = max(0, self._partition_reserve() - instance.in_flight)
        if self._limits is None:
            return unnamed
        if (limit := self._limits.of_topic(instance.partition.topic)) is None:
            return unnamed
        name, most = limit
        if round_number != self._round:
            self._round = round_number
            self._shares.clear()
        share = self._shares.get(name)
        if share is None:
            known = [i for i in self._assignment.live() if self._is_named(i, name)]
            left = max(0, most - sum(i.in_flight for i in known))
            share = self._shares[name] = -(-left // max(1, len(known)))
        if not share and not self._at_limit:
            self._limited = self._at_limit = True
        return min(share, unnamed)

    def _is_named(self, instance: PartitionInstance, name: str) -> bool:
        limit = None if self._limits is None else self._limits.of_topic(instance.partition.topic)
        return limit is not None and limit[0] == name

    def _warn_at_limit(self, now: float) -> None:
        """Delivery has paused for a while: log the records that it waits for."""
        if not self._at_limit:
            return
        oldest = {
            str(instance.partition): tracker.oldest
            for instance in self._assignment.live()
            if (tracker := instance.tracker) is not None and tracker.in_flight
        }
        self._outbox.emit(
            log_events.MAX_IN_FLIGHT_REACHED,
            in_flight=self._assignment.in_flight,
            oldest=dict(list(oldest.items())[:10]),
        )
        self._outbox.set_timer(_FULL_TIMER, now + 6 * _FULL_AFTER, self._warn_at_limit)

    def deliver(
        self, partition: TopicPartition, records: Sequence[Record], *, tracked: bool = False
    ) -> PartitionInstance:
        """A poll returns these records of one partition; ``tracked``: one by one in any mode."""
        instance = self._assignment.get(partition)
        if instance is None or instance.tracker is None or instance.buffer is None:
            raise AssertionError(f"records of {partition}, which is not assigned")
        buffer = instance.buffer
        position = self._assignment.reader_records.first_kept(instance)
        if position is None:
            position = buffer.position
        # Records that are read again have flags already.
        if tracked or self._one_by_one or instance.tracker.rereads:
            instance.tracker.deliver(records, position, buffer.leader_epoch)
            self._maps.delivered(instance, instance.tracker)
        else:
            instance.tracker.deliver_untracked(len(records), position, buffer.leader_epoch)
        self._assignment.records_delivered(len(records))
        self._returned.append((instance, records))
        return instance

    def return_by_reader(
        self,
        now: float,
        reader: RecordReader,
        slices: list[tuple[PartitionInstance, Sequence[Record]]],
    ) -> None:
        """Return the slices, just delivered and tracked, to the user by this reader."""
        self._assignment.reader_records.begin(reader, slices, counts=self._next_poll_completes)
        if self._next_poll_completes and self._commits_by_itself:
            self._commits.schedule(now)

    def position_passed(self, now: float, instance: PartitionInstance) -> bool:
        """Its fetched batches have no records to deliver: move the tracker past them. False if
        records before them are still to be delivered, which then move it."""
        tracker, buffer = instance.tracker, instance.buffer
        if tracker is None or buffer is None:
            return False
        if self._assignment.reader_records.first_kept(instance) is not None:
            return False
        if not tracker.rereads and buffer.position <= tracker.position:
            return False
        tracker.deliver([], buffer.position, buffer.leader_epoch)
        if self._commits_by_itself:
            self._commits.schedule(now)
        return True

    def complete_last_batch(self, now: float) -> None:
        """The next step starts: complete the last batch, except records that tasks run."""
        returned, self._returned = self._returned, []
        if not self._next_poll_completes or not returned:
            return
        for instance, _ in returned:
            if not instance.terminal:
                self._assignment.complete_pending(instance)
        if self._commits_by_itself:
            self._commits.schedule(now)

    def last_batch(self) -> dict[PartitionInstance, int]:
        """The instances of the last poll result, each with the offset of its first record."""
        first: dict[PartitionInstance, int] = {}
        for instance, records in self._returned:
            first.setdefault(instance, records[0].offset)
        return first

    @property
    def last_batch_count(self) -> int:
        """The records of the last poll result."""
        return sum(len(records) for _, records in self._returned)

    def submit(self, record: Record) -> bool:
        """A task runs this record. False if its partition is lost or released."""
        instance = self._assignment.instance_of(record.tracker_id)
        if instance is None:
            return False
        tracker = _tracker(instance, record.tracker_id)
        if tracker is None or tracker.submit(record.offset):
            return tracker is not None
        if tracker.untracked:
            raise IllegalStateError(
                "this batch was returned before its records were counted one by one: enter the "
                "task group before asking for the first batch"
            )
        return False

    def complete(self, now: float, record: Record) -> bool:
        """Complete this record. False, without effect, if it is lost, released or dropped."""
        instance = self._assignment.instance_of(record.tracker_id)
        if instance is None:
            return False
        tracker = _tracker(instance, record.tracker_id)
        try:
            if tracker is None or not tracker.complete(record.offset):
                return True
        except KeyError:
            return False
        self._records_ended(now, (instance,), 1)
        return True

    def complete_all(self, now: float, records: Sequence[Record]) -> None:
        """Complete these records; ignore those that are lost, released or dropped."""
        offsets_by_tracker: defaultdict[int, list[int]] = defaultdict(list)
        if isinstance(records, SizedRecords):
            for tracker_id, offsets in records.offsets:
                offsets_by_tracker[tracker_id] += offsets
        else:
            for record in records:
                offsets_by_tracker[record.tracker_id].append(record.offset)
        instances, ended = self._complete(offsets_by_tracker)
        if ended:
            self._records_ended(now, instances, ended)

    def complete_offsets(self, now: float, by_tracker: Mapping[int, Sequence[int]]) -> None:
        """Like :meth:`complete_all`, for records given by their offsets for each tracker id."""
        instances, ended = self._complete(by_tracker)
        if ended:
            self._records_ended(now, instances, ended)

    def _complete(
        self, by_tracker: Mapping[int, Sequence[int]]
    ) -> tuple[list[PartitionInstance], int]:
        """The instances in which records have ended, and how many."""
        ended = 0
        instances: list[PartitionInstance] = []
        for tracker_id, offsets in by_tracker.items():
            instance = self._assignment.instance_of(tracker_id)
            if instance is None:
                continue
            tracker = _tracker(instance, tracker_id)
            if tracker is not None and (completed := tracker.complete_all(offsets)):
                ended += completed
                instances.append(instance)
        return instances, ended

    def abandon_all(self, now: float, records: Sequence[Record]) -> None:
        """These records were not started, or have failed: they no longer delay a release, and the
        commit point stays before them."""
        for record in records:
            instance = self._assignment.instance_of(record.tracker_id)
            if instance is not None and _abandon(instance, record):
                self._assignment.records_ended(1)
        partitions = {record.topic_partition for record in records}
        found = (self._assignment.get(partition) for partition in partitions)
        if live := [instance for instance in found if instance is not None]:
            self._records_ended(now, live, 0)

    def droppable_from(self, partition: TopicPartition, unstarted: Sequence[Record]) -> int:
        """At a revocation or a stop: the offset from which on unstarted records may be dropped
        without the next owner repeating a record that is done. Those after the last started one may
        always be. A lifespan may store an offset alone, whoever reads completion maps.

        0 with ``revoke_gaps="drop"``, or if the partition is not assigned.
        """
        instance = self._assignment.get(partition)
        tracker = None if instance is None else instance.tracker
        if instance is None or tracker is None or self._drops_gaps:
            return 0
        if not self._revocation.maps_are_read or instance.has_unfinished_lifespan:
            return _NO_OFFSET
        left = {record.offset for record in unstarted}
        started = [offset for offset in tracker.in_flight_offsets() if offset not in left]
        carried = self._maps.lowest_offset_that_fits(tracker, started)
        return _NO_OFFSET if carried is None else carried

    def _records_ended(
        self, now: float, instances: Sequence[PartitionInstance], records: int
    ) -> None:
        self._assignment.records_ended(records)
        self._commits.schedule(now)
        if self._at_limit:
            self._capacity_freed(now)
        for instance in instances:
            if instance.former_trackers:
                self._assignment.forget_completed_trackers(instance)
            if instance.revoking:
                self._revocation.progress(now)

    def _capacity_freed(self, now: float) -> None:
        if self._limited:
            enough = False
        else:
            enough = self._shared_capacity(self._enough_capacity) >= self._enough_capacity
        if enough:
            self._wake(now)
        else:
            # Records in flight may take long: a little capacity is used after a delay.
            self._wake_after_delay(now)

    def _wake_after_delay(self, now: float) -> None:
        if not self._outbox.has_timer(_ROOM_TIMER):
            self._outbox.set_timer(_ROOM_TIMER, now + _ROOM_DELAY, self._wake)

    def _wake(self, _now: float) -> None:
        self._at_limit = False
        self._delay_is_over = True
        self._outbox.cancel_timer(_ROOM_TIMER)
        self._outbox.cancel_timer(_FULL_TIMER)
        self._outbox.wake()

    def drop_after(self, now: float, partition: TopicPartition, offset: int) -> None:
        """Drop the records after ``offset``, none of which was started; they are read again if the
        partition stays assigned."""
        self._assignment.take_back()
        instance = self._assignment.get(partition)
        if instance is None or instance.tracker is None:
            return
        dropped = instance.tracker.truncate(offset)
        if dropped:
            self._assignment.records_ended(dropped)
            self._assignment.rewind(instance)
        if instance.revoking:
            self._revocation.progress(now)
        if self._at_limit:
            self._wake(now)


def _tracker(
    instance: PartitionInstance, tracker_id: int
) -> OffsetTracker | TruncatedTracker | None:
    current = instance.tracker
    if current is not None and current.tracker_id == tracker_id:
        return current
    return instance.former_trackers.get(tracker_id)


def _abandon(instance: PartitionInstance, record: Record) -> bool:
    """Abandon a record; False if it ended before, or was dropped."""
    tracker = _tracker(instance, record.tracker_id)
    try:
        return tracker is not None and tracker.abandon(record.offset)
    except KeyError:
        return False
