"""What our members add to the user data of their subscriptions, for leaders of ours.

It stands at the end: assignors of other clients read what they know from the beginning of the user
data, if they read it at all, and ignore what follows. A member that adds nothing, as those of
other clients, is taken for one that does not read completion maps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.assignors.registry import is_builtin

if TYPE_CHECKING:
    from collections.abc import Collection

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.assignors.assignor import Assignor
    from asyncrevoke.model import TopicPartition

_MAGIC = b"asyncrevoke"
_READS_MAPS = 1


def user_data(
    assignor: Assignor, generation: int, owned: Collection[TopicPartition], config: ConsumerConfig
) -> bytes | None:
    """The user data of a subscription: the assignor's, and whether we read completion maps.

    An assignor of the user's own has its user data for itself.
    """
    data = assignor.user_data(generation, owned)
    if not is_builtin(assignor):
        return data
    maps = config.completion_map > 0 and config.commit_mode != "manual"
    return (data or b"") + _MAGIC + bytes([_READS_MAPS if maps else 0])


def reads_maps(data: bytes | None) -> bool:
    """Whether the member that sent this user data reads completion maps."""
    note = (data or b"")[-len(_MAGIC) - 1 :]
    return note.startswith(_MAGIC) and bool(note[-1] & _READS_MAPS)
