"""Fetch requests of the usual shape, written without kio.

For each record that comes at a low rate there is a request, and to make an entity of kio for it and
write that takes as long as all that the core does between the two. What is unusual is left to kio,
and a test compares the two.
"""

from __future__ import annotations

import struct
from itertools import groupby
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncrevoke.protocol.messages import FetchPartition, FetchRequest

__all__ = ["write_v11", "write_v13"]

# replica id, max wait, min bytes, max bytes, isolation level, session id, session epoch
_START: Final = struct.Struct(">iiiibii")
# partition, leader epoch, offset, log start offset, max bytes
_PARTITION: Final = struct.Struct(">iiqqi")
# the same with the epoch that was fetched last, before the log start, and tagged fields
_TAGGED_PARTITION: Final = struct.Struct(">iiqiqiB")
_COUNT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">h")
_LONGEST_WAIT: Final = 2**31 - 1
_ID_SIZE: Final = 16
# What takes one byte as a compact length, which is one more than what it counts.
_SMALL: Final = 126


def write_v11(message: FetchRequest) -> bytes | None:
    """The body; None if it is unusual."""
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
    """The body; None if it is unusual."""
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
