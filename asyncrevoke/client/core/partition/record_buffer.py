"""Fetched data of one partition instance that was not delivered yet."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.errors import CorruptRecordError, UnreadableRecordError
from asyncrevoke.client.model import TopicPartition, UnreadableRecord
from asyncrevoke.client.protocol.records import (
    CorruptBatch,
    DecodeSingly,
    PartlyUnreadable,
    RecordBatch,
    UnreadableBatch,
)
from asyncrevoke.client.record_parts import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.core.partition.completion_map import CompletionMap, Run
    from asyncrevoke.client.model import Record


# A batch that unpacks to more takes some milliseconds to decode. Uncompressed batches are smaller
# unless max.message.bytes was raised.
LARGE_BATCH = 2**20 + 2**16


class SoughtTime(NamedTuple):
    """The broker has named ``offset`` as the first record at or after ``timestamp`` (ms). If it is
    older, so may be others before ``end``, the end of the log at that moment."""

    timestamp: int
    offset: int
    end: int | None = None


class RecordBuffer:
    """Record batches in offset order, decoded one at a time when they are taken.

    ``position`` is the next offset to deliver, past holes, control batches and aborted ones as far
    as they are known; ``fetch_position`` is the next offset to fetch. ``leader_epoch`` and
    ``fetch_epoch`` are those of the batches before them, -1 if unknown. ``buffered`` estimates the
    records left from the batch headers, 0 only if there are none. ``size`` is in bytes, of which
    ``viewed`` are in the buffers of fetch responses. Records
    of ``completed_earlier`` are skipped, and counted in ``skipped_completed``.

    While ``awaits_decoding``, the next batch is a large one that is decoded in a thread
    (:meth:`start_background_decode`, :meth:`set_decoded`), and nothing can be taken.
    """

    def __init__(
        self,
        partition: TopicPartition,
        tracker_id: int,
        position: int,
        completed_earlier: CompletionMap | None = None,
        leader_epoch: int = -1,
    ) -> None:
        self.partition = partition
        self.tracker_id = tracker_id
        self.position = position
        self.completed_earlier = completed_earlier
        self.skipped_completed = 0
        # Until a record at or after that time is found.
        self.time_sought: SoughtTime | None = None
        self.fetch_position = position
        self.fetch_epoch = leader_epoch
        self.leader_epoch = leader_epoch
        # The epoch of the leader whose log is known to contain what was fetched (KIP-320).
        self.checked_epoch = -1
        # The leader epochs of what was fetched, and where each begins.
        self._epochs: list[tuple[int, int]] = []
        self.buffered = 0
        self.size = self.viewed = 0
        # The first batch is the open one if ``_decoded`` holds its records.
        self._batches: deque[tuple[RecordBatch, int]] = deque()
        self._decoded: Sequence[Record] | None = None
        self._cursor = 0
        # Indices in ``_decoded`` of unreadable records.
        self._unreadable: list[int] = []
        self._open_size = 0
        self.awaits_decoding = False
        # The first batch as decoded in a thread, and what ``size`` counts for it then.
        self._decoded_elsewhere: Sequence[Record] | CorruptBatch | None = None
        self._counted = 0

    def __repr__(self) -> str:
        return (
            f"<RecordBuffer {self.partition}: "
            f"position {self.position}, about {self.buffered} records to {self.fetch_position}>"
        )

    def forget_completed_earlier(self) -> None:
        """Deliver the records of the completion map too: the map is wrong."""
        self.completed_earlier = None

    def set_time_sought(self, sought: SoughtTime | None) -> None:
        """Leave out older records, if the broker has named an offset before the first later one."""
        self.time_sought = sought

    def set_checked_epoch(self, leader_epoch: int) -> None:
        """The log of the leader of this epoch contains what was fetched."""
        self.checked_epoch = leader_epoch

    def append(self, batches: Sequence[RecordBatch]) -> None:
        """Add fetched batches; those before ``fetch_position`` are ignored."""
        first_ones = not self._batches
        for batch in batches:
            if batch.next_offset <= self.fetch_position:
                continue
            # The first batch of a fetch may begin before the requested offset.
            wanted = batch.next_offset - max(batch.base_offset, self.fetch_position)
            estimate = min(batch.count, wanted)
            if not self._epochs or self._epochs[-1][0] != batch.leader_epoch:
                first = max(batch.base_offset, self.fetch_position)
                self._epochs.append((batch.leader_epoch, first))
            self.fetch_position = batch.next_offset
            self.fetch_epoch = batch.leader_epoch
            self._batches.append((batch, estimate))
            self.buffered += estimate
            self.size += batch.size
            self.viewed += batch.viewed_size
        if first_ones:
            self._skip_empty()

    def take(
        self,
        limit: int,
        due_to: Callable[[Sequence[Record], int, int], int] | None = None,
        *,
        unreadable: bool = False,
    ) -> Sequence[Record]:
        """Up to ``limit`` records of one leader epoch, in offset order; empty if the batches turn
        out to have none.

        Raises CorruptRecordError, with the position unmoved, if the next batch cannot be decoded,
        and UnreadableRecordError for an unreadable record; records before it are returned first.
        With ``unreadable`` an UnreadableRecord is returned instead, as the last one.
        ``due_to(records, first, end)`` may end it earlier, at the index that it returns.
        """
        taken: Sequence[Record] = []
        epoch = -1
        while limit > 0 and self._batches:
            batch, _ = self._batches[0]
            if taken and batch.leader_epoch != epoch:
                break
            epoch, decoded = batch.leader_epoch, self._decoded
            if decoded is None:
                if self.awaits_decoding:
                    break
                try:
                    decoded = self._open(batch)
                except DecodeSingly as error:
                    self._replace_first(error.batches)
                    continue
                except CorruptBatch as error:
                    if taken:
                        break
                    # A seek to the next offset would fail on the same batch.
                    detail = f"{error}, and the batch goes up to offset {batch.next_offset - 1}"
                    raise CorruptRecordError(self.partition, self.position, detail) from error
            cursor = self._cursor
            end = min(cursor + limit, len(decoded))
            if self._unreadable:
                end = self._to_unreadable(decoded, cursor, end, returned=unreadable)
                if end == cursor:
                    if taken:
                        break
                    raise _error_of(decoded[cursor])
                limit = min(limit, end - cursor)
            if due_to is not None:
                end = due_to(decoded, cursor, end)
            if end > cursor:
                part = decoded if end - cursor == len(decoded) else decoded[cursor:end]
                taken = joined(taken, part) if taken else part
                limit -= end - cursor
                self.buffered -= end - cursor
                self.leader_epoch = batch.leader_epoch
            if end < len(decoded):
                self._cursor = end
                self.position = decoded[end].offset
                break
            self._close(batch)
        return taken

    def _to_unreadable(
        self, decoded: Sequence[Record], cursor: int, end: int, *, returned: bool
    ) -> int:
        """Where to end before the next unreadable record, or after it if it is ``returned``. Moves
        the position to that record if it is the next."""
        index = next((number for number in self._unreadable if number >= cursor), end)
        if index >= end:
            return end
        if returned:
            return index + 1
        if index == cursor:
            self.position = decoded[index].offset
        return index

    @property
    def next_size(self) -> int:
        """Bytes that the first batch takes when it is decoded."""
        batch = self._batches[0][0]
        return max(batch.unpacked_size, batch.size)

    def start_background_decode(self) -> RecordBatch:
        """The batch to decode, whose unpacked size counts from now on."""
        batch, _ = self._batches[0]
        if not self._counted:
            self._counted = self.next_size
            self.size += self._counted - batch.size
        return batch

    def set_decoded(self, batch: RecordBatch, decoded: Sequence[Record] | CorruptBatch) -> bool:
        """Store the decoded batch; False if the buffer no longer waits for it."""
        if not self.awaits_decoding or self._batches[0][0] is not batch:
            return False
        self._decoded_elsewhere = decoded
        self.awaits_decoding = False
        return True

    @property
    def holds_large(self) -> bool:
        """Whether the first batch is a large one that has been decoded."""
        return self._decoded_elsewhere is not None or self._open_size > LARGE_BATCH

    def copy_views(self) -> None:
        """Copy the batches that are in the buffers of fetch responses."""
        if self.viewed:
            for batch, _ in self._batches:
                batch.copy()
            self.viewed = 0

    def discard(self) -> None:
        """Drop all that was not taken, so that it is fetched again."""
        self._batches.clear()
        self._decoded = self._decoded_elsewhere = None
        self._unreadable = []
        self._cursor = self._open_size = self._counted = 0
        self.awaits_decoding = False
        self.buffered = self.size = self.viewed = 0
        self.fetch_position = self.position
        self.fetch_epoch = self.leader_epoch
        self._epochs = [entry for entry in self._epochs if entry[1] < self.position]

    def diverges_at(self, epoch: int, end: int) -> int:
        """Where a leader's log diverges from what was fetched, if ``epoch`` is the last one that
        both may have, and ends at ``end`` there."""
        return min([end, *(first for other, first in self._epochs if other > epoch)])

    def _open(self, batch: RecordBatch) -> Sequence[Record]:
        counted = self._counted or batch.size
        decoded = self._decoded_elsewhere
        try:
            if decoded is None:
                decoded = batch.decode(*self.partition, self.tracker_id, self.position)
            elif isinstance(decoded, CorruptBatch):
                raise decoded
        except UnreadableBatch as error:
            decoded = PartlyUnreadable([self._unreadable_batch(batch, str(error))])
        some_unreadable = isinstance(decoded, PartlyUnreadable)
        if decoded:
            first, last = decoded[0].offset, decoded[-1].offset
            if not self.position <= first <= last - len(decoded) + 1 < batch.next_offset > last:
                raise CorruptBatch(f"records {first}..{last} do not fit their batch")
            if self.completed_earlier is not None:
                decoded = self._without_completed(
                    self.completed_earlier, decoded, batch.leader_epoch
                )
        # Decoding may have unpacked it.
        self._open_size = batch.size
        self.size += self._open_size - counted
        self._decoded_elsewhere = None
        self._counted = 0
        self.buffered += len(decoded) - self._batches[0][1]
        self._unreadable = (
            [n for n, record in enumerate(decoded) if isinstance(record, UnreadableRecord)]
            if some_unreadable
            else []
        )
        self._decoded = decoded
        self._cursor = 0
        return decoded

    def _unreadable_batch(self, batch: RecordBatch, detail: str) -> UnreadableRecord:
        """A record that represents all of a batch from the position on."""
        first = max(self.position, batch.base_offset)
        return UnreadableRecord(
            *self.partition,
            first,
            -1,
            0,
            None,
            None,
            tracker_id=self.tracker_id,
            next_offset=batch.next_offset,
            detail=detail,
        )

    def _without_completed(
        self, finished: CompletionMap, decoded: Sequence[Record], leader_epoch: int
    ) -> Sequence[Record]:
        runs = finished.runs
        if decoded[0].offset >= runs[-1][1]:
            self.completed_earlier = None
            return decoded
        if leader_epoch > finished.leader_epoch:
            # Written by a later leader: the completed record was truncated.
            return decoded
        number = bisect_right(runs, decoded[0].offset, key=_end)
        kept: list[Record] = []
        for record in decoded:
            offset = record.offset
            while number < len(runs) and runs[number][1] <= offset:
                number += 1
            if number == len(runs) or offset < runs[number][0]:
                kept.append(record)
        self.skipped_completed += len(decoded) - len(kept)
        return kept

    def group(self, grouped: Callable[[Sequence[RecordBatch]], Sequence[RecordBatch]]) -> None:
        """Decode the batches that are not decoded yet as ``grouped`` puts them together."""
        first = self._decoded is not None or self._decoded_elsewhere is not None
        kept = [self._batches.popleft()] if first or self.awaits_decoding else []
        waiting = [batch for batch, _ in self._batches]
        self.buffered -= sum(estimate for _, estimate in self._batches)
        self._batches = deque(kept)
        for batch in grouped(waiting):
            wanted = batch.next_offset - max(batch.base_offset, self.position)
            self._batches.append((batch, min(batch.count, wanted)))
            self.buffered += self._batches[-1][1]
        if not kept:
            self._skip_empty()

    def _replace_first(self, batches: Sequence[RecordBatch]) -> None:
        """Replace the first batch by those that it consists of."""
        batch, estimate = self._batches.popleft()
        self.size -= self._counted or batch.size
        self.buffered -= estimate
        self._decoded_elsewhere = None
        self._counted = 0
        for single in reversed(batches):
            if single.next_offset <= self.position:
                break
            wanted = single.next_offset - max(single.base_offset, self.position)
            estimate = min(single.count, wanted)
            self._batches.appendleft((single, estimate))
            self.size += single.size
            self.buffered += estimate
        self._skip_empty()

    def _close(self, batch: RecordBatch) -> None:
        self._batches.popleft()
        self.size -= self._open_size
        self.viewed -= batch.viewed_size
        self._decoded = None
        self._unreadable = []
        self._cursor = self._open_size = 0
        self.position = batch.next_offset
        self.leader_epoch = batch.leader_epoch
        self._skip_empty()

    def _skip_empty(self) -> None:
        """Skip batches without records: control batches, aborted and emptied ones."""
        while self._batches and not self._batches[0][1]:
            batch, _ = self._batches.popleft()
            self.position = batch.next_offset
            self.leader_epoch = batch.leader_epoch
            self.size -= batch.size
        self.awaits_decoding = bool(self._batches) and self.next_size > LARGE_BATCH


def _error_of(record: Record) -> UnreadableRecordError:
    assert isinstance(record, UnreadableRecord)
    return UnreadableRecordError.of(record)


def _end(run: Run) -> int:
    return run[1]
