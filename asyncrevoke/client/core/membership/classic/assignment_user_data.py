"""What this library's leaders add to the assignments of members that have the mark of
``subscription_user_data.py``.

Others get the structure alone: sarama 1.61.1 takes more bytes for an error, and its member would
read nothing.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from asyncrevoke.client.model import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAGIC = b"ar1"
_LAYOUT = struct.Struct(">3sBI")
_WITHHELD = 1
_MAPS_ARE_READ = 2


class AssignmentUserData(Value, frozen=True):
    """``withheld``: partitions wait for their present owners: another rebalance will follow soon.
    ``partitions``: a checksum of the topics and partitions that the leader assigned.
    ``maps_are_read``: every member reads completion maps."""

    withheld: bool
    partitions: int
    maps_are_read: bool = False


def checksum(partitions: Mapping[str, tuple[int, ...] | None]) -> int:
    """A checksum of these topics and partitions; None for a topic that does not exist."""
    text = "\n".join(f"{topic} {partitions[topic]}" for topic in sorted(partitions))
    return zlib.crc32(text.encode())


def encode_assignment_user_data(user_data: AssignmentUserData) -> bytes:
    """The bytes that follow an assignment."""
    flags = _WITHHELD * user_data.withheld | _MAPS_ARE_READ * user_data.maps_are_read
    return _LAYOUT.pack(_MAGIC, flags, user_data.partitions)


def decode_assignment_user_data(data: bytes) -> AssignmentUserData | None:
    """The user data of an assignment, None from a leader of another client."""
    if len(data) != _LAYOUT.size or not data.startswith(_MAGIC):
        return None
    _, flags, partitions = _LAYOUT.unpack(data)
    return AssignmentUserData(bool(flags & _WITHHELD), partitions, bool(flags & _MAPS_ARE_READ))
