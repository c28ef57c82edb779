"""Finds the fields of records in record batches (message format v2, KIP-98).

Creates no object for a record. A loop finds where records begin, because each begins at the end of
the one before. numpy reads all other fields, one field of all records at a time.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from asyncrevoke.client.errors import CorruptRecordError
from asyncrevoke.client.protocol.records import CorruptBatch
from asyncrevoke.client.protocol.unpacking import BATCH_HEADER_SIZE, COUNT_AT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from asyncrevoke.client.model import TopicPartition

    Bytes: TypeAlias = NDArray[np.uint8]
    Buffer: TypeAlias = bytes | memoryview
    Joined: TypeAlias = bytes | bytearray
    Numbers: TypeAlias = NDArray[np.int64]

    class HasOffsets(Protocol):
        """Records in any form."""

        @property
        def offset(self) -> Numbers:
            """Their offsets."""
            ...

    R = TypeVar("R", bound=HasOffsets)
    Read: TypeAlias = Callable[[Joined, int, Sequence[int], int, int], R]

# base offset, attributes, last offset delta, first and last timestamp, count
_HEADER = struct.Struct(">q13xhiqq14xi")
_OFFSET = struct.Struct(">q")
_COUNT = struct.Struct(">i")
_APPEND_TIME = 0x08
_VARINT_BITS = 64
_UNFILLED = "the records do not fill their batch"
_PAIR = np.dtype("<u2")
# The most bits of a record's length.
_LENGTH_BITS = 32
# The consecutive records of one length that are worth a step, and the most that one step finds.
_WORTHWHILE = 32
_MOST_ALIKE = 512
# The most records between two steps.
_MOST_SINGLY = 4096
# The most bytes and records of the batches of one part. A larger batch is a part by itself.
_MOST_BYTES = 10 * 1024 * 1024
_MOST_RECORDS = 100_000


class Places(NamedTuple):
    """The begins and ends of keys or values, and which of them are null."""

    begin: Numbers
    end: Numbers
    null: NDArray[np.bool_]

    def part(self, wanted: slice) -> Places:
        """The fields of a slice of the records."""
        return Places(self.begin[wanted], self.end[wanted], self.null[wanted])


class Fields(NamedTuple):
    """The fields of records, ordered by offset. ``headers``: whether any record of their batches
    has some."""

    offset: Numbers
    timestamp: Numbers
    timestamp_type: Numbers
    key: Places
    value: Places
    headers: bool


def fields_of(
    partition: TopicPartition, wanted: range, batches: Sequence[Buffer]
) -> Iterator[tuple[Joined, Fields]]:
    """The wanted records of uncompressed batches, in parts: pairs of a buffer, and the fields of
    its wanted records. Each part has at least one wanted record, and may have others around them.

    A part is valid as long as ``batches`` are kept, because they own the memory. Raises
    CorruptRecordError for a batch that contradicts itself.
    """
    return in_parts(partition, wanted, batches, read_fields)


def in_parts(
    partition: TopicPartition, wanted: range, batches: Sequence[Buffer], read: Read[R]
) -> Iterator[tuple[Joined, R]]:
    """As :func:`fields_of`, with what ``read`` returns for each part: :func:`read_fields`, or
    another function of the same arguments and errors."""
    together: list[Buffer] = []
    size = records = 0
    for batch in batches:
        (count,) = _COUNT.unpack_from(batch, COUNT_AT)
        if together and (size + len(batch) > _MOST_BYTES or records + count > _MOST_RECORDS):
            yield from _part(partition, wanted, together, read)
            together, size, records = [], 0, 0
        together.append(batch)
        size += len(batch)
        records += count
    if together:
        yield from _part(partition, wanted, together, read)


def _part(
    partition: TopicPartition, wanted: range, batches: Sequence[Buffer], read: Read[R]
) -> Iterator[tuple[Joined, R]]:
    data, at = joined(batches)
    sizes = [len(batch) for batch in batches]
    try:
        records = read(data, at, sizes, wanted.start, wanted.stop)
    except CorruptBatch as error:
        (first,) = _OFFSET.unpack_from(data, at)
        raise CorruptRecordError(partition, first, str(error)) from error
    if len(records.offset):
        yield data, records


def joined(batches: Sequence[Buffer]) -> tuple[Joined, int]:
    """A buffer with all of these batches in sequence, and the position of the first one. The
    batches of one fetch are usually in one buffer already."""
    first = batches[0]
    if isinstance(first, memoryview) and isinstance(first.obj, (bytes, bytearray)):
        begin = end = _address(first)
        for batch in batches:
            if not isinstance(batch, memoryview) or batch.obj is not first.obj:
                break
            if _address(batch) != end:
                break
            end += len(batch)
        else:
            return first.obj, begin - _address(first.obj)
    return b"".join(batches), 0


def _address(data: Buffer | bytearray) -> int:
    return cast("int", np.frombuffer(data, np.uint8).__array_interface__["data"][0])


def read_fields(data: Joined, first: int, sizes: Sequence[int], start: int, end: int) -> Fields:
    """The fields of the records from offset ``start`` up to, not including, ``end``, in consecutive
    batches of these sizes from position ``first`` on."""
    begins = array("q")
    facts: list[tuple[int, int, bool, int]] = []
    counts: list[int] = []
    # The last record of each batch that has records, and where it ends.
    last_records: list[int] = []
    ends: list[int] = []
    singly = 1
    for length in sizes:
        base, attributes, last_delta, first_time, last_time, count = _HEADER.unpack_from(
            data, first
        )
        appended = bool(attributes & _APPEND_TIME)
        facts.append((base, base + last_delta, appended, last_time if appended else first_time))
        counts.append(count)
        singly = walk(data, first + BATCH_HEADER_SIZE, first + length, count, begins, singly)
        first += length
        if count:
            last_records.append(len(begins) - 1)
            ends.append(first)
    base, last, kind, time = np.array(facts, np.int64).T.repeat(counts, axis=1)
    content = np.frombuffer(data, np.uint8)
    begin = np.array(begins, np.int64)
    stop = np.empty_like(begin)
    stop[:-1] = begin[1:]
    stop[last_records] = ends
    at = _after_lengths(content, begin)
    # Attributes have no meaning yet, and parsers disagree on the length of large ones.
    if (content.take(at, mode="clip") >= 0x80).any():
        raise CorruptBatch("a record has unknown attributes")
    time_delta, at = _varints(content, at + 1)
    offset_delta, at = _varints(content, at)
    key, at = _places(content, at, stop)
    value, at = _places(content, at, stop)
    headers, at = _varints(content, at)
    # Positions only grow: a record that was read beyond its end does not end where it should.
    if (np.where(headers == 0, at != stop, at >= stop) | (headers < 0)).any():
        raise CorruptBatch("the fields of a record do not fill it")
    offset = base + offset_delta
    if (offset < base).any() or (offset > last).any() or (offset[1:] <= offset[:-1]).any():
        raise CorruptBatch("the offsets in the record batch are out of order")
    wanted = slice(*offset.searchsorted((start, end)).tolist())
    return Fields(
        offset[wanted],
        np.where(kind == 0, time + time_delta, time)[wanted],
        kind[wanted],
        key.part(wanted),
        value.part(wanted),
        bool((headers > 0).any()),
    )


def walk(data: Joined, at: int, stop: int, count: int, begins: array[int], singly: int = 1) -> int:
    """Append the position of each record, which begins with its length as a varint.

    A step finds consecutive records of one length; it is tried after ``singly`` records. Returns
    how many records of the next batch to read singly before the next step. The number grows while
    lengths vary, because an unsuccessful step costs as much as reading dozens of records singly.
    """
    if count > stop - at:
        raise CorruptBatch(_UNFILLED)
    add, left, size = begins.append, count, 0
    try:
        while left:
            steps = min(singly, left)
            for _ in range(steps):
                add(at)
                size = data[at]
                if size < 0x80:
                    size = 1 + (size >> 1)
                elif (more := data[at + 1]) < 0x80:
                    # The length (zigzag) in 14 bits, plus the two bytes of the varint.
                    size = (size >> 1) + (more << 6) - 62
                else:
                    size = _long(data, at)
                at += size
            left -= steps
            most = min(left, (stop - at) // size, _MOST_ALIKE)
            if most > 0:
                same = _alike(data, at, size, most)
                alike = np.arange(at, at + same * size, size, dtype=np.int64)
                begins.frombytes(alike.tobytes())
                at += same * size
                left -= same
                worthwhile = same == most or same >= _WORTHWHILE
                singly = 1 if worthwhile else min(2 * max(singly, _WORTHWHILE), _MOST_SINGLY)
    except IndexError:
        at = -1
    if at != stop:
        raise CorruptBatch(_UNFILLED)
    return singly


def _long(data: Joined, at: int) -> int:
    """The size of a record whose length takes more than two bytes."""
    begin, size, shift = at, 0, 0
    while (more := data[at]) >= 0x80 and shift < _LENGTH_BITS:
        size |= (more & 0x7F) << shift
        shift += 7
        at += 1
    size |= more << shift
    return at + 1 - begin + (size >> 1)


def _alike(data: Joined, at: int, size: int, most: int) -> int:
    """The number of next records with the same length as the record before."""
    first, second = data[at - size], data[at - size + 1]
    if first >= 0x80 <= second or size < _PAIR.itemsize:
        return 0
    # The second byte is the rest of the length, or attributes, which no record has yet.
    pairs: NDArray[np.uint16] = np.ndarray(most, _PAIR, data, at, (size,))
    same = pairs == (second << 8 | first)
    end = int(same.argmin())
    return most if same[end] else end


def _after_lengths(content: Bytes, at: Numbers) -> Numbers:
    """The positions after the lengths of records at these positions. :func:`walk` has read the same
    lengths within their batch, so that they end."""
    byte = content[at]
    if (byte & 1).any():
        raise CorruptBatch("a record has a negative length")
    at = at + 1
    more = byte >= 0x80
    while more.any():
        byte = content.take(at, mode="clip")
        at += more
        more &= byte >= 0x80
    return at


def _places(content: Bytes, at: Numbers, stop: Numbers) -> tuple[Places, Numbers]:
    size, at = _varints(content, at)
    if (size > stop - at).any():
        raise CorruptBatch("a key or value is longer than its record")
    end = at + np.maximum(size, 0)
    return Places(at, end, size < 0), end


def _varints(content: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """The signed varints (zigzag) at these positions, and the positions after them. A position
    after the content reads its last byte."""
    byte = content.take(at, mode="clip")
    at = at + 1
    more = byte >= 0x80
    if not more.any():
        return (byte >> 1 ^ -(byte & 1)).view(np.int8).astype(np.int64), at
    second = content.take(at, mode="clip")
    at += more
    short = (byte & 0x7F) | (more * (second & 0x7F)).astype(np.uint16) << 7
    more &= second >= 0x80
    if not more.any():
        return (short >> 1 ^ -(short & 1)).view(np.int16).astype(np.int64), at
    number = short.astype(np.uint64)
    left = np.flatnonzero(more)
    shift = 14
    while left.size:
        if shift >= _VARINT_BITS:
            raise CorruptBatch("a number has more than 64 bits")
        byte = content.take(at[left], mode="clip")
        number[left] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        at[left] += 1
        left = left[byte >= 0x80]
        shift += 7
    return (number >> np.uint64(1) ^ -(number & np.uint64(1))).view(np.int64), at
