"""The existing topics, their partitions' logs, and the record encoding of the simulation: 24 bytes
for any batch."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple, TypeVar

from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.client.protocol.messages import LATEST_TIMESTAMP, FetchedPartition
from asyncrevoke.client.protocol.records import CorruptBatch, RecordBatch
from asyncrevoke.testing.fake_kafka.consumer_group import topic_id

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

    The high watermark is always the end of the log.
    """

    def __init__(self, leader_id: int = 0) -> None:
        self.leader_id = leader_id
        self.leader_epoch: int = 0
        self.start: int = 0
        self.end: int = 0
        self.waiting: list[Callable[[], None]] = []
        self._batches: list[LoggedBatch] = []
        self._ends: list[int] = []

    def append(self, count: int) -> None:
        """Append a batch of ``count`` records."""
        self._append(count, self.end + count)

    def _append(self, records: int, end: int) -> None:
        self._batches.append(LoggedBatch(self.end, end, records, self.leader_epoch))
        self._ends.append(end)
        self.end = end
        self.wake()

    def wake(self) -> None:
        """Let the waiting fetches read again."""
        waiting, self.waiting = self.waiting, []
        for retry in waiting:
            retry()

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that contains ``offset`` on; at least one if there is any."""
        first = bisect_right(self._ends, offset)
        taken: list[bytes] = []
        size = 0
        for batch in self._batches[first:]:
            size += max(batch.records, 1) * BYTES_PER_RECORD
            if taken and size > max_bytes:
                break
            taken.append(self.pack(batch))
        return b"".join(taken)

    def pack(self, batch: LoggedBatch) -> bytes:
        """A batch as it is in responses."""
        return _HEADER.pack(*_fields(batch))

    def batches_from(self, offset: int) -> Iterator[LoggedBatch]:
        """The batches from the one that contains ``offset`` on."""
        return islice(self._batches, bisect_right(self._ends, offset), None)

    def offset_at(self, timestamp: int) -> tuple[int, int]:
        """The offset that ListOffsets finds for a timestamp (ms), and the time of its record."""
        return (self.end if timestamp == LATEST_TIMESTAMP else self.start), 0


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
        """Zero, because the batch is not a view of a response."""
        return 0

    def copy(self) -> None:
        """Do nothing, because the batch is not a view of a response."""

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


LogT = TypeVar("LogT", bound=PartitionLog)


class Topics(Mapping[str, list[LogT]]):
    """Logs by topic name and partition. ``make_log`` creates a log, given the number of its
    partition."""

    def __init__(self, make_log: Callable[[int], LogT]) -> None:
        self._make_log = make_log
        self._logs: dict[str, list[LogT]] = {}
        self._partitions: list[TopicPartition] = []

    def __getitem__(self, name: str) -> list[LogT]:
        return self._logs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._logs)

    def __len__(self) -> int:
        return len(self._logs)

    def create(self, name: str, partitions: int) -> None:
        """Create a topic with this number of partitions, or add some."""
        logs = self._logs.setdefault(name, [])
        while len(logs) < partitions:
            logs.append(self._make_log(len(logs)))
        self._list_partitions()

    def _list_partitions(self) -> None:
        self._partitions = [
            TopicPartition(topic, number)
            for topic, logs in self._logs.items()
            for number in range(len(logs))
        ]

    def partitions(self) -> list[TopicPartition]:
        """All partitions of all topics."""
        return self._partitions

    def log(self, partition: TopicPartition) -> LogT | None:
        """The log of a partition, None if there is no such partition."""
        logs = self._logs.get(partition.topic, [])
        return logs[partition.partition] if 0 <= partition.partition < len(logs) else None

    def id_of(self, topic: str) -> bytes:
        """The id of the existing topic of this name."""
        return topic_id(topic)

    def has(self, topic: str, ids: Mapping[str, bytes] | None) -> bool:
        """Whether a topic of this name exists, with the id in ``ids``. Without ``ids``, each id is
        right."""
        return ids is None or (topic in self._logs and ids[topic] == self.id_of(topic))
