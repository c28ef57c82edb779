"""A partition log that loses records, by elections and by retention, and has gaps."""

from __future__ import annotations

from bisect import bisect_left

from asyncrevoke.client.protocol.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from asyncrevoke.testing.fake_kafka.topics import PartitionLog


class ChangingLog(PartitionLog):
    """``offsets`` lists every offset that has a record, in order."""

    def __init__(self, leader_id: int) -> None:
        super().__init__(leader_id)
        self.offsets: list[int] = []
        # Every epoch and the offset at which it began, ascending in both.
        self._epochs: list[tuple[int, int]] = [(0, 0)]

    def append(self, count: int, hole: int = 0) -> None:
        """Append a batch of ``count`` records (0: a control batch), followed by ``hole`` offsets
        without records."""
        self.offsets.extend(range(self.end, self.end + count))
        self._append(count, self.end + count + hole)

    def begin_epoch(self) -> None:
        """Begin a leader epoch after an election."""
        self.leader_epoch += 1
        while self._epochs and self._epochs[-1][1] >= self.end:
            self._epochs.pop()
        self._epochs.append((self.leader_epoch, self.end))

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and its end; (-1, -1) if there is none."""
        if epoch > self.leader_epoch:
            return -1, -1
        if epoch == self.leader_epoch:
            return epoch, self.end
        later = [start for other, start in self._epochs if other > epoch]
        until = [other for other, _ in self._epochs if other <= epoch]
        return max(until, default=epoch), min(later)

    def truncate(self, end: int) -> None:
        """Remove the offsets from ``end`` on, and the whole batch that contains ``end``."""
        while self._batches and self._batches[-1].end > end:
            self._ends.pop()
            self.end = self._batches.pop().base
        del self.offsets[bisect_left(self.offsets, self.end) :]
        self.start = min(self.start, self.end)
        self._epochs = [entry for entry in self._epochs if entry[1] < self.end]

    def delete_before(self, offset: int) -> None:
        """Delete the records before ``offset``, as retention does."""
        self.start = max(self.start, min(offset, self.end))

    def first_record_at_or_after(self, offset: int) -> int:
        """The first offset with a record from ``offset`` on, or the end of the log."""
        index = bisect_left(self.offsets, offset)
        return self.offsets[index] if index < len(self.offsets) else self.end

    def offset_at(self, timestamp: int) -> tuple[int, int]:
        """The offset that ListOffsets finds for a timestamp (ms), and the time of its record."""
        if timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
            return super().offset_at(timestamp)
        return self.first_record_at_or_after(self.start), 0
