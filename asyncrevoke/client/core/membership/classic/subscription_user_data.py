"""What members of this library add to the user data of their subscriptions: a mark.

It tells a leader of this library that the member reads what leaders add to assignments, and whether
it reads completion maps. It stands after the assignor's own user data, and only where no client
decodes that strictly. ``range`` and ``roundrobin`` have none, and that of ``cooperative-sticky`` is
read only in subscriptions before version 2. In the user data of ``sticky`` sarama 1.61.1 takes more
bytes than Java's structure has for an error, and a leader of sarama then assigns nothing: there is
no mark, and members count as ones that do not read completion maps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.core.assignors.registry import is_builtin
from asyncrevoke.client.core.assignors.sticky import StickyAssignor
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.assignors.assignor import Assignor

_MAGIC = b"asyncrevoke"
_READS_MAPS = 1
_MARKED = frozenset(("range", "roundrobin", "cooperative-sticky"))


class LastAssignment(NamedTuple):
    """What a member was assigned last, and in which generation; -1 if it never was."""

    generation: int = -1
    partitions: tuple[TopicPartition, ...] = ()


def user_data(
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
    if assignor.name not in _MARKED or not is_builtin(assignor):
        return data
    maps = config.completion_map > 0 and config.commit_mode != "manual"
    return (data or b"") + _MAGIC + bytes([_READS_MAPS if maps else 0])


def has_mark(data: bytes | None) -> bool:
    """Whether the member that sent this user data reads what leaders add to assignments."""
    return (data or b"")[-len(_MAGIC) - 1 : -1] == _MAGIC


def reads_maps(data: bytes | None) -> bool:
    """Whether the member that sent this user data reads completion maps."""
    return data is not None and has_mark(data) and bool(data[-1] & _READS_MAPS)
