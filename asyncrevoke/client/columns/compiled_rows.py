"""Reads records of record batches in loops that numba compiles: the fields of all, and copies of
their keys and values in sequence.

Takes less processor time than :mod:`asyncrevoke.client.columns.record_fields` and a copy by
pyarrow. numba compiles a loop when it is first called, which takes some seconds, and keeps the
result in a folder for other processes: beside this file, or in ``NUMBA_CACHE_DIR``. Importing this
module raises ImportError without numba, or if numba does not support the installed numpy.

Compiled loops do not check indexes by themselves.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from asyncrevoke.client.protocol.records import CorruptBatch
from asyncrevoke.client.protocol.unpacking import BATCH_HEADER_SIZE, COUNT_AT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.columns.record_fields import Joined

    Bytes: TypeAlias = NDArray[np.uint8]
    Numbers: TypeAlias = NDArray[np.int64]
    F = TypeVar("F", bound=Callable[..., object])

numba: Any = import_module("numba")

# Positions in the header of a batch.
_ATTRIBUTES_AT = 22
_LAST_DELTA_AT = 23
_FIRST_TIME_AT = 27
_LAST_TIME_AT = 35
_APPEND_TIME = 0x08
# A record has at least seven fields of a byte.
_SMALLEST_RECORD = 7
_VARINT_BITS = 64
_LARGEST = 2**63 - 1
_UNFILLED, _ATTRIBUTES, _TOO_LONG, _FIELDS, _ORDER = range(-1, -6, -1)
_PROBLEMS = {
    _UNFILLED: "the records do not fill their batch",
    _ATTRIBUTES: "a record has unknown attributes",
    _TOO_LONG: "a key or value is longer than its record",
    _FIELDS: "the fields of a record do not fill it",
    _ORDER: "the offsets in the record batch are out of order",
}


class Contents(NamedTuple):
    """Keys or values in sequence, where each begins and ends, and which are null.

    ``bounds`` has one number more than there are records, of which the last is the end.
    """

    data: Bytes
    bounds: NDArray[np.int32]
    null: NDArray[np.bool_]

    def first(self, count: int) -> Contents:
        """Those of the first records."""
        return Contents(self.data, self.bounds[: count + 1], self.null[:count])


class Rows(NamedTuple):
    """Records, ordered by offset. ``headers``: whether any record of their batches has some."""

    offset: Numbers
    timestamp: Numbers
    timestamp_type: NDArray[np.int32]
    key: Contents
    value: Contents
    headers: bool


def _compiled(function: F) -> F:
    """Compiled at the first call. Calls release the GIL."""
    try:
        return cast("F", numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # this user may not write to any folder for the cache
        return cast("F", numba.njit(nogil=True)(function))


def read_rows(
    data: Joined,
    first: int,
    sizes: Sequence[int],
    start: int,
    end: int,
    *,
    keys: bool,
    values: bool,
) -> Rows:
    """The records from offset ``start`` up to, not including, ``end``, in consecutive batches of
    these sizes from position ``first`` on. Keys and values are empty unless wanted. Raises
    CorruptBatch for a batch that contradicts itself."""
    content, lengths = np.frombuffer(data, np.uint8), np.array(sizes, np.int64)
    # numba would compile the loops once more for a writable array.
    content.flags.writeable = False
    most = _checked(_count(content, first, lengths))
    numbers, kinds = np.empty((2, most), np.int64), np.empty(most, np.int32)
    key, value = (_room(most, wanted * sum(sizes)) for wanted in (keys, values))
    headers = np.zeros(1, np.bool_)
    found = _read(content, first, lengths, (start, end), numbers, kinds, key, value, headers)
    count = _checked(found)
    offset, timestamp = numbers[:, :count]
    return Rows(
        offset,
        timestamp,
        kinds[:count],
        key.first(count),
        value.first(count),
        bool(headers[0]),
    )


def _checked(count: int) -> int:
    if count < 0:
        raise CorruptBatch(_PROBLEMS[count])
    return count


def _room(count: int, size: int) -> Contents:
    """For the contents of so many records, of at most ``size`` bytes. The memory of what is not
    written is not touched."""
    bounds, null = np.zeros(count + 1, np.int32), np.empty(count, np.bool_)
    return Contents(np.empty(size, np.uint8), bounds, null)


@_compiled
def _number(data: Bytes, at: int, size: int) -> int:
    """The signed number of so many bytes at this position."""
    number = int(data[at])
    if number >= 0x80:
        number -= 0x100
    for place in range(at + 1, at + size):
        number = number << 8 | int(data[place])
    return number


@_compiled
def _varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The signed varint (zigzag) at this position, and the position after it, which is after
    ``end`` if the varint does not end before or has more than 64 bits."""
    number, shift = 0, 0
    while at < end and shift < _VARINT_BITS:
        byte = int(data[at])
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number >> 1 & _LARGEST ^ -(number & 1), at
        shift += 7
    return 0, end + 1


