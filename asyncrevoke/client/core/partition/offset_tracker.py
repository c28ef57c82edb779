"""Which delivered records of one partition instance are done, and how far it may be committed.

Offsets in small holes (control records, compaction) have a byte too, so that most partitions are a
single segment. With wide holes, a compacted log costs at most about twenty bytes per record.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import merge
from typing import TYPE_CHECKING

from asyncrevoke.client.core.partition.completion_map import CompletionMap, Run, merge_adjacent
from asyncrevoke.client.core.partition.leader_epochs import LeaderEpochs
from asyncrevoke.client.core.partition.offset_flags import (
    ABANDON_PENDING,
    ABANDONED,
    COMPLETE_PENDING,
    COMPLETED,
    DONE,
    HELD,
    HOLE,
    IN_FLIGHT,
    IS_COMPLETED,
    IS_NOT_ABANDONED,
    LEFT_OUT,
    PENDING,
    READ_ALL_AGAIN,
    WIDEST_HOLE,
    WITHOUT_ABANDONED,
    OffsetFlags,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from asyncrevoke.client.model import Record

_COMPACT_BEYOND = 4096


class OffsetTracker(OffsetFlags):
    """The completions of one partition instance since it was positioned.

    ``position`` is the offset after everything delivered, holes included. ``leader_epoch`` is the
    one committed with the first position, -1 if unknown. Records that ``completed_earlier`` lists
    were completed by a former owner, and are not delivered.
    """

    __slots__ = (
        "_abandoned",
        "_epochs",
        "_first",
        "_head",
        "_open",
        "_reread_to",
        "_slices",
        "completed_earlier",
        "held",
        "position",
        "tracker_id",
        "untracked",
    )

    def __init__(
        self,
        tracker_id: int,
        position: int,
        leader_epoch: int = -1,
        completed_earlier: CompletionMap | None = None,
    ) -> None:
        super().__init__()
        self.tracker_id = tracker_id
        self.position = position
        self.completed_earlier = completed_earlier
        self._first = position
        self._head = 0  # index of the first record that is not done
        self._open = 0  # tracked records that are not done
        self.held = 0
        self._abandoned = 0
        # Up to where abandoned records were read again; None if they are not read again.
        self._reread_to: int | None = None
        # Untracked slices (first offset, records), pending as a whole.
        self._slices: list[tuple[int, int]] = []
        self.untracked = 0
        self._epochs = LeaderEpochs(position, leader_epoch)

    def __repr__(self) -> str:
        return (
            f"<OffsetTracker {self.tracker_id}: commit point {self.commit_point}, "
            f"position {self.position}, {self.in_flight} in flight>"
        )

    @property
    def in_flight(self) -> int:
        """Records delivered and not done."""
        return self._open + self.untracked

    @property
    def has_abandoned(self) -> bool:
        """Whether a record has ended without being done: the commit point stays before it."""
        return self._abandoned > 0

    @property
    def commit_point(self) -> int:
        """The offset of the first record that is not done, else ``position``."""
        if not (self._open or self._abandoned):
            return self._slices[0][0] if self._slices else self.position
        offset = self._offset_at(self._head)
        return min(self._slices[0][0], offset) if self._slices else offset

    @property
    def commit_epoch(self) -> int:
        """The leader epoch of the record before the commit point, -1 if unknown."""
        return self.epoch_before(self.commit_point)

    def epoch_before(self, offset: int) -> int:
        """The leader epoch of the record before ``offset``, which is not below the commit point."""
        return self._epochs.before(offset)

    def diverges_at(self, epoch: int) -> int:
        """The first offset that was read with a later leader epoch than ``epoch``."""
        first = self._epochs.first_after(epoch)
        return self.position if first is None else first

    @property
    def position_epoch(self) -> int:
        """The leader epoch of the record before ``position``, -1 if unknown."""
        return self._epochs.last

    @property
    def leader_epoch(self) -> int:
        """The highest leader epoch of a completed record, -1 if unknown."""
        earlier = -1 if self.completed_earlier is None else self.completed_earlier.leader_epoch
        return max(self._epochs.last, earlier)

    @property
    def width(self) -> int:
        """Offsets that are tracked one by one: the memory used, in bytes."""
        return len(self._flags)

    @property
    def ended(self) -> bool:
        """Whether nothing is in flight."""
        return not self.in_flight

    def awaits(self, offset: int) -> bool:
        """Whether a record before ``offset`` may be in flight."""
        return self.in_flight > 0 and self.commit_point < offset

    @property
    def is_contiguous(self) -> bool:
        """Whether no record is completed beyond the commit point; False if that is unknown."""
        return not (self._open or self._abandoned) and self.completed_earlier is None

    @property
    def progress(self) -> tuple[int, int, int]:
        """A value that changes whenever the completed records do, for the same tracker id."""
        return self.commit_point, self.position, self._open + self._abandoned

    @property
    def oldest(self) -> int | None:
        """The offset of the first record that is not done, None if all are."""
        return self.commit_point if self.in_flight else None

    @property
    def oldest_in_flight(self) -> int | None:
        """Like ``oldest``, without abandoned records."""
        found = [slice_[0] for slice_ in self._slices[:1]]
        if self._open:
            first = (self._flags.find(flag, self._head) for flag in (PENDING, HELD))
            found.append(self._offset_at(min(index for index in first if index >= 0)))
        return min(found, default=None)

    def forget_completed_earlier(self) -> None:
        """Ignore the completion map of the former owner."""
        self.completed_earlier = None

    def deliver(self, records: Sequence[Record], position: int, leader_epoch: int) -> None:
        """Register records as pending one by one; ``position`` is the offset after them."""
        if self._reread_to is not None:
            records = self._deliver_again(records, position)
            if position <= self.position:
                return
        self._begin_slice(records[0].offset if records else None, position, leader_epoch)
        if not records:
            return
        flags = self._flags
        expected = self._end_of_segments(records[0].offset)
        if records[-1].offset - expected + 1 == len(records):
            flags.extend(bytes(len(records)))
        else:
            for record in records:
                hole = record.offset - expected
                if hole:
                    if hole < 0:
                        raise ValueError(f"offset {record.offset} after {expected - 1}")
                    if hole > WIDEST_HOLE:
                        self._segment_offsets.append(record.offset)
                        self._segment_indices.append(len(flags))
                    else:
                        flags.extend(b"\x03" * hole)
                expected = record.offset + 1
                flags.append(PENDING)
        self._open += len(records)
        self._use_segment(len(self._segment_offsets) - 1)

    def read_again(self) -> tuple[int, CompletionMap | None]:
        """Begin to read abandoned records again. Returns the offset of the first, and the offsets
        up to ``position`` to skip: those done or in flight. There must be an abandoned record. One
        that is abandoned while it is skipped is read after the next call."""
        self._flags[:] = self._flags.translate(READ_ALL_AGAIN)
        index = self._flags.index(ABANDONED)
        offset = self._reread_to = self._offset_at(index)
        runs = self._runs(index, offset, IS_NOT_ABANDONED, self.position)
        if self.completed_earlier is not None:
            former = ((max(first, offset), end) for first, end in self.completed_earlier.runs)
            runs = merge_adjacent(merge((run for run in former if run[1] > offset), runs))
        skipped = tuple(runs)
        return offset, CompletionMap(skipped, self.leader_epoch) if skipped else None

    def _deliver_again(self, records: Sequence[Record], position: int) -> Sequence[Record]:
        """Mark abandoned records as pending again; returns the records that are new. An abandoned
        record that reading has passed is no longer in the log: a hole."""
        flags, old = self._flags, 0
        while old < len(records) and records[old].offset < self.position:
            index = self._locate(records[old].offset)
            if index < 0 or flags[index] < DONE:
                raise ValueError(f"offset {records[old].offset} is delivered a second time")
            # In another state than abandoned after a truncation: this is another record.
            self._abandoned -= flags[index] >= ABANDONED
            flags[index] = PENDING
            old += 1
        self._open += old
        assert self._reread_to is not None
        first, end = self._index_after(self._reread_to - 1), self._index_after(position - 1)
        gone = flags.count(ABANDONED, first, end)
        if gone:
            flags[first:end] = flags[first:end].translate(WITHOUT_ABANDONED)
            self._abandoned -= gone
            self._advance(self._head)
        self._reread_to = position if position < self.position else None
        return records[old:]

    @property
    def rereads(self) -> bool:
        """Whether abandoned records are being read again."""
        return self._reread_to is not None

    def deliver_untracked(self, count: int, position: int, leader_epoch: int) -> None:
        """Register ``count`` records as pending together."""
        if count:
            self._slices.append((self.position, count))
            self.untracked += count
        self._begin_slice(self.position if count else None, position, leader_epoch)

    def submit(self, offset: int) -> bool:
        """A task runs this record. False if it is unknown, done, or run already."""
        if self._low <= offset < self._high:
            index = offset - self._shift
        else:
            try:
                index = self._locate(offset)
            except KeyError:
                return False
        if index < 0 or self._flags[index] != PENDING:
            return False
        self._flags[index] = HELD
        self.held += 1
        return True

    def complete(self, offset: int) -> bool:
        """Complete this record. False if it ended before; KeyError if it was never delivered."""
        if self._low <= offset < self._high:
            index = offset - self._shift
        else:
            index = self._locate(offset)
            if index < 0:
                return False
        flags = self._flags
        flag = flags[index]
        if flag > HELD:
            if flag != HOLE or index < self._head:
                return False
            raise KeyError(offset)
        flags[index] = DONE
        self._open -= 1
        if flag:
            self.held -= 1
        if index == self._head:
            self._advance(index + 1)
        return True

    def complete_all(self, offsets: Sequence[int]) -> int:
        """Complete these records; returns how many had not ended before. Offsets that were never
        delivered are ignored."""
        flags, shift, low, high = self._flags, self._shift, self._low, self._high
        ended = held = 0
        others: list[int] = []
        if self._change_run(offsets, PENDING, DONE):
            ended, offsets = len(offsets), ()
        for offset in offsets:
            if low <= offset < high:
                index = offset - shift
                flag = flags[index]
                if flag <= HELD:
                    flags[index] = DONE
                    ended += 1
                    held += flag
            else:
                others.append(offset)
        if ended:
            self._open -= ended
            self.held -= held
            if flags[self._head] > HELD:
                self._advance(self._head)
        return ended + sum(map(self._completes, others))

    def _completes(self, offset: int) -> bool:
        try:
            return self.complete(offset)
        except KeyError:
            return False

    def abandon(self, offset: int) -> bool:
        """End this record without completing it: the commit point never moves past it. False if it
        ended before; KeyError if it was never delivered."""
        index = self._locate(offset)
        if index < 0:
            return False
        flag = self._flags[index]
        if flag > HELD:
            # Ended, or no record: complete() returns or raises accordingly.
            return self.complete(offset)
        left_out = self._reread_to is not None and offset >= self._reread_to
        self._flags[index] = LEFT_OUT if left_out else ABANDONED
        self._abandoned += 1
        self._open -= 1
        self.held -= flag
        return True

    def complete_pending(self) -> int:
        """Complete all pending records except those that tasks run; returns how many."""
        ended, self.untracked = self._open + self.untracked - self.held, 0
        self._slices = []
        if not (self.held or self._abandoned):
            if self._flags:
                self._clear()
        elif self.held < self._open:
            self._open = self.held
            self._flags = self._flags.translate(COMPLETE_PENDING)
            self._advance(self._head)
        return ended

    def complete_pending_to(self, offset: int) -> int:
        """Complete tracked pending records up to ``offset``; returns how many."""
        head, end = self._head, self._index_after(offset)
        ended = self._flags.count(PENDING, head, end)
        if ended:
            self._flags[head:end] = self._flags[head:end].translate(COMPLETE_PENDING)
            self._open -= ended
            self._advance(head)
        return ended

    def truncate(self, offset: int) -> int:
        """Forget the pending records after ``offset``, and return how many. ``position`` goes back
        to the first of them. A record that was started stays: pending ones before it are abandoned,
        and may be delivered again."""
        before = self.in_flight
        flags = self._flags
        kept_to = offset
        if self._open > self.held:
            started = (flags.rfind(flag) for flag in (HELD, DONE, ABANDONED, LEFT_OUT))
            after = self._index_after(offset)
            keep = max(after, *(index + 1 for index in started))
            first = flags.find(PENDING, keep)
            if keep:
                kept_to = max(kept_to, self._offset_at(keep - 1))
            self._abandon_pending(after, keep)
            if first >= 0:
                self._open -= flags.count(PENDING, first)
                self.position = self._offset_at(first)
                self._cut(first)
        elif flags:
            kept_to = max(kept_to, self._offset_at(len(flags) - 1))
        while self._slices and self._slices[-1][0] > kept_to:
            start, count = self._slices.pop()
            self.untracked -= count
            self.position = min(self.position, start)
        if not (self._open or self._abandoned):
            self._clear()
        self._epochs.truncate(self.position)
        return before - self.in_flight

    def _abandon_pending(self, start: int, end: int) -> None:
        """Abandon the pending records between two indices: they are delivered again."""
        count = self._flags.count(PENDING, start, end)
        if count:
            offset = self._offset_at(self._flags.find(PENDING, start))
            self._reread_to = offset if self._reread_to is None else min(offset, self._reread_to)
            self._flags[start:end] = self._flags[start:end].translate(ABANDON_PENDING)
            self._open -= count
            self._abandoned += count

    def split_at(self, offset: int, leader_epoch: int, tracker_id: int) -> OffsetTracker:
        """The log was truncated at ``offset``, beyond the commit point: continue from there with
        another id, as later records may have the offsets of lost ones.

        Returns a tracker of the former id with the lost records. ``leader_epoch`` is the last one
        that both logs have. No record may be untracked.
        """
        lost = OffsetTracker(self.tracker_id, offset, leader_epoch)
        lost.position = max(self.position, offset)
        index = self._index_after(offset - 1)
        if index < len(self._flags):
            self._move_tail(index, lost)
            lost.count_flags()
            self.count_flags()
        self.tracker_id = tracker_id
        self.position = min(self.position, offset)
        self._reread_to = None
        self._epochs.truncate(offset)
        self._epochs.limit(leader_epoch)
        if self.completed_earlier is not None:
            self.completed_earlier = self.completed_earlier.cut(offset, leader_epoch)
        return lost

    def count_flags(self) -> None:
        """Recompute the counts from the flags."""
        self.held = self._flags.count(HELD)
        self._open = self._flags.count(PENDING) + self.held
        self._abandoned = self._flags.count(ABANDONED) + self._flags.count(LEFT_OUT)
        self._advance(self._head)

    # -- beyond the commit point --------------------------------------------------------------

    def completed_runs(self) -> Iterator[Run]:
        """The completed runs beyond the commit point, in order; offsets without a record count."""
        if self.completed_earlier is None:
            return self._counted_runs()
        point = self.commit_point
        former = (
            (max(first, point), end) for first, end in self.completed_earlier.runs if end > point
        )
        return merge_adjacent(merge(former, self._counted_runs()))

    def in_flight_offsets(self) -> list[int]:
        """The offsets of tracked records that are not done, in order."""
        return [self._offset_at(match.start()) for match in IN_FLIGHT.finditer(self._flags)]

    def count_done(self, offset: int) -> int:
        """How many records from ``offset`` on are done."""
        return self._flags.count(DONE, self._index_after(offset - 1))

    def _counted_runs(self) -> Iterator[Run]:
        """The runs between the records that are not done, up to ``position``."""
        if self._slices or not (self._open or self._abandoned):
            return iter(())
        return self._runs(self._head, self.commit_point, IS_COMPLETED, self.position)

    # -- segments -----------------------------------------------------------------------------

    def _begin_slice(self, first: int | None, position: int, leader_epoch: int) -> None:
        if (first is not None and first < self.position) or position < self.position:
            raise ValueError(f"a slice {first}..{position} begins before {self.position}")
        moved = first is not None or position > self.position
        if moved and leader_epoch != self._epochs.last:
            # Offsets between two slices have no records, and may be of this epoch: a position
            # beyond the end of an epoch would look like a truncation.
            self._epochs.begin(self.position, leader_epoch, self.commit_point)
        self.position = position

    def _locate(self, offset: int) -> int:
        """The index of an offset, -1 if it is below all segments; KeyError if never delivered."""
        number = bisect_right(self._segment_offsets, offset) - 1
        if number >= 0:
            self._use_segment(number)
            if offset < self._high:
                return offset - self._shift
        if self._first <= offset < self.commit_point:
            return -1
        raise KeyError(offset)

    def _advance(self, index: int) -> None:
        """Move the head to the first record at or after ``index`` that is not done."""
        if not (self._open or self._abandoned):
            self._clear()
            return
        flags = self._flags
        if flags[index] > HELD and (finished := COMPLETED.match(flags, index)) is not None:
            index = finished.end()
        self._head = index
        if index > _COMPACT_BEYOND and index * 2 > len(flags):
            self._drop_before(index)
            self._head = 0

    def _clear(self) -> None:
        self._open = self.held = self._head = self._low = self._high = 0
        self._flags.clear()
        del self._segment_offsets[:], self._segment_indices[:]
