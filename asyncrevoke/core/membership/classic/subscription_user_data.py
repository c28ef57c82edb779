"""What members of this library add to the user data of subscriptions, for their leaders.

It is at the end: assignors of other clients ignore what follows the data that they know. A member
that adds nothing counts as one that does not read completion maps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.core.assignors.registry import is_builtin
from asyncrevoke.core.assignors.sticky import StickyAssignor
from asyncrevoke.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.assignors.assignor import Assignor

_MAGIC = b"asyncrevoke"
_READS_MAPS = 1


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
    """The user data of a subscription: the assignor's, and whether this member reads completion
    maps; of a user's assignor, only its own. ``last`` is for ``sticky``, whose members own nothing
    when they join."""
    if isinstance(assignor, StickyAssignor):
        generation, owned = last
    data = assignor.user_data(generation, owned)
    if not is_builtin(assignor):
        return data
    maps = config.completion_map > 0 and config.commit_mode != "manual"
    return (data or b"") + _MAGIC + bytes([_READS_MAPS if maps else 0])


def reads_maps(data: bytes | None) -> bool:
    """Whether the member that sent this user data reads completion maps."""
    note = (data or b"")[-len(_MAGIC) - 1 :]
    return note.startswith(_MAGIC) and bool(note[-1] & _READS_MAPS)