@_compiled
def _count(data: Bytes, first: int, sizes: Numbers) -> int:
    """The number of records by the headers of batches; a problem if they cannot have as many."""
    records = 0
    for size in sizes:
        if size < BATCH_HEADER_SIZE:
            return _UNFILLED
        count = _number(data, first + COUNT_AT, 4)
        if not 0 <= count <= (size - BATCH_HEADER_SIZE) // _SMALLEST_RECORD:
            return _UNFILLED
        records += count
        first += size
    return records


@_compiled
def _copy(data: Bytes, begin: int, size: int, contents: Contents, row: int) -> None:
    """Append so many bytes, those of a row; null if the size is negative. Does nothing but note
    null if there is no room, as the contents are not wanted."""
    contents.null[row] = size < 0
    filled = contents.bounds[row]
    if size > 0 and size <= len(contents.data) - filled:
        # Compiled to an instruction for each byte unless the indexes are unsigned.
        source, target = np.uint64(begin), np.uint64(filled)
        for at in range(np.uint64(size)):
            contents.data[target + at] = data[source + at]
        filled += size
    contents.bounds[row + 1] = filled


@_compiled
def _read(
    data: Bytes,
    first: int,
    sizes: Numbers,
    wanted: tuple[int, int],
    numbers: Numbers,
    kinds: NDArray[np.int32],
    keys: Contents,
    values: Contents,
    headers_seen: NDArray[np.bool_],
) -> int:
    """Read batches into these rows: ``numbers`` takes offsets and timestamps, ``headers_seen``
    whether any record has headers. Returns how many rows there are, or a problem."""
    row, offset, stop = 0, -_LARGEST, first
    for size in sizes:
        at, stop = stop, stop + size
        base, last_delta = _number(data, at, 8), _number(data, at + _LAST_DELTA_AT, 4)
        appended = int(data[at + _ATTRIBUTES_AT]) & _APPEND_TIME != 0
        time = _number(data, at + (_LAST_TIME_AT if appended else _FIRST_TIME_AT), 8)
        count = _number(data, at + COUNT_AT, 4)
        at += BATCH_HEADER_SIZE
        if count > len(kinds) - row:
            return _UNFILLED
        for _ in range(count):
            length, at = _varint(data, at, stop)
            if not 0 < length <= stop - at:
                return _UNFILLED
            end = at + length
            # Attributes have no meaning yet, and parsers disagree on the length of large ones.
            if int(data[at]) >= 0x80:
                return _ATTRIBUTES
            later, at = _varint(data, at + 1, end)
            delta, at = _varint(data, at, end)
            key_size, key = _varint(data, at, end)
            if key_size > end - key:
                return _TOO_LONG
            value_size, value = _varint(data, key + max(key_size, 0), end)
            if value_size > end - value:
                return _TOO_LONG
            headers, at = _varint(data, value + max(value_size, 0), end)
            if headers < 0 or at > end or (at < end) != (headers > 0):
                return _FIELDS
            if headers > 0:
                headers_seen[0] = True
            if not 0 <= delta <= last_delta or base + delta <= offset:
                return _ORDER
            offset = base + delta
            if wanted[0] <= offset < wanted[1]:
                numbers[0, row] = offset
                numbers[1, row] = time if appended else time + later
                kinds[row] = appended
                _copy(data, key, key_size, keys, row)
                _copy(data, value, value_size, values, row)
                row += 1
            at = end
        if at != stop:
            return _UNFILLED
    return row
