"""The offsets of a consumer group that a transaction commits (KIP-98, KIP-447)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.errors import TransactionError
from asyncrevoke.client.model import GroupMetadata
from asyncrevoke.client.protocol.messages import CommitEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.protocol.messages import ErrorCode


class GroupOffsets(NamedTuple):
    """Offsets that are committed with the records of a transaction, or not at all.

    ``identity`` is the group, and the member whose generation or epoch the group coordinator
    checks. There is one entry or more, each of another partition. ``renewed`` gets an identity
    whose epoch the coordinator has rejected, and returns the present one, which may be the same for
    a while; None if the offsets must not be committed any more.
    """

    identity: GroupMetadata
    entries: tuple[CommitEntry, ...]
    renewed: Callable[[GroupMetadata], GroupMetadata | None] = lambda _rejected: None


class OffsetsRejectedError(TransactionError):
    """The group coordinator has rejected offsets, and the transaction is aborted.

    ``errors`` has the code of each rejected partition. If the coordinator rejects the member or the
    group, these are all partitions of the transaction.
    """

    def __init__(self, group_id: str, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        self.errors = errors
        names = ", ".join(sorted({error.name for error in errors.values()}))
        super().__init__(
            f"group {group_id}: the offsets of {len(errors)} partitions are rejected: {names}"
        )


def rejected_as_a_whole(offsets: GroupOffsets, error: ErrorCode) -> OffsetsRejectedError:
    """The error of all partitions: the member or the group is rejected."""
    errors = {entry.partition: error for entry in offsets.entries}
    return OffsetsRejectedError(offsets.identity.group_id, errors)
