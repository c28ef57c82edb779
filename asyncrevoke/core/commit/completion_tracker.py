"""Which returned records are done: by batch, one by one, or held by tasks."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from asyncrevoke.core.partition.offset_tracker import OffsetTracker
from asyncrevoke.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.commit.committer import Committer
    from asyncrevoke.core.commit.completion_maps import CompletionMaps
    from asyncrevoke.core.commit.reactions import CommitReactions
    from asyncrevoke.core.io.outbox import Outbox
    from asyncrevoke.core.partition.assignment import Assignment
    from asyncrevoke.core.partition.hand_out import RecordReader
    from asyncrevoke.core.partition.instance import PartitionInstance
    from asyncrevoke.core.partition.revocation import Revocation
    from asyncrevoke.core.partition.truncated_tracker import TruncatedTracker
    from asyncrevoke.model import Record, TopicPartition

_ROOM_TIMER = "room"
_ROOM_DELAY = 0.002
_FULL_TIMER = "in-flight-full"
_FULL_AFTER = 5.0
_UNLIMITED = 2**31
_NO_OFFSET = 2**63 - 1


class CompletionTracker:
    """Counts what polls return and what the user says of it.

    By batch, which costs nothing per record, the next step counts all of the last one. One by one
    (``track``), each record is counted by :meth:`complete`; for task groups the next step still
    counts those that no task holds. So it does, whatever the style, of the records that a reader
    hands out one by one, and of those each is counted as soon as the next is asked for.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        assignment: Assignment,
        revocation: Revocation,
        commits: Committer,
        maps: CompletionMaps,
        reactions: CommitReactions,
    ) -> None:
        self._outbox = outbox
        self._assignment = assignment
        self._revocation = revocation
        self._commits = commits
        self._maps = maps
        self._reactions = reactions
        self._max_in_flight = config.max_in_flight
        # Polls for a record or two at a time would cost more than what they return.
        self._enough_capacity = min(config.max_poll_records, max(1, config.max_in_flight // 8))
        self._commits_by_itself = config.commit_mode != "manual"
        self._one_by_one = config.commit_mode == "ack"
        self._next_poll_completes = not self._one_by_one
        self._drops_gaps = config.revoke_gaps == "drop"
        # What the last poll result held, to be counted when the next step starts.
        self._returned: list[tuple[PartitionInstance, Sequence[Record]]] = []
        # A poll found no room: whoever makes some must wake it.
        self._at_limit = False
        # Only topics with a limit of their own were without room: some of it is worth no haste.
        self._limited = False
        self._limit_of: Callable[[str], tuple[str, int] | None] | None = None
        # What each partition of a name may get in one round of polling.
        self._shares: dict[str, int] = {}
        self._round = -1

    def track(self, *, one_by_one: bool, next_poll_completes: bool = False) -> None:
        """From now on count one by one or by batch; ``settle``: see the class.

        The batch that the loop works on is included: tasks may take its records.
        """
        if one_by_one and not self._one_by_one:
            self.track_returned()
        self._one_by_one = one_by_one
        self._next_poll_completes = next_poll_completes or not one_by_one

    def track_returned(self) -> None:
        """Count the records that the last poll returned one by one."""
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
        """How many of ``limit`` records may be returned now."""
        if self._one_by_one:
            limit = min(limit, self._max_in_flight - self._assignment.in_flight)
        self._at_limit = limit <= 0
        self._limited = False
        if self._at_limit and not self._outbox.has_timer(_FULL_TIMER):
            self._outbox.set_timer(_FULL_TIMER, now + _FULL_AFTER, self._warn_at_limit)
        return limit

    def limit(self, limit_of: Callable[[str], tuple[str, int] | None]) -> None:
        """From now on, for each topic, a name and how many records of that name may be in flight.

        None for a topic without a limit of its own.
        """
        self._limit_of = limit_of

    def partition_capacity(self, instance: PartitionInstance, round_number: int) -> int:
        """How many records of one partition may be returned in this round of polling.

        What its name has left is shared between the partitions of that name, rounded up, so that
        none is forgotten.
        """
        if self._limit_of is None or (limit := self._limit_of(instance.partition.topic)) is None:
            return _UNLIMITED
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
        return share

    def _is_named(self, instance: PartitionInstance, name: str) -> bool:
        limit = None if self._limit_of is None else self._limit_of(instance.partition.topic)
        return limit is not None and limit[0] == name

    def _warn_at_limit(self, now: float) -> None:
        """Delivery has stood still for a while: name what it waits for."""
        if not self._at_limit:
            return
        oldest = {
            str(instance.partition): tracker.oldest
            for instance in self._assignment.live()
            if (tracker := instance.tracker) is not None and tracker.in_flight
        }
        self._outbox.emit(
            "warning",
            "max_in_flight reached; delivery paused",
            in_flight=self._assignment.in_flight,
            oldest=dict(list(oldest.items())[:10]),
        )
        self._outbox.set_timer(_FULL_TIMER, now + 6 * _FULL_AFTER, self._warn_at_limit)

    def deliver(
        self, partition: TopicPartition, records: list[Record], *, tracked: bool = False
    ) -> PartitionInstance:
        """A poll result returns these records of one partition; ``tracked`` one by one anyway."""
        instance = self._assignment.get(partition)
        if instance is None or instance.tracker is None or instance.buffer is None:
            raise AssertionError(f"records of {partition}, which is not assigned")
        buffer = instance.buffer
        position = self._assignment.hand_out.first_kept(instance)
        if position is None:
            position = buffer.position
        if tracked or self._one_by_one:
            instance.tracker.deliver(records, position, buffer.leader_epoch)
            self._maps.delivered(instance, instance.tracker)
        else:
            instance.tracker.deliver_untracked(len(records), position, buffer.leader_epoch)
        self._assignment.records_delivered(len(records))
        self._returned.append((instance, records))
        return instance

    def hand_out(
        self,
        now: float,
        reader: RecordReader,
        slices: list[tuple[PartitionInstance, Sequence[Record]]],
    ) -> None:
        """What was just delivered, tracked, goes to the user one by one."""
        self._assignment.hand_out.begin(reader, slices, counts=self._next_poll_completes)
        if self._next_poll_completes and self._commits_by_itself:
            self._commits.schedule(now)

    def position_passed(self, now: float, instance: PartitionInstance) -> None:
        """Everything that was fetched of it need not be delivered: count it as passed."""
        tracker, buffer = instance.tracker, instance.buffer
        if tracker is None or buffer is None:
            return
        if tracker.rereads or buffer.position > tracker.position:
            tracker.deliver([], buffer.position, buffer.leader_epoch)
            if self._commits_by_itself:
                self._commits.schedule(now)

    def complete_last_batch(self, now: float) -> None:
        """The next step starts: the last batch counts, except for what tasks hold."""
        returned, self._returned = self._returned, []
        if not self._next_poll_completes or not returned:
            return
        for instance, _ in returned:
            if not instance.terminal:
                self._assignment.complete_pending(instance)
        if self._commits_by_itself:
            self._commits.schedule(now)

    def submit(self, record: Record) -> bool:
        """A task holds this record: the next step does not count it. False if it is not ours."""
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
        """This record is done. False, and nothing happens, if it is lost, released or dropped."""
        instance = self._assignment.instance_of(record.tracker_id)
        if instance is None:
            return False
        tracker = _tracker(instance, record.tracker_id)
        try:
            if tracker is None or not tracker.complete(record.offset):
                return True
        except KeyError:
            return False
        self._records_ended(now, instance)
        return True

    def complete_all(self, now: float, records: Sequence[Record]) -> None:
        """These records are done; those that are lost, released or dropped are passed over."""
        offsets_by_tracker: defaultdict[int, list[int]] = defaultdict(list)
        for record in records:
            offsets_by_tracker[record.tracker_id].append(record.offset)
        for tracker_id, offsets in offsets_by_tracker.items():
            instance = self._assignment.instance_of(tracker_id)
            if instance is None:
                continue
            tracker = _tracker(instance, tracker_id)
            if tracker is not None and (ended := tracker.complete_all(offsets)):
                self._records_ended(now, instance, ended)

    def abandon_all(self, now: float, records: Sequence[Record]) -> None:
        """These records were never started, or have ended without being done."""
        for record in records:
            instance = self._assignment.instance_of(record.tracker_id)
            if instance is not None and _abandon(instance, record):
                self._assignment.records_ended(1)
        for partition in {record.topic_partition for record in records}:
            instance = self._assignment.get(partition)
            if instance is not None:
                self._records_ended(now, instance, 0)

    def droppable_from(self, partition: TopicPartition, unstarted: Sequence[Record]) -> int:
        """At a revoke: from which offset on records that were not started may be dropped, so that
        no record that is done beyond them is handled again by the next owner.

        0 if that is accepted (``revoke_gaps="drop"``), or nothing of the partition is ours any
        more. Those after the last one that was started may be dropped in any case.
        """
        instance = self._assignment.get(partition)
        tracker = None if instance is None else instance.tracker
        if tracker is None or self._drops_gaps:
            return 0
        if not self._revocation.maps_are_read:
            return _NO_OFFSET
        left = {record.offset for record in unstarted}
        started = [offset for offset in tracker.in_flight_offsets() if offset not in left]
        carried = self._maps.lowest_offset_that_fits(tracker, started)
        return _NO_OFFSET if carried is None else carried

    def _records_ended(self, now: float, instance: PartitionInstance, records: int = 1) -> None:
        self._assignment.records_ended(records)
        self._commits.schedule(now)
        if self._at_limit:
            self._capacity_freed(now)
        if instance.former_trackers:
            self._assignment.forget_completed_trackers(instance)
        if instance.revoking:
            self._revocation.progress(now)
            self._reactions.revocation_progressed(now)

    def _capacity_freed(self, now: float) -> None:
        if self._limited:
            enough = False
        else:
            enough = self._max_in_flight - self._assignment.in_flight >= self._enough_capacity
        if enough:
            self._wake(now)
        elif not self._outbox.has_timer(_ROOM_TIMER):
            # What is in flight may take long: then even a little room is better than none.
            self._outbox.set_timer(_ROOM_TIMER, now + _ROOM_DELAY, self._wake)

    def _wake(self, _now: float) -> None:
        self._at_limit = False
        self._outbox.cancel_timer(_ROOM_TIMER)
        self._outbox.cancel_timer(_FULL_TIMER)
        self._outbox.wake()

    def drop_after(self, now: float, partition: TopicPartition, offset: int) -> None:
        """The records after ``offset`` were never started: give them up, and read them again if
        the partition stays ours."""
        self._assignment.take_back()
        instance = self._assignment.get(partition)
        if instance is None or instance.tracker is None:
            return
        dropped = instance.tracker.truncate(offset)
        if dropped:
            self._assignment.records_ended(dropped)
            self._assignment.rewind(instance, instance.tracker.position)
        if instance.revoking:
            self._revocation.progress(now)
        if self._at_limit:
            self._wake(now)
        self._reactions.revocation_progressed(now)


def _tracker(
    instance: PartitionInstance, tracker_id: int
) -> OffsetTracker | TruncatedTracker | None:
    current = instance.tracker
    if current is not None and current.tracker_id == tracker_id:
        return current
    return instance.former_trackers.get(tracker_id)


def _abandon(instance: PartitionInstance, record: Record) -> bool:
    """False if the record has ended before, or was dropped and may be delivered again."""
    tracker = _tracker(instance, record.tracker_id)
    try:
        return tracker is not None and tracker.abandon(record.offset)
    except KeyError:
        return False
