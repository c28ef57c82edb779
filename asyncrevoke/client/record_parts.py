"""Records in several sequences, as one sequence."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import overload

from asyncrevoke.client.model import Record


class SizedRecords(Sequence[Record]):
    """Records whose size is known without reading them. Slices copy none."""

    __slots__ = ()

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes of their keys and values, about."""

    @property
    @abstractmethod
    def offsets(self) -> Iterable[tuple[int, Sequence[int]]]:
        """Their offsets, in parts: each time with their tracker id."""


class RecordParts(SizedRecords):
    """The records of ``parts``, which may be columns, one part after the other."""

    __slots__ = ("_ends", "parts")

    def __init__(self, parts: Iterable[Sequence[Record]]) -> None:
        self.parts: list[Sequence[Record]] = []
        # The number of records in all parts up to each one.
        self._ends: list[int] = []
        for part in parts:
            self.add(part)

    def add(self, records: Sequence[Record]) -> None:
        """Append these records."""
        for part in records.parts if isinstance(records, RecordParts) else (records,):
            if part:
                self._ends.append(len(self) + len(part))
                self.parts.append(part)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(self.parts)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            return self._slice(index)
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        number = bisect_right(self._ends, at)
        return self.parts[number][at - self._ends[number] + len(self.parts[number])]

    def _slice(self, wanted: slice) -> Sequence[Record]:
        start, stop, step = wanted.indices(len(self))
        if step != 1:
            return list(self)[wanted]
        found = RecordParts(())
        first = 0
        for part, end in zip(self.parts, self._ends, strict=True):
            if start < end and stop > first:
                found.add(part[max(0, start - first) : stop - first])
            first = end
        return found

    @property
    def size(self) -> int:
        """Bytes of the keys and values of all parts, about."""
        return sum(map(size_of, self.parts))

    @property
    def offsets(self) -> Iterable[tuple[int, Sequence[int]]]:
        """The offsets of all parts."""
        return chain.from_iterable(map(offsets_of, self.parts))


def joined(first: Sequence[Record], more: Sequence[Record]) -> Sequence[Record]:
    """All of these records. ``first`` is not to be used afterwards: it may be the result."""
    if isinstance(first, list) and isinstance(more, list):
        first += more
        return first
    parts = first if isinstance(first, RecordParts) else RecordParts((first,))
    parts.add(more)
    return parts


def size_of(records: Sequence[Record]) -> int:
    """Bytes of their keys and values, about."""
    if isinstance(records, SizedRecords):
        return records.size
    return sum(len(record.key or b"") + len(record.value or b"") for record in records)


def offsets_of(records: Sequence[Record]) -> Iterable[tuple[int, Sequence[int]]]:
    """The offsets of records, in parts: each time with their tracker id."""
    if isinstance(records, SizedRecords):
        return records.offsets
    return [(record.tracker_id, (record.offset,)) for record in records]
