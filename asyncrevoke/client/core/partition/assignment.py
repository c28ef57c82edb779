"""The live partition instances, their trackers, their lifespans, and notifications of their
changes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import (
    CompleteRequest,
    EnterLifespan,
    ExitLifespan,
    LoseLifespan,
    Notify,
    NotifyKind,
)
from asyncrevoke.client.core.partition.instance import (
    InstanceState,
    InstanceTransition,
    LifespanState,
    PartitionInstance,
)
from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
from asyncrevoke.client.core.partition.reader_records import ReaderRecords
from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
from asyncrevoke.client.core.partition.truncated_tracker import TruncatedTracker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.partition.completion_map import CompletionMap
    from asyncrevoke.client.core.partition.reactions import PartitionReactions
    from asyncrevoke.client.model import TopicPartition

# Each consumer of a process has its own range of tracker ids, so that a record that is passed to
# the wrong consumer is recognised, however long ago its partition was released.
_CONSUMERS = itertools.count()
_TRACKER_ID_BITS = 32

_NOTICE_ORDER = (NotifyKind.LOST, NotifyKind.REVOKED, NotifyKind.ASSIGNED)
_RESUMABLE = frozenset((LifespanState.NONE, LifespanState.ENTERED))


class Lifespans:
    """The lifespans of all live instances, and the listener calls that delivery waits for.

    A lifespan is what the user's code opens before the first record of a partition, and closes
    after the last one and before the final commit. The core decides when it is entered and exited,
    and asks for it by an effect. While it is not entered nothing of the partition is fetched or
    delivered, and while it is not exited the partition is not released. One lifespan belongs to one
    instance, so that it is entered once.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._enters_lifespans = False
        self._awaits_listener = False
        self._by_id: dict[int, PartitionInstance] = {}

    def enter_lifespans(self) -> None:
        """From now on each instance has a lifespan. To be called before any is assigned."""
        self._enters_lifespans = True

    def await_listener(self) -> None:
        """From now on nothing of an instance is delivered before the listener's
        ``on_partitions_assigned`` has returned for it."""
        self._awaits_listener = True

    def positioned(self, instance: PartitionInstance, offset: int) -> None:
        """Its first position is known: it may be delivered unless its start is waited for."""
        if self._awaits_listener:
            instance.set_listener_pending(True)
        if self._enters_lifespans:
            instance.set_lifespan(LifespanState.ENTERING)
        if not instance.is_started:
            self._by_id[instance.instance_id] = instance
        if self._enters_lifespans:
            lifespan = EnterLifespan(instance.instance_id, instance.partition, offset)
            self._outbox.put(lifespan)

    def pending_listener_calls(self, instances: Iterable[PartitionInstance]) -> tuple[int, ...]:
        """The ids of those whose start waits for the listener."""
        return tuple(i.instance_id for i in instances if i.listener_pending)

    def listener_called(self, instance_id: int) -> PartitionInstance | None:
        """The listener has returned for this instance; None if it has ended meanwhile."""
        instance = self._by_id.get(instance_id)
        if instance is not None:
            instance.set_listener_pending(False)
        return instance

    def entered(self, instance_id: int) -> PartitionInstance | None:
        """Its lifespan is entered. None if the instance has ended, or the lifespan must exit."""
        instance = self._by_id.get(instance_id)
        if instance is None or instance.lifespan is not LifespanState.ENTERING:
            return None
        instance.set_lifespan(LifespanState.ENTERED)
        return instance

    def cancel_entering(self, instance: PartitionInstance) -> None:
        """Its revocation is requested: a lifespan that is being entered exits at once."""
        if instance.lifespan is LifespanState.ENTERING:
            self.exit(instance, drained=True)

    def exit(self, instance: PartitionInstance, *, drained: bool) -> bool:
        """Nothing more of it is processed. Returns whether its lifespan has exited, or it has none;
        otherwise it exits now. ``drained``: no handler of it runs any more."""
        if instance.lifespan in (LifespanState.ENTERING, LifespanState.ENTERED):
            instance.set_lifespan(LifespanState.EXITING)
            self._outbox.put(ExitLifespan(instance.instance_id, drained))
        return instance.lifespan is not LifespanState.EXITING

    def exited(self, instance_id: int) -> PartitionInstance | None:
        """Its lifespan has exited; None if the instance has ended."""
        instance = self._by_id.get(instance_id)
        if instance is not None:
            instance.set_lifespan(LifespanState.EXITED)
        return instance

    def instance_ended(self, instance: PartitionInstance) -> None:
        """The instance is released or lost, and with it a lifespan that has not exited."""
        known = self._by_id.pop(instance.instance_id, None) is not None
        if known and instance.has_unfinished_lifespan:
            self._outbox.put(LoseLifespan(instance.instance_id))

    @staticmethod
    def is_resumable(instance: PartitionInstance) -> bool:
        """Whether records may be delivered again after a withdrawn revocation: not if the lifespan
        exits."""
        return instance.lifespan in _RESUMABLE


