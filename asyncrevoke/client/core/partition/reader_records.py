"""Records of one step that the user takes one by one: those not yet taken are not delivered.

A step for a :class:`RecordReader` drains as many records as one for a batch. The core asks the
reader how many records the user has taken when it must know: before a commit, and before anything
that changes what may be delivered (a seek, a pause, a revoke, a loss, the end of the iterator, the
next step). In the second case the reader stops, and the remaining records are *kept*: they are not
in flight, the position goes back before them, and later steps return them first, unless their
partition is sought or ends before that.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.model import Record


class RecordReader(Protocol):
    """Gives the user the records of one step one by one. Implemented by :class:`RecordIterator`."""

    @property
    def returned(self) -> int:
        """How many of them the user has taken."""
        ...

    def begin(self, records: Sequence[Record]) -> None:
        """Return these records from now on."""

    def end(self) -> None:
        """Return no more of them: the next record needs a step."""


class ReaderRecords:
    """The records of at most one step in a reader, and those that earlier readers left."""

    def __init__(self) -> None:
        self._reader: RecordReader | None = None
        self._slices: list[tuple[PartitionInstance, Sequence[Record]]] = []
        # Whether taking the next record completes a record, and how many were completed so.
        self._counts = False
        self._counted = 0
        # How many were taken at the last look, and whether more were taken since the step began.
        self._asked = 0
        self._asked_before = False
        self._kept: dict[PartitionInstance, Sequence[Record]] = {}

    def begin(
        self,
        reader: RecordReader,
        slices: list[tuple[PartitionInstance, Sequence[Record]]],
        *,
        counts: bool,
    ) -> None:
        """A step returns these tracked slices by a reader."""
        self._reader = reader
        self._slices = slices
        self._counts = counts
        self._counted = 0
        self._asked, self._asked_before = 1, False
        parts = [records for _, records in slices]
        reader.begin(parts[0] if len(parts) == 1 else list(chain.from_iterable(parts)))

    @property
    def is_open(self) -> bool:
        """Whether a reader returns records now."""
        return self._reader is not None

    @property
    def is_counting(self) -> bool:
        """Whether taking the next record completes the one before."""
        return self._reader is not None and self._counts

    def was_asked(self) -> bool:
        """Whether the user took a record since the last call, or since the step began."""
        self._look()
        asked, self._asked_before = self._asked_before, False
        return asked

    def _look(self) -> None:
        if self._reader is not None and self._reader.returned > self._asked:
            self._asked = self._reader.returned
            self._asked_before = True

    def first_left(self, instance: PartitionInstance) -> int | None:
        """The offset of the first record of an instance that was not taken, None without one."""
        return next((left[0].offset for of, left in self._left() if of is instance), None)

    def left(self) -> dict[PartitionInstance, int]:
        """How many records of each instance were not taken."""
        found: dict[PartitionInstance, int] = {}
        for instance, records in self._left():
            found[instance] = found.get(instance, 0) + len(records)
        return found

    def _left(self) -> Iterator[tuple[PartitionInstance, Sequence[Record]]]:
        skip = 0 if self._reader is None else self._reader.returned
        for instance, records in self._slices:
            if skip < len(records):
                yield instance, records[max(0, skip) :]
            skip -= len(records)

    def count(self) -> int:
        """Complete the records that were taken, except the last one and those that tasks run.
        Returns how many of them were in flight."""
        if self._reader is None or not self._counts:
            return 0
        done = self._reader.returned - 1
        first = ended = 0
        for instance, records in self._slices:
            if first >= done:
                break
            end = first + len(records)
            if end > self._counted and instance.tracker is not None:
                last = records[min(done, end) - first - 1]
                ended += instance.tracker.complete_pending_to(last.offset)
            first = end
        self._counted = max(self._counted, done)
        return ended

    def take_back(self) -> int:
        """Stop the reader: complete what was taken, and keep the rest for later steps. Returns how
        many records are in flight no longer."""
        reader = self._reader
        if reader is None:
            return 0
        self._look()
        ended = self.count()
        reader.end()
        # In reverse: an instance may have two slices.
        for instance, left in reversed(list(self._left())):
            if instance.tracker is not None:
                ended += instance.tracker.truncate(left[0].offset - 1)
                self._kept[instance] = [*left, *self._kept.get(instance, ())]
        self._reader = None
        self._slices = []
        return ended

    @property
    def has_kept(self) -> bool:
        """Whether records are kept."""
        return bool(self._kept)

    def first_kept(self, instance: PartitionInstance) -> int | None:
        """The offset of the first kept record of an instance, None without one."""
        kept = self._kept.get(instance)
        return kept[0].offset if kept else None

    def take_kept(
        self, limit: int, may_flow: Callable[[PartitionInstance], bool]
    ) -> list[tuple[PartitionInstance, list[Record]]]:
        """Up to ``limit`` kept records of the instances that may deliver."""
        taken: list[tuple[PartitionInstance, list[Record]]] = []
        for instance, records in list(self._kept.items()):
            if limit <= 0:
                break
            if not may_flow(instance):
                continue
            taken.append((instance, list(records[:limit])))
            if len(records) > limit:
                self._kept[instance] = records[limit:]
            else:
                del self._kept[instance]
            limit -= len(records)
        return taken

    def forget(self, instance: PartitionInstance) -> None:
        """Drop the kept records of an instance that has ended, or was sought."""
        self._kept.pop(instance, None)
