"""One byte of state for each offset of a partition, found by the offset.

Offsets that follow each other, small holes included, are a *segment*, in which finding the byte of
an offset is one subtraction; a wide hole begins another segment.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

# Offsets without a record, up to so many in a row, have a byte each.
WIDEST_HOLE = 16


class OffsetFlags:
    """The bytes, and where each segment of them begins."""

    __slots__ = ("_flags", "_high", "_low", "_segment_indices", "_segment_offsets", "_shift")

    def __init__(self) -> None:
        self._flags = bytearray()
        # Where each segment begins: its offset, and the index of its first byte.
        self._segment_offsets = array("q")
        self._segment_indices = array("q")
        # The segment used last: offsets low..high-1, whose index is offset - shift.
        self._low = 0
        self._high = 0
        self._shift = 0

    def _end_of_segments(self, first: int) -> int:
        """Make the last segment end where a record of offset ``first`` can follow; its end."""
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