class Assignment:
    """Every live instance by partition. ``in_flight`` counts the records of all of them."""

    def __init__(self, outbox: Outbox, reactions: PartitionReactions) -> None:
        self._outbox = outbox
        self._reactions = reactions
        self._live: dict[TopicPartition, PartitionInstance] = {}
        self._by_tracker: dict[int, PartitionInstance] = {}
        self._before_first_tracker_id = next(_CONSUMERS) << _TRACKER_ID_BITS
        self._last_tracker_id = self._before_first_tracker_id
        self._instances = 0
        # With the last positions of partitions that have ended.
        self._notices: dict[NotifyKind, dict[TopicPartition, int | None]] = {
            kind: {} for kind in _NOTICE_ORDER
        }
        self.in_flight = 0
        self.reader_records = ReaderRecords()
        self.lifespans = Lifespans(outbox)
        # Records that former owners had completed, in buffers that are gone.
        self._skipped = 0
        # Calls that wait for partitions.
        self._waiting: list[int] = []
        # Lost, and not yet listed in a poll result.
        self.lost: dict[TopicPartition, PartitionInstance] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._live

    def get(self, partition: TopicPartition) -> PartitionInstance | None:
        """The live instance of a partition."""
        return self._live.get(partition)

    def live(self) -> list[PartitionInstance]:
        """All live instances, oldest first."""
        return list(self._live.values())

    def revoking(self) -> list[PartitionInstance]:
        """The live instances that are being revoked, oldest first."""
        return [instance for instance in self._live.values() if instance.revoking]

    def partitions(self) -> frozenset[TopicPartition]:
        """The assigned partitions, those being revoked included."""
        return frozenset(self._live)

    def instance_of(self, tracker_id: int) -> PartitionInstance | None:
        """The live instance that has or had this tracker, None if it ended.

        Raises ValueError for a tracker of another consumer.
        """
        instance = self._by_tracker.get(tracker_id)
        if instance is None and not (
            self._before_first_tracker_id < tracker_id <= self._last_tracker_id
        ):
            raise ValueError("this record was not returned by this consumer")
        return instance

    def add(self, partitions: Iterable[TopicPartition]) -> list[PartitionInstance]:
        """Start a new instance for each partition; none of them may be live."""
        added: list[PartitionInstance] = []
        for partition in partitions:
            self._instances += 1
            instance = PartitionInstance(partition, self._instances)
            self._live[partition] = instance
            added.append(instance)
        return added

    def set_position(
        self,
        instance: PartitionInstance,
        offset: int,
        leader_epoch: int = -1,
        finished: CompletionMap | None = None,
    ) -> None:
        """Set the first or a sought position. Records that are ``finished`` are not delivered."""
        self.take_back()
        if instance.tracker is not None:
            old = instance.tracker
            if old.in_flight:
                instance.keep_former_tracker(old.tracker_id, old)
            else:
                del self._by_tracker[old.tracker_id]
        self._last_tracker_id += 1
        tracker = OffsetTracker(self._last_tracker_id, offset, leader_epoch, finished)
        instance.read_with(tracker)
        self._read_from(instance, tracker, offset)
        self._by_tracker[tracker.tracker_id] = instance
        if instance.state is InstanceState.INIT:
            instance.transition(InstanceTransition.POSITIONED)
            self.lifespans.positioned(instance, offset)
            self._notices[NotifyKind.ASSIGNED][instance.partition] = offset
        self._reactions.position_changed(instance)

    def rewind(self, instance: PartitionInstance) -> None:
        """Read again, with the same tracker, records that were dropped."""
        tracker = instance.tracker
        if tracker is not None:
            if tracker.rereads and tracker.has_abandoned:
                self.read_abandoned_again(instance)
            else:
                self._read_from(instance, tracker, tracker.position)
            self._reactions.position_changed(instance)

    def _read_from(self, instance: PartitionInstance, tracker: OffsetTracker, offset: int) -> None:
        self._set_new_buffer(
            instance, tracker, offset, tracker.completed_earlier, tracker.position_epoch
        )

    def _set_new_buffer(
        self,
        instance: PartitionInstance,
        tracker: OffsetTracker,
        offset: int,
        finished: CompletionMap | None,
        leader_epoch: int,
    ) -> None:
        self.reader_records.forget(instance)
        buffer = RecordBuffer(
            instance.partition, tracker.tracker_id, offset, finished, leader_epoch
        )
        if (old := instance.buffer) is not None:
            self._skipped += old.skipped_completed
            if old.tracker_id == tracker.tracker_id:
                buffer.set_time_sought(old.time_sought)
        instance.set_buffer(buffer)

    def read_abandoned_again(self, instance: PartitionInstance) -> None:
        """Read abandoned records again, after a withdrawn revocation or a resume, with the same
        tracker: records that are done or in flight are not delivered again."""
        tracker = instance.tracker
        if tracker is not None and tracker.has_abandoned:
            self.take_back()
            offset, passed_over = tracker.read_again()
            epoch = tracker.epoch_before(offset)
            self._set_new_buffer(instance, tracker, offset, passed_over, epoch)

    def read_from_truncation(
        self, instance: PartitionInstance, offset: int, leader_epoch: int
    ) -> None:
        """The log was truncated at ``offset``, beyond the commit point: read on from there with
        another tracker id. Records before ``offset`` keep their state; those after it are lost, and
        completing them moves no commit point."""
        self.take_back()
        tracker = instance.tracker
        if tracker is None:
            return
        former_id = tracker.tracker_id
        self._last_tracker_id += 1
        lost = tracker.split_at(offset, leader_epoch, self._last_tracker_id)
        self._by_tracker[tracker.tracker_id] = instance
        truncated = TruncatedTracker(offset, tracker, lost)
        for former in instance.former_trackers.values():
            if isinstance(former, TruncatedTracker):
                former.replace(tracker, truncated)
        instance.keep_former_tracker(former_id, truncated)
        self.forget_completed_trackers(instance)
        unverified = instance.map_unverified and tracker.completed_earlier is not None
        instance.set_map_unverified(unverified)
        if tracker.has_abandoned:
            self.read_abandoned_again(instance)
        else:
            self._read_from(instance, tracker, tracker.position)
        self._reactions.position_changed(instance)

    def pass_over_deleted(self, instance: PartitionInstance, log_start: int) -> bool:
        """Read on after records to be read again that were deleted, as the log starts at
        ``log_start``. False if it starts before them, or after the position."""
        tracker, buffer = instance.tracker, instance.buffer
        if tracker is None or buffer is None or not tracker.rereads:
            return False
        if not buffer.position < log_start <= tracker.position:
            return False
        tracker.deliver([], log_start, -1)
        self.rewind(instance)
        return True

    def complete_pending(self, instance: PartitionInstance) -> None:
        """Complete every returned record of the instance that no task runs."""
        if instance.tracker is not None:
            self.in_flight -= instance.tracker.complete_pending()
        if instance.former_trackers:
            for tracker in instance.former_trackers.values():
                self.in_flight -= tracker.complete_pending()
            self.forget_completed_trackers(instance)

    def position(self, instance: PartitionInstance) -> int | None:
        """The offset of the next record to return, None while it is unknown."""
        if instance.tracker is None:
            return None
        left = self.reader_records.first_left(instance)
        return instance.tracker.position if left is None else left

    def returned(self) -> dict[PartitionInstance, int]:
        """How many returned records of each live instance are not done."""
        self.complete_read()
        left = self.reader_records.left()
        return {i: i.in_flight - left.get(i, 0) for i in self._live.values()}

    def complete_read(self) -> None:
        """Complete the records that the user has iterated past; see :class:`ReaderRecords`."""
        self.in_flight -= self.reader_records.count()

    def records_delivered(self, records: int) -> None:
        """Count this many more records as in flight."""
        self.in_flight += records

    def records_ended(self, records: int) -> None:
        """Count this many records as in flight no longer."""
        self.in_flight -= records

    def take_lost(self) -> frozenset[TopicPartition]:
        """The partitions that were lost since the last call, for the result of a poll."""
        lost = frozenset(self.lost)
        self.lost.clear()
        return lost

    def take_back(self) -> None:
        """Stop a reader before deliveries change; see :meth:`ReaderRecords.take_back`."""
        if self.reader_records.is_open:
            self.in_flight -= self.reader_records.take_back()

    def forget_completed_trackers(self, instance: PartitionInstance) -> None:
        """Drop the trackers of former positions that have no record in flight."""
        for tracker_id, tracker in list(instance.former_trackers.items()):
            if tracker.ended:
                instance.drop_former_tracker(tracker_id)
                del self._by_tracker[tracker_id]

    def end(self, instance: PartitionInstance, step: InstanceTransition) -> None:
        """Release or lose an instance, which never commits again."""
        position = self.position(instance)
        self.take_back()
        shown = instance.tracker is not None
        self.in_flight -= instance.in_flight
        instance.transition(step)
        del self._live[instance.partition]
        for tracker_id in instance.former_trackers:
            del self._by_tracker[tracker_id]
        if instance.tracker is not None:
            del self._by_tracker[instance.tracker.tracker_id]
        self._reactions.instance_ended(instance)
        self.lifespans.instance_ended(instance)
        self.reader_records.forget(instance)
        if instance.buffer is not None:
            self._skipped += instance.buffer.skipped_completed
        instance.set_buffer(None)
        if instance.state is InstanceState.LOST:
            self.lost[instance.partition] = instance
            self._notices[NotifyKind.LOST][instance.partition] = position
        elif shown:
            self._notices[NotifyKind.REVOKED][instance.partition] = position

    def skipped_completed(self) -> int:
        """Records that were not delivered because former owners had completed them."""
        buffers = (instance.buffer for instance in self._live.values())
        return self._skipped + sum(
            buffer.skipped_completed for buffer in buffers if buffer is not None
        )

    def wait(self, call_id: int) -> None:
        """Complete this call with the next :meth:`flush_notices` that finds partitions."""
        self._waiting.append(call_id)

    def fail_waiting(self, error: Exception) -> None:
        """No partitions will come: end the calls that wait for them."""
        for call_id in self._waiting:
            self._outbox.put(CompleteRequest(call_id, error=error))
        self._waiting.clear()

    def flush_notices(self) -> None:
        """Notify the listener of partitions lost, then revoked, then assigned; and end the calls
        that wait for partitions, if there are any."""
        if self._waiting and self._live:
            for call_id in self._waiting:
                self._outbox.put(CompleteRequest(call_id, self.partitions()))
            self._waiting.clear()
        for kind, partitions in self._notices.items():
            if partitions:
                if kind is NotifyKind.ASSIGNED:
                    live = (self._live[tp] for tp in partitions if tp in self._live)
                    waiting = self.lifespans.pending_listener_calls(live)
                    self._outbox.put(Notify(kind, frozenset(partitions), waiting))
                else:
                    self._outbox.put(Notify(kind, frozenset(partitions), (), partitions.copy()))
                partitions.clear()
