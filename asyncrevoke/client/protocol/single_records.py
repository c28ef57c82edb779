"""Splits one batch (message format v2) by the lengths of its records: in parts, or one by one.

aiokafka's parser creates all headers that a record declares in one call, before it checks the
record's length. So it gets no more bytes at a time than one call may take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.client.protocol.content_limits import (
    MAX_ADDED_HEADERS,
    MAX_RECORD_HEADERS,
    too_many_headers,
)
from asyncrevoke.client.protocol.dependencies.parser import batch_class
from asyncrevoke.client.protocol.unpacking import BATCH_HEADER_SIZE, COUNT_AT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiokafka.record._protocols import DefaultRecordBatchProtocol

    from asyncrevoke.client.model import Record, UnreadableRecord

# A batch with more unreadable records is rejected as a whole.
_MOST_UNREADABLE: Final = 100
# Bytes that the parser gets at a time, unless one record has more.
_PIECE: Final = 64 * 1024
_LONGEST_VARINT: Final = 10
_ATTRIBUTES_MORE: Final = 0x80
# Set in each byte of a number but its last one.
_CONTINUES: Final = 0x80
# At most two numbers are read at the end of a batch without a look at where it ends.
_ZEROS: Final = bytes(16)


class TooManyObjects(ValueError):  # noqa: N818 - it names what was read
    """A batch that has more records and headers than allowed."""

    def __init__(self, most: int) -> None:
        super().__init__(f"it holds more than {most} records and headers, which is the limit")


def parser(data: bytes) -> DefaultRecordBatchProtocol:
    """The parser (aiokafka's) of a batch whose header is whole; it reads nothing beyond ``data``.

    A number (varint) has no end for the parser but a byte below 0x80, and where one begins is not
    always compared with the end of the data. The zero byte that follows the content of each bytes
    object ends a number that begins there, or else the record is rejected before the next number;
    not so if the last byte continues a number.
    """
    if data[-1] < _CONTINUES:
        return batch_class()(data)
    return batch_class()(memoryview(data + _ZEROS)[: len(data)])


def pieces(data: bytes) -> Iterator[bytes]:
    """Split a batch without compression into batches of about 64 KiB.

    Raises ValueError or IndexError if a record has too many headers, or lengths are inconsistent.
    """
    at = BATCH_HEADER_SIZE
    end = len(data)
    while at < end:
        start, count = at, 0
        limit = min(at + _PIECE, end)
        while at < limit:
            first = data[at]
            if first < 0x80:
                at += 1 + (first >> 1)
            elif (second := data[at + 1]) < 0x80:
                # Half of the 14-bit number, and its two bytes.
                at += (first >> 1) + (second << 6) - 62
            else:
                size, body = _varint(data, at)
                if not 0 <= size <= end - body:
                    raise ValueError("a record is longer than its batch, or has a negative length")
                if body + size > limit:
                    # Only a record of this size can have too many headers.
                    if count:
                        yield _part(data, count, start, at)
                    _check_headers(data, body, body + size)
                    start, count = at, 0
                at = body + size
            count += 1
        if at > end:
            raise ValueError("the records do not fill their batch")
        yield _part(data, count, start, at)


def without_values(data: memoryview, count: int) -> tuple[bytes, list[memoryview | None]]:
    """Cut the values out of a batch without compression: the batch with empty values, for the
    parser, and the values. A null value stays.

    Raises ValueError or IndexError if lengths are inconsistent, or there are more than ``count``
    records.
    """
    rest: list[bytes | memoryview] = [data[:BATCH_HEADER_SIZE]]
    values: list[memoryview | None] = []
    at, end = BATCH_HEADER_SIZE, len(data)
    while at < end:
        size, body = _varint(data, at)
        stop = body + size
        if not 0 <= size <= end - body or len(values) == count:
            raise ValueError("a record is longer than its batch, or there are too many")
        begin = _key_end(data, body)
        length, value_at = _varint(data, begin)
        if length < 0:
            rest.append(data[at:stop])
            values.append(None)
        else:
            value_end = value_at + length
            if value_end >= stop:
                raise ValueError("a value is longer than its record")
            left = begin - body + stop - value_end + 1
            rest += (_encoded_varint(left), data[body:begin], b"\0", data[value_end:stop])
            values.append(data[value_at:value_end])
        at = stop
    return b"".join(rest), values


def read_one_by_one(
    data: bytes,
    count: int,
    base_offset: int,
    next_offset: int,
    parse: Callable[[bytes], Record],
    unreadable: Callable[[int, str], UnreadableRecord],
) -> list[Record]:
    """The records of a batch, with ``unreadable(offset, why)`` for each that cannot be decoded.

    Raises ValueError or IndexError if lengths or offsets are inconsistent: then it is unknown which
    bytes belong to which record.
    """
    records: list[Record] = []
    rejected = 0
    at, end, expected = BATCH_HEADER_SIZE, len(data), base_offset
    for _ in range(count):
        size, body = _varint(data, at)
        stop = body + size
        if not 0 <= size <= end - body:
            raise ValueError("a record is longer than its batch, or has a negative length")
        offset = base_offset + _offset_delta(data, body)
        if not expected <= offset < next_offset:
            raise ValueError("the offsets in the record batch are out of order")
        expected = offset + 1
        try:
            _check_headers(data, body, stop)
            try:
                record = parse(_part(data, 1, at, stop))
            except MemoryError:
                # The parser allocates by the declared length, which may be exabytes.
                _check_header_lengths(data, body, stop)
                raise
            if record.offset != offset:
                raise ValueError(f"it says offset {record.offset}")
        except (MemoryError, TooManyObjects):
            raise
        except Exception as error:
            rejected += 1
            if rejected > _MOST_UNREADABLE:
                raise ValueError(
                    f"more than {_MOST_UNREADABLE} of its records cannot be read"
                ) from error
            record = unreadable(offset, reason(error))
        records.append(record)
        at = stop
    if at != end:
        raise ValueError("the records do not fill their batch")
    return records


def reason(error: Exception) -> str:
    """Why a record cannot be decoded, without any of its content."""
    if isinstance(error, UnicodeDecodeError):
        return "the name of a header is not UTF-8"
    if isinstance(error, IndexError):
        return "a record reaches beyond its end"
    return str(error)


def _part(data: bytes, count: int, start: int, stop: int) -> bytes:
    return b"".join((data[:COUNT_AT], count.to_bytes(4, "big"), data[start:stop]))


def _check_headers(data: bytes, body: int, stop: int) -> tuple[int, int]:
    """How many headers the record from ``body`` to ``stop`` has, and where they begin.

    Raises ValueError if there are too many, or the fields before them do not fit into the record.
    """
    size, at = _varint(data, _key_end(data, body))
    at += max(size, 0)
    if at >= stop:
        raise ValueError("a key or value is longer than its record")
    count, at = _varint(data, at)
    if count > MAX_RECORD_HEADERS + MAX_ADDED_HEADERS:
        too_many_headers()
    return count, at


def _check_header_lengths(data: bytes, body: int, stop: int) -> None:
    count, at = _check_headers(data, body, stop)
    for _ in range(2 * count):
        size, at = _varint(data, at)
        at += max(size, 0)
        if at > stop:
            raise ValueError("a header is longer than its record")


def _offset_delta(data: bytes, body: int) -> int:
    _, at = _varint(data, _after_attributes(data, body))
    delta, _ = _varint(data, at)
    return delta


def _key_end(data: bytes | memoryview, body: int) -> int:
    """Where the key of the record at ``body`` ends."""
    at = _after_attributes(data, body)
    for _ in range(2):
        _, at = _varint(data, at)
    size, at = _varint(data, at)
    return at + max(size, 0)


def _after_attributes(data: bytes | memoryview, body: int) -> int:
    # Kafka defines no attributes yet, and parsers differ on the length of large values.
    if data[body] >= _ATTRIBUTES_MORE:
        raise ValueError("a record has unknown attributes")
    return body + 1


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The signed number (zigzag) at a position, and the position after it."""
    value = 0
    for index in range(_LONGEST_VARINT):
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), at + index + 1
    raise ValueError("a number has more than 64 bits")


def _encoded_varint(number: int) -> bytes:
    """A number from 0 on, zigzag."""
    left, encoded = number << 1, bytearray()
    while left >= _CONTINUES:
        encoded.append(left & 0x7F | _CONTINUES)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)
