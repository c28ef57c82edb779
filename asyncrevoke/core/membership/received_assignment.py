"""The assignment that another member, the leader, has made: what is wrong in it ends no membership.

An assignment that cannot be read, or is too large, counts as one without partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.config.topics import MAX_ASSIGNED
from asyncrevoke.core.membership.classic.assignment_user_data import (
    AssignmentUserData,
    decode_assignment_user_data,
)
from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol.subscription import MalformedMemberData, decode_assignment

if TYPE_CHECKING:
    from asyncrevoke.core.metadata.cluster import ClusterMetadata

# A broker stores all assignments of a group in one record, of 1 MiB by default.
_MAX_BYTES = 4 * 2**20
# A leader may know partitions that were created since this member's last metadata.
_MAX_UNKNOWN = 10_000


class ReceivedAssignment(NamedTuple):
    """``unreadable``: why nothing of it is used. ``ignored``: which part is not."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: AssignmentUserData | None = None
    unreadable: str | None = None
    ignored: str | None = None


def read_assignment(
    data: bytes, topics: frozenset[str], cluster: ClusterMetadata
) -> ReceivedAssignment:
    """Read and check what SyncGroup has returned to a member that is subscribed to ``topics``;
    never raises."""
    if len(data) > _MAX_BYTES:
        return ReceivedAssignment(unreadable=f"{len(data)} bytes are more than {_MAX_BYTES}")
    try:
        partitions, note = decode_assignment(data, max_assigned=MAX_ASSIGNED)
    except MalformedMemberData as error:
        return ReceivedAssignment(unreadable=str(error))
    user_data = decode_assignment_user_data(note)
    if len(partitions) > _MAX_UNKNOWN and cluster.last_response_names(topics):
        unknown = [tp for tp in partitions if tp.partition not in cluster.partition_set(tp.topic)]
        if len(unknown) > _MAX_UNKNOWN:
            known = tuple(sorted(frozenset(partitions).difference(unknown)))
            ignored = f"{len(unknown)} partitions that do not exist, such as {unknown[0]}"
            return ReceivedAssignment(known, user_data, ignored=ignored)
    return ReceivedAssignment(partitions, user_data)
