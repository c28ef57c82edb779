"""Encodes and decodes frequent forms of Fetch without kio.

At a low rate each record takes a request and a response of its own, and kio's entities for them
cost as much time as the core does. All other forms are left to kio; tests compare both ways.
"""

from __future__ import annotations

import struct
from itertools import groupby
from typing import TYPE_CHECKING, Final

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.dialects.dialect import throttle_time
from asyncrevoke.client.protocol.dialects.topic_ids import names
from asyncrevoke.client.protocol.guard import HostileFrame, varint
from asyncrevoke.client.protocol.messages import ErrorCode, FetchedPartition, FetchResponse
from asyncrevoke.client.protocol.receive_buffers import buffer_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.protocol.messages import FetchPartition, FetchRequest

# replica id, max wait, min bytes, max bytes, isolation level, session id, session epoch
_START: Final = struct.Struct(">iiiibii")
# partition, leader epoch, offset, log start offset, max bytes
_PARTITION: Final = struct.Struct(">iiqqi")
# the same with the last fetched epoch before the log start offset, and with tagged fields
_TAGGED_PARTITION: Final = struct.Struct(">iiqiqiB")
_COUNT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">h")
_REPLICA_ID_SIZE: Final = 4
_LONGEST_WAIT: Final = 2**31 - 1
_ID_SIZE: Final = 16
# A response with more topics and partitions is not decoded on the event loop.
_MOST_PARTS: Final = 20_000
# The largest count whose compact length (count + 1) takes one byte.
_SMALL: Final = 126


def write_v11(message: FetchRequest) -> bytes | None:
    """The body; None if kio has to encode it."""
    if message.forgotten:
        return None
    topics = [(name, tuple(entries)) for name, entries in groupby(message.partitions, _topic)]
    parts = [_start(message), _COUNT.pack(len(topics))]
    for name, entries in topics:
        parts += (_string(name), _COUNT.pack(len(entries)))
        for entry in entries:
            parts.append(
                _PARTITION.pack(
                    entry.partition.partition, entry.leader_epoch, entry.offset, -1, entry.max_bytes
                )
            )
    parts += (_COUNT.pack(0), _string(message.rack))
    return b"".join(parts)


def write_v13(message: FetchRequest) -> bytes | None:
    """The body; None if kio has to encode it."""
    rack, ids = message.rack.encode(), message.topic_ids
    if message.forgotten or ids is None or len(message.partitions) > _SMALL or len(rack) > _SMALL:
        return None
    topics = [(name, tuple(entries)) for name, entries in groupby(message.partitions, _topic)]
    parts = [_start(message), _compact(len(topics))]
    for name, entries in topics:
        topic_id = ids.get(name)
        if topic_id is None or len(topic_id) != _ID_SIZE:
            return None
        parts += (topic_id, _compact(len(entries)))
        for entry in entries:
            parts.append(
                _TAGGED_PARTITION.pack(
                    entry.partition.partition,
                    entry.leader_epoch,
                    entry.offset,
                    -1,
                    -1,
                    entry.max_bytes,
                    0,
                )
            )
        parts.append(b"\0")
    parts += (_compact(0), _compact(len(rack)), rack, b"\0")
    return b"".join(parts)


def write_v16(message: FetchRequest) -> bytes | None:
    """The body; None if kio has to encode it. From version 15 on, a consumer sends no replica id
    (KIP-903)."""
    body = write_v13(message)
    return None if body is None else body[_REPLICA_ID_SIZE:]


# throttle time, error, session id
_RESPONSE: Final = struct.Struct(">ihi")
# partition, error, high watermark, last stable offset, log start offset, aborted transactions
_FETCHED: Final = struct.Struct(">ihqqqi")
_TAGGED_FETCHED: Final = struct.Struct(">ihqqqB")
# preferred read replica, bytes of records
_REST: Final = struct.Struct(">ii")


def read_v11(
    frame: bytes | memoryview, offset: int, _request: FetchRequest | None = None
) -> FetchResponse | None:
    """The response at ``offset``; None if kio has to decode it, or it is malformed."""
    try:
        return _read_v11(frame, offset)
    except (struct.error, UnicodeDecodeError):
        return None


