"""What this library adds to the user data of subscriptions, and to the assignments of its leaders.

In its subscription a member has a mark. It tells a leader of this library that the member reads
what leaders add to assignments, and whether it reads completion maps. It stands after the
assignor's own user data, and only where no client decodes that strictly. ``range`` and
``roundrobin`` have none, and that of ``cooperative-sticky`` is read only in subscriptions before
version 2. In the user data of ``sticky`` sarama 1.61.1 takes more bytes than Java's structure has
for an error, and a leader of sarama then assigns nothing: there is no mark, and members count as
ones that do not read completion maps.

Members without the mark get the structure of an assignment alone: sarama 1.61.1 takes more bytes
for an error, and its member would read nothing.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.core.assignors.registry import is_builtin
from asyncrevoke.client.core.assignors.sticky import StickyAssignor
from asyncrevoke.client.model import TopicPartition, Value

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.assignors.assignor import Assignor

_MARK = b"asyncrevoke"
_READS_MAPS = 1
_MARKED = frozenset(("range", "roundrobin", "cooperative-sticky"))

_MAGIC = b"ar1"
_LAYOUT = struct.Struct(">3sBI")
_WITHHELD = 1
_MAPS_ARE_READ = 2


class LastAssignment(NamedTuple):
    """What a member was assigned last, and in which generation; -1 if it never was."""

    generation: int = -1
    partitions: tuple[TopicPartition, ...] = ()


def subscription_user_data(
    assignor: Assignor,
    generation: int,
    owned: Collection[TopicPartition],
    last: LastAssignment,
    config: ConsumerConfig,
) -> bytes | None:
    """The user data of a subscription: the assignor's, and the mark if it can carry one; of a
    user's assignor, only its own. ``last`` is for ``sticky``, whose members own nothing when they
    join."""
    if isinstance(assignor, StickyAssignor):
        generation, owned = last
    data = assignor.user_data(generation, owned)
    if not carries_mark(assignor):
        return data
    maps = config.completion_map > 0 and config.commit_mode != "manual"
    return (data or b"") + _MARK + bytes([_READS_MAPS if maps else 0])


def carries_mark(assignor: Assignor) -> bool:
    """Whether the mark tells members of this library from those of other clients."""
    return assignor.name in _MARKED and is_builtin(assignor)


def has_mark(data: bytes | None) -> bool:
    """Whether the member that sent this user data reads what leaders add to assignments."""
    return (data or b"")[-len(_MARK) - 1 : -1] == _MARK


def reads_maps(data: bytes | None) -> bool:
    """Whether the member that sent this user data reads completion maps."""
    return data is not None and has_mark(data) and bool(data[-1] & _READS_MAPS)


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
