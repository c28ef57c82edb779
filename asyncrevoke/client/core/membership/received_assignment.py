"""Reads the assignment that the leader has made for this member.

An assignment that is invalid or too large assigns no partitions; the membership continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.config.topics import MAX_ASSIGNED
from asyncrevoke.client.model import TopicPartition, Value
from asyncrevoke.client.protocol.subscription import MalformedMemberData, decode_assignment

if TYPE_CHECKING:
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata

# A broker stores all assignments of a group in one record, of 1 MiB by default.
_MAX_BYTES = 4 * 2**20
# A leader may know partitions that were created since this member's last metadata.
_MAX_UNKNOWN = 10_000


class ReceivedAssignment(Value, frozen=True):
    """``user_data`` as the leader sent it. ``unreadable``: the reason why nothing of it is used;
    ``ignored``: the part that is not used. None if there is none."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes = b""
    unreadable: str | None = None
    ignored: str | None = None


def read_assignment(
    data: bytes, topics: frozenset[str], cluster: ClusterMetadata
) -> ReceivedAssignment:
    """Decode and check the assignment of a member that subscribes to ``topics``. Never raises."""
    if len(data) > _MAX_BYTES:
        return ReceivedAssignment(unreadable=f"{len(data)} bytes are more than {_MAX_BYTES}")
    try:
        partitions, user_data = decode_assignment(data, max_assigned=MAX_ASSIGNED)
    except MalformedMemberData as error:
        return ReceivedAssignment(unreadable=str(error))
    if len(partitions) > _MAX_UNKNOWN and cluster.last_response_names(topics):
        unknown = [tp for tp in partitions if tp.partition not in cluster.partition_set(tp.topic)]
        if len(unknown) > _MAX_UNKNOWN:
            known = tuple(sorted(frozenset(partitions).difference(unknown)))
            ignored = f"{len(unknown)} partitions that do not exist, such as {unknown[0]}"
            return ReceivedAssignment(known, user_data, ignored=ignored)
    return ReceivedAssignment(partitions, user_data)
