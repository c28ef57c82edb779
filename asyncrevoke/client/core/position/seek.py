"""Positions that were found, sought, or are outside the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import CompleteRequest
from asyncrevoke.client.core.partition.record_buffer import RecordBuffer, SoughtTime
from asyncrevoke.client.errors import (
    IllegalStateError,
    LogTruncationError,
    OffsetOutOfRangeError,
    PartitionsError,
)
from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition, Value
from asyncrevoke.client.protocol.messages import EARLIEST_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.commit.committed_maps import CommittedMaps
    from asyncrevoke.client.core.commit.committer import Committer
    from asyncrevoke.client.core.commit.returned_records import ReturnedRecords
    from asyncrevoke.client.core.fetch.fetcher import Fetcher
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.partition.assignment import Assignment
    from asyncrevoke.client.core.partition.completion_map import CompletionMap
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.core.position.reactions import PositionReactions
    from asyncrevoke.client.core.position.resolver import PositionResolver


class _Outside(Value, frozen=True):
    """A buffer whose position is outside the log; ``rereads``: that of records to be read again."""

    buffer: RecordBuffer | None
    rereads: bool


class Seeking:
    """Positions, pauses and lag as the user sees them, and what changes them."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        cluster: ClusterMetadata,
        assignment: Assignment,
        positions: PositionResolver,
        fetcher: Fetcher,
        committer: Committer,
        maps: CommittedMaps,
        returned_records: ReturnedRecords,
        reactions: PositionReactions,
    ) -> None:
        self._outbox = outbox
        self._commits_by_itself = config.commit_mode != "manual"
        self._cluster = cluster
        self._assignment = assignment
        self._positions = positions
        self._fetcher = fetcher
        self._committer = committer
        self._maps = maps
        self._returned_records = returned_records
        self._reactions = reactions
        # Instances whose new position is being looked up, and the call that waits for it.
        self._calls: dict[PartitionInstance, int] = {}
        # Instances whose position is outside the log, which may be another topic's by now, and the
        # metadata request that shows it.
        self._awaiting_topic_id: dict[PartitionInstance, tuple[RecordBuffer | None, int]] = {}
        # Instances that are being reset because their position is outside the log.
        self._resetting: dict[PartitionInstance, _Outside] = {}

    def live(self, partition: TopicPartition) -> PartitionInstance:
        """The instance of an assigned partition. Raises IllegalStateError."""
        instance = self._assignment.get(partition)
        if instance is None:
            raise IllegalStateError(
                f"{partition[0]}-{partition[1]} is not assigned to this consumer; "
                "assignment() tells what is"
            )
        return instance

    def _seekable(self, partition: TopicPartition) -> PartitionInstance:
        instance = self.live(partition)
        if instance.revoking:
            raise IllegalStateError(
                f"{partition[0]}-{partition[1]} is being revoked: its position cannot be changed "
                "here any more"
            )
        return instance

    # --- calls of the user -----------------------------------------------------------------------

    def pause(self, _now: float, partitions: Iterable[TopicPartition]) -> None:
        """Deliver and fetch no records of these until they are resumed."""
        self._assignment.take_back()
        for instance in [self.live(tp) for tp in partitions]:
            instance.set_paused(True)

    def resume(self, _now: float, partitions: Iterable[TopicPartition]) -> None:
        """Deliver and fetch records of these again."""
        for instance in [self.live(tp) for tp in partitions]:
            instance.set_paused(False)
            if not instance.revoking:
                self._assignment.read_abandoned_again(instance)
            self.positioned(instance)
        self._outbox.wake()

    def fetch_until(self, _now: float, ends: Mapping[TopicPartition, int]) -> None:
        """Fetch nothing of these partitions from these offsets on, while they are assigned."""
        for partition, end in ends.items():
            instance = self.live(partition)
            instance.set_fetch_end(end)
            self.positioned(instance)

    def leave_out_older(self, times: Mapping[TopicPartition, int]) -> None:
        """The positions of these partitions are where the broker has named the first record at or
        after these times (ms): leave older records out before that one."""
        for partition, timestamp in times.items():
            buffer = self.live(partition).buffer
            if buffer is not None:
                buffer.set_time_sought(SoughtTime(timestamp, buffer.position))

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(i.partition for i in self._assignment.live() if i.paused)

    def seek(
        self,
        now: float,
        partition: TopicPartition,
        offset: int,
        completed: CompletionMap | None = None,
    ) -> None:
        """Read ``offset`` next, without what is ``completed`` beyond it. Completing earlier records
        no longer moves the commit point."""
        instance = self._seekable(partition)
        self._complete_call(instance)
        self._place(now, instance, offset, -1, completed)
        instance.set_map_unverified(completed is not None)

    def seek_to(
        self, now: float, call_id: int, partitions: Iterable[TopicPartition], timestamp: int
    ) -> None:
        """Read the first record at or after a timestamp next, or EARLIEST/LATEST; the call is
        completed when all positions are found."""
        instances = [self._seekable(tp) for tp in partitions]
        self._assignment.take_back()
        for instance in instances:
            self._complete_call(instance)
            self._calls[instance] = call_id
            instance.set_seek_pending(True)
            self._resetting.pop(instance, None)
            self._positions.reset(now, instance, timestamp)
        if not instances:
            self._outbox.put(CompleteRequest(call_id))

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that a poll returns; None while it is looked up."""
        return self._assignment.position(self.live(partition))

    def highwater(self, partition: TopicPartition) -> int | None:
        """The end of the log as of the last fetch; None before it."""
        offset = self.live(partition).high_watermark
        return None if offset < 0 else offset

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The last stable offset as of the last fetch; None before it."""
        offset = self.live(partition).last_stable_offset
        return None if offset < 0 else offset

    def lag(self) -> dict[TopicPartition, int]:
        """See :meth:`PartitionInstance.lag`; of the partitions that were fetched."""
        return {
            instance.partition: lag
            for instance in self._assignment.live()
            if (position := self._assignment.position(instance)) is not None
            and (lag := instance.lag(position)) is not None
        }

    # --- events ----------------------------------------------------------------------------------

    def found(
        self,
        now: float,
        instance: PartitionInstance,
        found: OffsetAndMetadata,
        from_reset: bool,
    ) -> None:
        """A position was found."""
        if not (instance.terminal or instance.revoking):
            if from_reset:
                self._reset(now, instance, found)
            else:
                try:
                    finished = self._maps.read(instance, found.offset, found.metadata)
                except PartitionsError as error:
                    # It has no position, and so delivers nothing.
                    self._reactions.failed(now, error)
                    self._complete_call(instance)
                    return
                self._assignment.set_position(instance, found.offset, found.leader_epoch, finished)
                instance.set_map_unverified(finished is not None)
                # Foreign metadata stays until there is something to commit.
                instance.set_committed(found.offset, "" if finished is None else found.metadata)
                self._outbox.wake()
        self._complete_call(instance)

    def log_end_known(self, now: float, instance: PartitionInstance) -> None:
        """Compare the completion map with the log, whose end is known now."""
        try:
            is_kept = self._maps.verify(instance)
        except PartitionsError as error:
            instance.set_paused(True)
            self._reactions.failed(now, error)
            return
        if not is_kept:
            # When the log has grown, the next owner could not tell that the map is wrong.
            instance.require_commit()
            self._committer.schedule(now)

    def out_of_range(self, now: float, instance: PartitionInstance) -> None:
        """The position is outside the log, perhaps of another topic with the same name. Fresh
        metadata has the topic's id, by which the partition is then lost."""
        self._awaiting_topic_id[instance] = instance.buffer, self._cluster.next_request
        self._ask_whose_log(now, instance)

    def _ask_whose_log(self, now: float, instance: PartitionInstance) -> None:
        self._cluster.refresh(now, f"the position in {instance.partition} is outside its log")

    def leaders_known(self, now: float) -> None:
        """The metadata was refreshed, and deleted topics were removed."""
        for instance, (buffer, request) in list(self._awaiting_topic_id.items()):
            if instance.buffer is not buffer or instance.revoking:
                del self._awaiting_topic_id[instance]
            elif self._cluster.is_confirmed_by(instance.partition.topic, request):
                del self._awaiting_topic_id[instance]
                self._outside(now, instance)
            else:
                self._ask_whose_log(now, instance)

    def _outside(self, now: float, instance: PartitionInstance) -> None:
        if self._positions.policy(instance) == "error":
            self._reactions.failed(now, OffsetOutOfRangeError([instance.partition]))
        else:
            rereads = instance.tracker is not None and instance.tracker.rereads
            self._resetting[instance] = _Outside(instance.buffer, rereads)
            # The policy is for the position after the records that are read again.
            self._positions.reset(now, instance, EARLIEST_TIMESTAMP if rereads else None)

    def _reset(self, now: float, instance: PartitionInstance, found: OffsetAndMetadata) -> None:
        """A position was found by the reset policy, or for a seek by time."""
        outside = self._resetting.pop(instance, None)
        if outside is None:
            self._place(now, instance, found.offset, found.leader_epoch)
        elif outside.buffer is not instance.buffer:
            # Reading has begun again elsewhere.
            return
        elif outside.rereads and self._assignment.pass_over_deleted(instance, found.offset):
            self._passed_over_deleted(now, instance, found.offset)
        elif outside.rereads:
            self._resetting[instance] = _Outside(instance.buffer, rereads=False)
            self._positions.reset(now, instance, None)
        else:
            finished = self._left_of_map(instance, found.offset)
            self._place(now, instance, found.offset, found.leader_epoch, finished)

    def _passed_over_deleted(self, now: float, instance: PartitionInstance, log_start: int) -> None:
        """Records to be read again are not in the log any more: reading goes on after them."""
        self._outbox.emit(
            log_events.REREAD_RECORDS_DELETED,
            partition=str(instance.partition),
            log_start=log_start,
        )
        if self._commits_by_itself:
            self._committer.schedule(now)
        self._outbox.wake()

    def _left_of_map(self, instance: PartitionInstance, offset: int) -> CompletionMap | None:
        """The completion map beyond ``offset``, if the log starts there since older records were
        deleted. If the log ends before the position, the map does not apply."""
        tracker = instance.tracker
        if tracker is None or tracker.completed_earlier is None or offset < tracker.position:
            return None
        return tracker.completed_earlier.beyond(offset)

    def truncated(
        self, now: float, instance: PartitionInstance, offset: int | None, leader_epoch: int
    ) -> None:
        """The log was truncated at ``offset``, before the position; None if unknown."""
        position = None if instance.buffer is None else instance.buffer.position
        self._outbox.emit(
            log_events.LOG_TRUNCATED,
            partition=str(instance.partition),
            position=position,
            truncated_to=offset,
        )
        if self._positions.policy(instance) == "error":
            self._reactions.failed(now, LogTruncationError(instance.partition, position, offset))
        elif offset is None:
            self._resetting.pop(instance, None)
            self._positions.reset(now, instance, None)
        else:
            self._read_from_truncation(now, instance, offset, leader_epoch)

    def _read_from_truncation(
        self, now: float, instance: PartitionInstance, offset: int, leader_epoch: int
    ) -> None:
        """Keep the tracker of undone records before ``offset``, or they would be committed past."""
        self._assignment.take_back()
        tracker = instance.tracker
        if tracker is None or tracker.commit_point >= offset:
            self._place(now, instance, offset, leader_epoch)
            return
        # The records of one batch may be on both sides.
        self._returned_records.track_returned()
        self._assignment.read_from_truncation(instance, offset, leader_epoch)
        if self._commits_by_itself:
            self._committer.schedule(now)
        self._outbox.wake()

    def positioned(self, instance: PartitionInstance) -> None:
        """It has a (new) buffer, or may be read again."""
        if instance.can.fetch:
            self._fetcher.add(instance)

    def ended(self, instance: PartitionInstance) -> None:
        """It was released or lost."""
        self._fetcher.remove(instance)
        self._awaiting_topic_id.pop(instance, None)
        self._resetting.pop(instance, None)
        self._complete_call(instance)

    def _place(
        self,
        now: float,
        instance: PartitionInstance,
        offset: int,
        leader_epoch: int,
        finished: CompletionMap | None = None,
    ) -> None:
        """Set a position that is not committed, and commit it: the next owner would otherwise start
        elsewhere, and with "latest" skip records."""
        unchecked = instance.map_unverified and finished is not None
        self._assignment.set_position(instance, offset, leader_epoch, finished)
        instance.set_map_unverified(unchecked)
        name = str(instance.partition)
        self._outbox.emit(log_events.POSITION_SET, partition=name, offset=offset)
        if self._commits_by_itself:
            instance.require_commit()
            self._committer.schedule(now)
        self._outbox.wake()

    def fail_calls(self, error: Exception) -> None:
        """The consumer ends: fail all calls that wait for a position."""
        for call_id in dict.fromkeys(self._calls.values()):
            self._outbox.put(CompleteRequest(call_id, error=error))
        for instance in self._calls:
            instance.set_seek_pending(False)
        self._calls.clear()

    def _complete_call(self, instance: PartitionInstance) -> None:
        call_id = self._calls.pop(instance, None)
        instance.set_seek_pending(False)
        if call_id is not None and call_id not in self._calls.values():
            self._outbox.put(CompleteRequest(call_id))
