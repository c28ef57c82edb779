"""Errors of an audit itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.errors import AsyncRevokeError

if TYPE_CHECKING:
    from asyncrevoke.model import TopicPartition


class TopicError(AsyncRevokeError):
    """The topic cannot be read to the end of what the journal says of it."""


def nothing_beyond(partition: TopicPartition, position: int, end: int) -> TopicError:
    """The error of a read that made no progress before ``end``."""
    return TopicError(
        f"{partition} gives nothing beyond offset {position}, and the journal goes to "
        f"{end}: a transaction may be open there, or the consumers read with another isolation "
        "level"
    )
