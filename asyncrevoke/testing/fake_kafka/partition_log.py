"""Partition logs, and the record encoding of the simulation: 24 bytes for any batch."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.model import Record
from asyncrevoke.protocol import messages
from asyncrevoke.protocol.records import CorruptBatch, RecordBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.protocol.messages import FetchedPartition

# Base offset, offset after the batch, number of records, leader epoch.
_HEADER = struct.Struct(">qqii")
BYTES_PER_RECORD = 100
_KEYS = tuple(f"key-{number}".encode() for number in range(7))


class LoggedBatch(NamedTuple):
    """A batch of ``records`` records from ``base`` on. Its other offsets up to ``end`` have no
    records, as after compaction or in a control batch."""

    base: int
    end: int
    records: int
    epoch: int


class PartitionLog:
    """One partition: its batches, its leader, and the fetches that wait for records.

    The high watermark is always the end of the log. ``offsets`` lists every offset that has a
    record, in order.
    """

    def __init__(self, leader_id: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = 0
        self.start = 0
        self.end = 0
        self.offsets: list[int] = []
        self.waiting: list[Callable[[], None]] = []
        self._batches: list[LoggedBatch] = []
        self._ends: list[int] = []
        # Every epoch and the offset at which it began, ascending in both.
        self._epochs: list[tuple[int, int]] = [(0, 0)]

    def append(self, count: int, hole: int = 0) -> None:
        """Append a batch of ``count`` records (0: a control batch), followed by ``hole`` offsets
        without records."""
        base = self.end
        self.end = base + count + hole
        self._batches.append(LoggedBatch(base, self.end, count, self.leader_epoch))
        self._ends.append(self.end)
        self.offsets.extend(range(base, base + count))
        self.wake()

    def wake(self) -> None:
        """Let the waiting fetches read again."""
        waiting, self.waiting = self.waiting, []
        for retry in waiting:
            retry()

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

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that contains ``offset`` on; at least one if there is any."""
        first = bisect_right(self._ends, offset)
        taken: list[bytes] = []
        size = 0
        for batch in self._batches[first:]:
            size += max(batch.records, 1) * BYTES_PER_RECORD
            if taken and size > max_bytes:
                break
            taken.append(_HEADER.pack(*_fields(batch)))
        return b"".join(taken)

    def first_record_at_or_after(self, offset: int) -> int:
        """The first offset with a record from ``offset`` on, or the end of the log."""
        index = bisect_left(self.offsets, offset)
        return self.offsets[index] if index < len(self.offsets) else self.end

    def offset_at(self, timestamp: int) -> tuple[int, int]:
        """The offset that ListOffsets finds for a timestamp (ms), and the time of its record."""
        match timestamp:
            case messages.LATEST_TIMESTAMP:
                return self.end, 0
            case messages.EARLIEST_TIMESTAMP:
                return self.start, 0
            case _:
                return self.first_record_at_or_after(self.start), 0


def _fields(batch: LoggedBatch) -> tuple[int, int, int, int]:
    return batch.base, batch.end, batch.records, batch.epoch


class SimulatedBatch:
    """A batch in the form that the core uses. Its records are created when it is decoded."""

    __slots__ = ("base_offset", "count", "leader_epoch", "next_offset", "size")

    def __init__(self, base_offset: int, next_offset: int, count: int, leader_epoch: int) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.count = count
        self.size = max(count, 1) * BYTES_PER_RECORD
        self.leader_epoch = leader_epoch

    @property
    def unpacked_size(self) -> int:
        """The same as ``size``, because the batch is not compressed."""
        return self.size

    @property
    def viewed_size(self) -> int:
        """Zero, because the batch is no view of a response."""
        return 0

    def copy(self) -> None:
        """Do nothing, because the batch is no view of a response."""

    @property
    def checksum(self) -> int:
        """Unique among the batches of one leader epoch."""
        return self.leader_epoch

    def decode(self, topic: str, partition: int, tracker_id: int, from_offset: int) -> list[Record]:
        """The records from ``from_offset`` on."""
        return [
            Record(topic, partition, offset, 0, 0, _KEYS[offset % len(_KEYS)], b"", (), tracker_id)
            for offset in range(max(self.base_offset, from_offset), self.base_offset + self.count)
        ]


def decode_simulated(fetched: FetchedPartition, read_committed: bool) -> list[RecordBatch]:
    """Decode a partition of a Fetch response of simulated brokers."""
    del read_committed  # there are no transactions here
    data = fetched.records
    if len(data) % _HEADER.size:
        raise CorruptBatch(f"{len(data)} bytes are not a whole number of batches")
    return [SimulatedBatch(*header) for header in _HEADER.iter_unpack(data)]
