"""The completion maps of all partitions: which one each commit has, and what a read one completes.

``partition/completion_map.py`` is the format of one map.
"""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client import log_events
from asyncrevoke.client.core.partition.completion_map import (
    LONGEST,
    CompletionMap,
    decode,
    encode,
    is_written_map,
    lowest_offset_that_fits,
)
from asyncrevoke.client.core.partition.instance import InstanceState, PartitionInstance
from asyncrevoke.client.errors import PartitionsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker

# Offsets tracked beyond a record that is not done, one byte of memory each.
_WIDEST = 1 << 24
# Shorter metadata has no room for a map.
_SMALLEST = 16
# Characters that a map with the same runs may grow by: encode leaves room for any leader epoch.
_ROOM_FOR_EPOCH = 6


class _Written(NamedTuple):
    tracker_id: int
    progress: tuple[int, int, int]
    metadata: str
    final: bool


class CommittedMaps:
    """One map per instance, encoded when its commit is made.

    Delivery of an instance pauses while its map leaves out more than ``max_in_flight`` records that
    are done: so a crash repeats at most twice ``max_in_flight`` records.

    A map is rewritten with as much room as it had when it was read, also beyond ``completion_map``:
    the members of a group may differ in that option.
    """

    def __init__(self, outbox: Outbox, config: ConsumerConfig) -> None:
        self._outbox = outbox
        self._limit = 0 if config.commit_mode == "manual" else config.completion_map
        self._max_in_flight = config.max_in_flight
        self._exactly_once = config.exactly_once
        self._written: dict[PartitionInstance, _Written] = {}
        self._too_far_ahead: dict[PartitionInstance, None] = {}
        # For maps that were longer than the limit when they were read.
        self._limits: dict[PartitionInstance, int] = {}

    @property
    def limit(self) -> int:
        """The most characters that a map may have; brokers that reject longer ones lower it."""
        return self._limit

    def metadata(self, instance: PartitionInstance, tracker: OffsetTracker) -> str:
        """The metadata to commit; empty if nothing is done beyond the commit point.

        It stays the same during the final commit, or the release would wait for more completions.
        """
        if not self._limit or tracker.is_contiguous:
            return ""
        known = self._written.get(instance)
        if known is not None and known.tracker_id != tracker.tracker_id:
            # It was sought, or its log was truncated.
            known = None
        progress = tracker.progress
        flushing = instance.state is InstanceState.COMMITTING
        if known is not None:
            if known.progress == progress:
                self._written[instance] = known._replace(final=flushing)
                return known.metadata
            if known.final and flushing and known.progress[0] == progress[0]:
                return known.metadata
        limit = self._limits.get(instance, self._limit)
        encoded = encode(progress[0], tracker.completed_runs(), tracker.leader_epoch, limit)
        self._written[instance] = _Written(tracker.tracker_id, progress, encoded.metadata, flushing)
        left_out = 0 if encoded.cut_at is None else tracker.count_done(encoded.cut_at)
        if left_out > self._max_in_flight:
            self._stop_delivery(instance, tracker)
        return encoded.metadata

    def lowest_offset_that_fits(self, tracker: OffsetTracker, started: Sequence[int]) -> int | None:
        """The lowest commit point beside which the map has all records done beyond it, also when
        any of those ``started`` (offsets in order) are done. None without maps."""
        if not self._limit:
            return None
        running = ((offset, offset + 1) for offset in started)
        runs = list(merge(tracker.completed_runs(), running))
        return lowest_offset_that_fits(tracker.commit_point, runs, self._limit)

    @staticmethod
    def complete(tracker: OffsetTracker) -> str | None:
        """A map of everything done beyond the commit point, for the application to store; None if
        it has more runs than a map may have."""
        if tracker.is_contiguous:
            return ""
        encoded = encode(
            tracker.commit_point, tracker.completed_runs(), tracker.leader_epoch, LONGEST
        )
        return encoded.metadata if encoded.cut_at is None else None

    def too_large(self, instance: PartitionInstance, metadata: str) -> None:
        """The broker rejects metadata of this size: write less from now on. This commit has none,
        except a final one, since no later commit will have the rest."""
        if len(metadata) <= self._limit:
            self._limit = len(metadata) // 2 if len(metadata) >= 2 * _SMALLEST else 0
            self._outbox.emit(log_events.MAP_TOO_LARGE, size=len(metadata), limit=self._limit)
        self._limits.pop(instance, None)
        known = self._written.get(instance)
        if instance.state is InstanceState.COMMITTING:
            self._written.pop(instance, None)
        elif known is not None:
            self._written[instance] = known._replace(metadata="")

    def not_kept(self) -> None:
        """The brokers do not store metadata: write no maps from now on."""
        self._limit = 0
        self._limits.clear()
        self._written.clear()
        self._outbox.emit(
            log_events.MAPS_NOT_KEPT,
            hazard="after a crash, completed records beyond an unfinished one are repeated",
            option="completion_map=0 avoids this check",
        )

    def delivered(self, instance: PartitionInstance, tracker: OffsetTracker) -> None:
        """Pause delivery if too many offsets are tracked beyond a record that is not done."""
        if tracker.width > _WIDEST:
            self._stop_delivery(instance, tracker)

    def _stop_delivery(self, instance: PartitionInstance, tracker: OffsetTracker) -> None:
        if not instance.too_far_ahead:
            instance.set_too_far_ahead(True)
            self._too_far_ahead[instance] = None
            self._outbox.emit(
                log_events.TOO_MANY_BEYOND_ONE,
                partition=str(instance.partition),
                offset=tracker.commit_point,
                position=tracker.position,
            )

    def left_waiting(self, instance: PartitionInstance, tracker: OffsetTracker, left: int) -> None:
        """So many finished records wait as the map has no room for them: pause delivery if they are
        more than ``max_in_flight``, or resume it."""
        if left > self._max_in_flight:
            self._stop_delivery(instance, tracker)
        elif instance.too_far_ahead and tracker.width <= _WIDEST:
            self._resume(instance)

    def resume_delivery(self) -> None:
        """Resume the partitions that no longer wait for an incomplete record."""
        for instance in list(self._too_far_ahead):
            tracker = instance.tracker
            if instance.terminal or tracker is None or not self._is_too_far(instance, tracker):
                self._resume(instance)

    def _resume(self, instance: PartitionInstance) -> None:
        if instance.tracker is not None and not instance.terminal:
            self._outbox.emit(log_events.PARTITION_RESUMED, partition=str(instance.partition))
        del self._too_far_ahead[instance]
        instance.set_too_far_ahead(False)
        self._outbox.wake()

    def _is_too_far(self, instance: PartitionInstance, tracker: OffsetTracker) -> bool:
        if tracker.width > _WIDEST:
            return True
        if not self._limit or tracker.is_contiguous:
            return False
        point, limit = tracker.commit_point, self._limits.get(instance, self._limit)
        cut_at = encode(point, tracker.completed_runs(), tracker.leader_epoch, limit).cut_at
        return cut_at is not None and tracker.count_done(cut_at) > self._max_in_flight

    def read(self, instance: PartitionInstance, offset: int, metadata: str) -> CompletionMap | None:
        """The map in the metadata of a committed offset; None without one.

        Raises PartitionsError with exactly_once if a map cannot be read: the results of the records
        that it lists are visible.
        """
        reads = metadata and (self._limit or self._exactly_once)
        found = decode(offset, metadata) if reads else None
        if found is None and self._exactly_once and is_written_map(metadata):
            raise _unreadable(instance, f"the one beside offset {offset} is damaged or newer")
        if found is not None and len(metadata) + _ROOM_FOR_EPOCH > self._limit:
            self._limits[instance] = len(metadata) + _ROOM_FOR_EPOCH
        return found

    def verify(self, instance: PartitionInstance) -> bool:
        """Compare the map with the log, whose end is known now. False if the map goes beyond it:
        then it is dropped, and the records are handled again. With exactly_once that raises
        PartitionsError, and the map stays unverified."""
        tracker, buffer = instance.tracker, instance.buffer
        if tracker is None or buffer is None or (finished := tracker.completed_earlier) is None:
            instance.set_map_unverified(False)
            return True
        if self._exactly_once and finished.end > instance.high_watermark:
            raise _unreadable(
                instance,
                f"it lists offset {finished.end - 1} of a log up to {instance.high_watermark}",
            )
        instance.set_map_unverified(False)
        if finished.end <= instance.high_watermark:
            self._outbox.emit(
                log_events.COMPLETED_RECORDS_SKIPPED,
                partition=str(instance.partition),
                offsets=finished.offsets,
                committed=tracker.commit_point,
                up_to=finished.end,
            )
            self._outbox.emit(
                log_events.MAP_APPLIED,
                partition=str(instance.partition),
                runs=[list(run) for run in finished.runs],
            )
            return True
        self._outbox.emit(
            log_events.MAP_BEYOND_LOG_END,
            partition=str(instance.partition),
            up_to=finished.end,
            log_end=instance.high_watermark,
        )
        tracker.forget_completed_earlier()
        buffer.forget_completed_earlier()
        self._written.pop(instance, None)
        return False

    def forget(self, instance: PartitionInstance) -> None:
        """The instance has ended."""
        self._written.pop(instance, None)
        self._too_far_ahead.pop(instance, None)
        self._limits.pop(instance, None)


def _unreadable(instance: PartitionInstance, why: str) -> PartitionsError:
    return PartitionsError(
        [instance.partition],
        f"{instance.partition}: the completion map cannot be used: {why}; without it, results that "
        "are visible would be written again: seek() to an offset",
    )
