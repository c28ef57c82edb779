"""What a sink has read and not stored yet, and what it stores when. Reads and writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asyncrevoke.client.errors import AsyncRevokeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.model import TopicPartition

# Rows of all partitions that wait in memory until they are a row group of their file, in bytes.
_MOST_WAITING: Final = 256 * 1024 * 1024
# The largest row group of a file, in bytes before compression.
_LARGEST_GROUP: Final = 16 * 1024 * 1024


class StorageError(AsyncRevokeError):
    """The lake cannot take what was read. Nothing of it counts as stored."""


@dataclass(slots=True)
class OpenFile:
    """The rows of one assignment of a partition that are not stored yet: offsets from ``first``,
    where the stored ones end, to ``next``."""

    partition: TopicPartition
    first: int
    next: int
    opened_at: float | None = None
    rows: int = 0
    # Bytes in memory; bytes of row groups before compression, and in the file.
    waiting: int = 0
    raw: int = 0
    written: int = 0

    def add(self, first: int, last: int, rows: int, size: int, now: float) -> None:
        """These rows were read, with offsets from ``first`` to ``last``. Raises StorageError if
        they are before what is stored."""
        if first < self.next:
            raise StorageError(
                f"{self.partition} has delivered offset {first} after {self.next - 1}: is it "
                "another topic of this name?"
            )
        if self.opened_at is None:
            self.opened_at = now
        self.next = last + 1
        self.rows += rows
        self.waiting += size

    def group_written(self, written: int) -> None:
        """What waited is a row group; the file has ``written`` bytes now."""
        self.raw += self.waiting
        self.waiting = 0
        self.written = written

    def stored(self) -> None:
        """All rows are stored: the next file begins after them."""
        self.first = self.next
        self.opened_at = None
        self.rows = self.waiting = self.raw = self.written = 0

    @property
    def estimated_size(self) -> int:
        """The size of the file if it were closed now, as its row groups were compressed."""
        ratio = self.written / self.raw if self.raw else 1.0
        return self.written + int(self.waiting * ratio)


class SinkPlan:
    """The open file of each assigned partition.

    A file is stored when it is ``max_bytes`` large or ``max_wait`` seconds old. With ``together``,
    the others are then stored as well.
    """

    def __init__(self, max_bytes: int, max_wait: float, *, together: bool) -> None:
        self._max_bytes = max_bytes
        self._max_wait = max_wait
        self._together = together
        self._open: dict[TopicPartition, OpenFile] = {}
        self._ends: dict[TopicPartition, int] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return frozenset(self._open)

    def assigned(
        self, partition: TopicPartition, first: int, end: int, stop: int | None = None
    ) -> None:
        """A partition is assigned whose offsets before ``first`` are stored, and whose log ends at
        ``end``; it is read up to ``stop``, by default up to that end. What was open before is
        dropped. Raises StorageError if more is stored than the log has had."""
        self._open.pop(partition, None)
        if first > end:
            raise StorageError(
                f"{partition} is stored up to offset {first}, and the topic ends at {end}: it was "
                "created again, or truncated; choose another folder"
            )
        # One that has read to its end, and comes back, need not be read to a later one.
        self._ends.setdefault(partition, end if stop is None else stop)
        self._open[partition] = OpenFile(partition, first, first)

    def released(self, partition: TopicPartition) -> None:
        """The partition is revoked or lost: what is open is dropped."""
        self._open.pop(partition, None)

    def file(self, partition: TopicPartition) -> OpenFile | None:
        """The open file of a partition; None if the partition is not assigned."""
        return self._open.get(partition)

    def needs_group(self, file: OpenFile) -> bool:
        """Whether the rows in memory are enough for a row group of the file."""
        share = _MOST_WAITING // max(len(self._open), 1)
        return file.waiting >= min(_LARGEST_GROUP, share)

    def due(self, now: float) -> list[OpenFile]:
        """The files to store now."""
        found = [file for file in self.not_stored() if self._is_due(file, now)]
        return self.not_stored() if found and self._together else found

    def not_stored(self) -> list[OpenFile]:
        """All files that have rows."""
        return [file for file in self._open.values() if file.rows]

    def _is_due(self, file: OpenFile, now: float) -> bool:
        opened = now if file.opened_at is None else file.opened_at
        return file.estimated_size >= self._max_bytes or now - opened >= self._max_wait

    def time_left(self, now: float) -> float | None:
        """Seconds until the oldest file is due; None if no file is open."""
        opened = [file.opened_at for file in self._open.values() if file.opened_at is not None]
        return max(min(opened) + self._max_wait - now, 0.0) if opened else None

    def is_read(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Whether each assigned partition, and at least one is, has been read up to the end that it
        had when it was first assigned."""
        return bool(self._open) and all(
            positions.get(partition, -1) >= self._ends[partition] for partition in self._open
        )
