"""The completion map of each partition: written into commits, believed or not when it is found."""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.core.partition.completion_map import (
    CompletionMap,
    decode,
    encode,
    lowest_offset_that_fits,
)
from asyncrevoke.core.partition.instance import InstanceState, PartitionInstance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.outbox import Outbox
    from asyncrevoke.core.partition.offset_tracker import OffsetTracker

# A byte of memory each: so much is kept beyond a record that does not end.
_WIDEST = 1 << 24
# Not even the smallest map fits.
_SMALLEST = 16
# Characters that a map with the same runs may take more: encode leaves room for any leader epoch.
_ROOM_FOR_EPOCH = 6


class _Written(NamedTuple):
    tracker_id: int
    progress: tuple[int, int, int]
    metadata: str
    final: bool


class CompletionMaps:
    """One map per instance, made when its commit is made.

    An instance whose map cannot hold all, and that has more than ``max_in_flight`` records done
    which it does not hold, is *ahead*: nothing more of it is delivered until that is over. A crash
    thus never repeats more than twice ``max_in_flight`` records.

    A map that was read is written with as much room as it had, also beyond ``completion_map``: the
    members of a group may differ in it, and what one cuts off is handled again.
    """

    def __init__(self, outbox: Outbox, config: ConsumerConfig) -> None:
        self._outbox = outbox
        self._limit = 0 if config.commit_mode == "manual" else config.completion_map
        self._max_in_flight = config.max_in_flight
        self._written: dict[PartitionInstance, _Written] = {}
        self._too_far_ahead: dict[PartitionInstance, None] = {}
        # Those whose map was longer than the limit when it was read.
        self._limits: dict[PartitionInstance, int] = {}

    # --- writing ---------------------------------------------------------------------------------

    def metadata(self, instance: PartitionInstance, tracker: OffsetTracker) -> str:
        """What to commit beside the commit point; empty if nothing is done beyond it.

        While the final commit is under way it stays the same, or a release would wait for
        everything that may still end.
        """
        if not self._limit or tracker.is_contiguous:
            return ""
        known = self._written.get(instance)
        if known is not None and known.tracker_id != tracker.tracker_id:
            # Since then it was sought, or the log was truncated.
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
        """The lowest commit point beside which the map surely holds all that is done beyond it,
        when any of the records ``started`` (their offsets, in order) have been done too. None if
        there is no map."""
        if not self._limit:
            return None
        running = ((offset, offset + 1) for offset in started)
        runs = list(merge(tracker.completed_runs(), running))
        return lowest_offset_that_fits(tracker.commit_point, runs, self._limit)

    def too_large(self, instance: PartitionInstance, metadata: str) -> None:
        """The broker does not take so much: leave it out this time, and write less from now on.

        A final commit is tried again with as much as may be taken: nobody writes the rest later.
        """
        if len(metadata) <= self._limit:
            self._limit = len(metadata) // 2 if len(metadata) >= 2 * _SMALLEST else 0
            self._outbox.emit(
                "warning",
                "the broker refuses a completion map of this size; it will be smaller",
                size=len(metadata),
                limit=self._limit,
            )
        self._limits.pop(instance, None)
        known = self._written.get(instance)
        if instance.state is InstanceState.COMMITTING:
            self._written.pop(instance, None)
        elif known is not None:
            self._written[instance] = known._replace(metadata="")

    # --- too far ahead ---------------------------------------------------------------------------

    def delivered(self, instance: PartitionInstance, tracker: OffsetTracker) -> None:
        """More was delivered: is it too much to keep beyond a record that is not done?"""
        if tracker.width > _WIDEST:
            self._stop_delivery(instance, tracker)

    def _stop_delivery(self, instance: PartitionInstance, tracker: OffsetTracker) -> None:
        if not instance.too_far_ahead:
            instance.set_too_far_ahead(True)
            self._too_far_ahead[instance] = None
            self._outbox.emit(
                "warning",
                "too much is done beyond a record that is not; the partition waits for it",
                partition=str(instance.partition),
                offset=tracker.commit_point,
                position=tracker.position,
            )

    def resume_delivery(self) -> None:
        """Let those go on that are ahead no longer."""
        for instance in list(self._too_far_ahead):
            tracker = instance.tracker
            if tracker is not None and not instance.terminal:
                if tracker.width > _WIDEST or self._leaves_out_much(instance, tracker):
                    continue
                self._outbox.emit("info", "partition resumed", partition=str(instance.partition))
            del self._too_far_ahead[instance]
            instance.set_too_far_ahead(False)
            self._outbox.wake()

    def _leaves_out_much(self, instance: PartitionInstance, tracker: OffsetTracker) -> bool:
        if not self._limit or tracker.is_contiguous:
            return False
        point, limit = tracker.commit_point, self._limits.get(instance, self._limit)
        cut_at = encode(point, tracker.completed_runs(), tracker.leader_epoch, limit).cut_at
        return cut_at is not None and tracker.count_done(cut_at) > self._max_in_flight

    # --- reading ---------------------------------------------------------------------------------

    def read(self, instance: PartitionInstance, offset: int, metadata: str) -> CompletionMap | None:
        """What was found beside a committed offset; None if it is no map, or none is wanted."""
        found = decode(offset, metadata) if self._limit and metadata else None
        if found is not None and len(metadata) + _ROOM_FOR_EPOCH > self._limit:
            self._limits[instance] = len(metadata) + _ROOM_FOR_EPOCH
        return found

    def verify(self, instance: PartitionInstance) -> bool:
        """The end of the log is known: is what the map says possible? If it is not, the map is
        forgotten, and the records are handled again."""
        instance.set_map_unverified(False)
        tracker, buffer = instance.tracker, instance.buffer
        if tracker is None or buffer is None or (finished := tracker.completed_earlier) is None:
            return True
        if finished.end <= instance.high_watermark:
            self._outbox.emit(
                "info",
                "skipping records completed by previous owner",
                partition=str(instance.partition),
                offsets=finished.offsets,
                committed=tracker.commit_point,
                up_to=finished.end,
            )
            return True
        self._outbox.emit(
            "warning",
            "the completion map goes beyond the end of the log, and is ignored",
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