def _read_v11(frame: bytes | memoryview, at: int) -> FetchResponse | None:
    throttle, error, session_id = _RESPONSE.unpack_from(frame, at)
    (topics,) = _COUNT.unpack_from(frame, at + _RESPONSE.size)
    at += _RESPONSE.size + _COUNT.size
    view, end, found = memoryview(frame), len(frame), list[FetchedPartition]()
    if error or topics < 0:
        return None
    room = _MOST_PARTS
    for _ in range(topics):
        (length,) = _LENGTH.unpack_from(frame, at)
        at += _LENGTH.size
        if length < 0:
            return None
        topic = bytes(frame[at : at + length]).decode()
        at += length
        (partitions,) = _COUNT.unpack_from(frame, at)
        at += _COUNT.size
        room -= partitions + 1
        if partitions < 0 or room < 0:
            return None
        for _ in range(partitions):
            number, error, high, stable, start, aborted = _FETCHED.unpack_from(frame, at)
            at += _FETCHED.size
            replica, size = _REST.unpack_from(frame, at)
            at += _REST.size
            stop = at + max(size, 0)
            if error or not -1 <= aborted <= 0 or size < -1 or stop > end:
                return None
            records = view[at:stop]
            found.append(_partition(topic, number, high, stable, start, replica, records))
            at = stop
    if at != end:
        return None
    return FetchResponse(
        error=ErrorCode.none,
        session_id=session_id,
        partitions=tuple(found),
        throttle_time=throttle_time(throttle),
        buffer=buffer_of(view),
    )


def read_v13(
    frame: bytes | memoryview, offset: int, request: FetchRequest | None
) -> FetchResponse | None:
    """By topic id, up to version 16; topics that ``request`` does not name are left out."""
    try:
        return _read_v13(frame, offset, names(None if request is None else request.topic_ids))
    except (struct.error, IndexError, HostileFrame):
        return None


def _read_v13(
    frame: bytes | memoryview, at: int, known: Mapping[bytes, str]
) -> FetchResponse | None:
    # Only for responses without tagged fields, whose count ends each structure and the header.
    throttle, error, session_id = _RESPONSE.unpack_from(frame, at + 1)
    if error or frame[at]:
        return None
    topics, at = varint(frame, at + 1 + _RESPONSE.size)
    if not topics:
        return None
    room = _MOST_PARTS
    view, end, found = memoryview(frame), len(frame), list[FetchedPartition]()
    for _ in range(topics - 1):
        topic = known.get(bytes(frame[at : at + _ID_SIZE]))
        partitions, at = varint(frame, at + _ID_SIZE)
        room -= partitions
        if not partitions or room < 0:
            return None
        for _ in range(partitions - 1):
            number, error, high, stable, start, aborted = _TAGGED_FETCHED.unpack_from(frame, at)
            at += _TAGGED_FETCHED.size
            (replica,) = _COUNT.unpack_from(frame, at)
            size, at = varint(frame, at + _COUNT.size)
            stop = at + max(size - 1, 0)
            if error or aborted > 1 or stop >= end or frame[stop]:
                return None
            if topic is not None:
                records = view[at:stop]
                found.append(_partition(topic, number, high, stable, start, replica, records))
            at = stop + 1
        if frame[at]:
            return None
        at += 1
    if frame[at] or at + 1 != end:
        return None
    return FetchResponse(
        error=ErrorCode.none,
        session_id=session_id,
        partitions=tuple(found),
        throttle_time=throttle_time(throttle),
        buffer=buffer_of(view),
    )


def _partition(
    topic: str, number: int, high: int, stable: int, start: int, replica: int, records: memoryview
) -> FetchedPartition:
    return FetchedPartition(
        partition=TopicPartition(topic, number),
        error=ErrorCode.none,
        high_watermark=high,
        last_stable_offset=stable,
        log_start_offset=start,
        preferred_read_replica=replica,
        records=records,
    )


def _topic(entry: FetchPartition) -> str:
    return entry.partition.topic


def _start(message: FetchRequest) -> bytes:
    return _START.pack(
        -1,
        min(round(message.max_wait * 1000), _LONGEST_WAIT),
        message.min_bytes,
        message.max_bytes,
        message.read_committed,
        message.session_id,
        message.session_epoch,
    )


def _string(value: str) -> bytes:
    data = value.encode()
    return _LENGTH.pack(len(data)) + data


def _compact(count: int) -> bytes:
    return bytes((count + 1,))
