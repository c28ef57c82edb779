"""One byte of state for each offset of a partition, found by the offset.

Consecutive offsets, small holes included, are a *segment*, in which the byte of an offset is found
by one subtraction; a wide hole begins another segment.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from copy import copy
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from asyncrevoke.client.core.partition.completion_map import Run

# The states of an offset, and tables that change the states of many at C speed.
PENDING: Final = 0  # delivered
HELD: Final = 1  # a task runs it
DONE: Final = 2
HOLE: Final = 3  # no record, or completed by a former owner
ABANDONED: Final = 4  # ended without being done, or never started
LEFT_OUT: Final = 5  # abandoned while others are read again, which leave it out

COMPLETED: Final = re.compile(rb"[\x02\x03]*")
IN_FLIGHT: Final = re.compile(rb"[\x00\x01]")
# For bytes.translate: 1 for states that ...
IS_COMPLETED: Final = b"\0\0\1\1" + bytes(252)
IS_NOT_ABANDONED: Final = b"\1\1\1\1" + bytes(252)
# ... or another state for some.
WITHOUT_ABANDONED: Final = bytes((PENDING, HELD, DONE, HOLE, HOLE)) + bytes(range(5, 256))
READ_ALL_AGAIN: Final = bytes((*range(5), ABANDONED)) + bytes(range(6, 256))
ABANDON_PENDING: Final = bytes((ABANDONED,)) + bytes(range(1, 256))
COMPLETE_PENDING: Final = bytes((DONE, HELD, DONE, HOLE)) + bytes(range(4, 256))

# The widest hole whose offsets have a byte each.
WIDEST_HOLE = 16


class OffsetFlags:
    """The bytes, and where each segment begins."""

    __slots__ = ("_flags", "_high", "_low", "_segment_indices", "_segment_offsets", "_shift")

    def __init__(self) -> None:
        self._flags = bytearray()
        # For each segment, its first offset and the index of its first byte.
        self._segment_offsets = array("q")
        self._segment_indices = array("q")
        # The segment used last: offsets low..high-1, whose index is offset - shift.
        self._low = 0
        self._high = 0
        self._shift = 0

    def preview(self) -> Self:
        """A copy, which shows what completing records would lead to. It is for that alone."""
        return copy(self).with_own_flags()

    def with_own_flags(self) -> Self:
        """This, made by :func:`copy.copy`, with bytes and segments of its own."""
        self._flags = self._flags[:]
        self._segment_offsets = self._segment_offsets[:]
        self._segment_indices = self._segment_indices[:]
        return self

    def _end_of_segments(self, first: int) -> int:
        """Begin a segment if ``first`` cannot follow the last one; returns the end of the last."""
        if self._flags:
            end = self._offset_at(len(self._flags) - 1) + 1
            if first - end <= WIDEST_HOLE:
                return end
        self._segment_offsets.append(first)
        self._segment_indices.append(len(self._flags))
        return first

    def _use_segment(self, number: int) -> None:
        offset, index = self._segment_offsets[number], self._segment_indices[number]
        last = number + 1 == len(self._segment_indices)
        end = len(self._flags) if last else self._segment_indices[number + 1]
        self._low, self._shift, self._high = offset, offset - index, offset + end - index

    def _change_run(self, offsets: Sequence[int], former: int, new: int) -> bool:
        """Change the bytes of consecutive offsets, given in any order, from ``former`` to ``new``.

        False, without effect, if they are not consecutive, have other bytes, or are not in the
        segment used last. This takes a quarter of the time of changing each.
        """
        ordered = sorted(offsets)
        if not ordered or not self._low <= ordered[0] <= ordered[-1] < self._high:
            return False
        first, end, count = ordered[0] - self._shift, ordered[-1] + 1 - self._shift, len(ordered)
        if count != end - first or self._flags.count(former, first, end) != count:
            return False
        if ordered != list(range(ordered[0], ordered[-1] + 1)):
            return False
        self._flags[first:end] = bytes((new,)) * count
        return True

    def _offset_at(self, index: int) -> int:
        offset = index + self._shift
        if self._low <= offset < self._high:
            return offset
        self._use_segment(bisect_right(self._segment_indices, index) - 1)
        return index + self._shift

    def _index_after(self, offset: int) -> int:
        """The index of the first byte whose offset is greater than ``offset``."""
        number = bisect_right(self._segment_offsets, offset) - 1
        if number < 0:
            return 0
        self._use_segment(number)
        return min(offset + 1, self._high) - self._shift

    def _cut(self, index: int) -> None:
        """Drop everything from ``index`` on."""
        del self._flags[index:]
        number = bisect_left(self._segment_indices, index)
        del self._segment_offsets[number:], self._segment_indices[number:]
        if number:
            self._use_segment(number - 1)

    def _move_tail(self, index: int, other: OffsetFlags) -> None:
        """Move everything from ``index`` on, which exists, to ``other``, which is empty."""
        first = self._offset_at(index)
        number = bisect_right(self._segment_indices, index)
        other._flags = self._flags[index:]
        other._segment_offsets = array("q", [first, *self._segment_offsets[number:]])
        indices = (start - index for start in self._segment_indices[number:])
        other._segment_indices = array("q", [0, *indices])
        other._use_segment(0)
        self._cut(index)

    def _drop_before(self, head: int) -> None:
        """Drop all before index ``head``, which is in the first remaining segment."""
        number = bisect_right(self._segment_indices, head) - 1
        del self._segment_offsets[:number], self._segment_indices[:number]
        self._segment_offsets[0] += head - self._segment_indices[0]
        self._segment_indices = array(
            "q", (max(index - head, 0) for index in self._segment_indices)
        )
        del self._flags[:head]
        self._use_segment(0)

    def _runs(self, head: int, at: int, table: bytes, position: int) -> Iterator[Run]:
        """Runs from index ``head`` (offset ``at``) on of offsets whose bytes ``table`` maps to 1;
        the last one ends at ``position``."""
        indices = self._segment_indices
        finished = self._flags[head:].translate(table)
        for number in range(bisect_right(indices, head) - 1, len(indices)):
            shift = self._segment_offsets[number] - indices[number] + head
            last = number + 1 == len(indices)
            stop = len(finished) if last else indices[number + 1] - head
            index = finished.find(0, max(indices[number] - head, 0), stop)
            while index >= 0:
                if index + shift > at:
                    yield at, index + shift
                index = finished.find(1, index, stop)
                at = (index if index >= 0 else stop) + shift
                index = finished.find(0, index, stop) if index >= 0 else -1
        if at < position:
            yield at, position
