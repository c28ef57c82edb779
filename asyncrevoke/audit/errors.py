"""Errors of the audit itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.errors import AsyncRevokeError

if TYPE_CHECKING:
    from asyncrevoke.model import TopicPartition


class TopicError(AsyncRevokeError):
    """The topic cannot be read up to the last offset in the journal."""


def nothing_beyond(partition: TopicPartition, position: int, end: int) -> TopicError:
    """The error of a read that made no progress before ``end``."""
    return TopicError(
        f"{partition} returns no record from offset {position} on, and the journal has records up "
        f"to {end}: a transaction may be open, or the consumers used another isolation level"
    )
