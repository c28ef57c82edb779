"""The requests and responses of a member of a share group (KIP-932), independent of versions.

Partitions are identified by the id of their topic, because the requests have no names.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ErrorCode,
    KafkaMessage,
    Request,
    Response,
    TopicIdPartitions,
)

# The session epochs of ShareFetch and ShareAcknowledge: others count the requests of a session.
OPEN_SESSION = 0
CLOSE_SESSION = -1


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id, a UUID of 16 bytes, and its number."""

    topic_id: bytes
    partition: int


class AcknowledgeType(enum.IntEnum):
    """What becomes of an acquired record. GAP: the offset has no record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcknowledgementBatch(KafkaMessage, frozen=True, kw_only=True):
    """One type for all offsets from ``first_offset`` to ``last_offset``, which is included."""

    first_offset: int
    last_offset: int
    type: AcknowledgeType


class SharePartition(KafkaMessage, frozen=True, kw_only=True):
    """A partition of a request. Its batches ascend and do not overlap."""

    partition: TopicIdPartition
    acknowledgements: tuple[AcknowledgementBatch, ...] = ()


class ShareGroupHeartbeatRequest(Request, frozen=True, kw_only=True):
    """``topics=None`` means unchanged. ``member_epoch`` is JOIN_EPOCH, LEAVE_EPOCH, or the one of
    the last response. ``member_id`` has at most 36 characters."""

    group_id: str
    member_id: str
    member_epoch: int
    rack: str | None = None
    topics: tuple[str, ...] | None = None


class ShareGroupHeartbeatResponse(Response, frozen=True, kw_only=True):
    """``assignment`` are the partitions to fetch; None means unchanged. Times are in seconds."""

    error: ErrorCode
    detail: str = ""
    member_epoch: int = 0
    heartbeat_interval: float = 0.0
    assignment: tuple[TopicIdPartitions, ...] | None = None


class ShareFetchRequest(Request, frozen=True, kw_only=True):
    """Acquires records under a lock, and acknowledges earlier ones.

    ``session_epoch`` is OPEN_SESSION with all partitions and no acknowledgements, CLOSE_SESSION
    with ``max_records=0``, or counts the requests of the session: then ``partitions`` are those to
    add or to acknowledge, and ``forgotten`` those to remove. ``exact`` acquires no more than
    ``max_records`` of all partitions together; otherwise whole batches are acquired.
    """

    group_id: str
    member_id: str
    session_epoch: int
    partitions: tuple[SharePartition, ...]
    forgotten: tuple[TopicIdPartition, ...] = ()
    max_wait: float
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    exact: bool


class AcquiredRange(KafkaMessage, frozen=True, kw_only=True):
    """Offsets that the member has acquired, the last one included. Not each has a record."""

    first_offset: int
    last_offset: int
    delivery_count: int


class ShareFetchedPartition(KafkaMessage, frozen=True, kw_only=True):
    """``records`` are whole record batches; only offsets in ``acquired`` are the member's.

    ``acknowledge_error`` is about the acknowledgements of the request. ``leader_id`` and
    ``leader_epoch`` are -1 unless the error is NOT_LEADER_OR_FOLLOWER.
    """

    partition: TopicIdPartition
    error: ErrorCode
    acknowledge_error: ErrorCode = ErrorCode.none
    leader_id: int = -1
    leader_epoch: int = -1
    acquired: tuple[AcquiredRange, ...] = ()
    records: bytes | memoryview = b""


class ShareFetchResponse(Response, frozen=True, kw_only=True):
    """``lock_timeout`` in seconds is for the acquired records of this response. ``leaders`` are the
    addresses of the leaders that the partitions name."""

    error: ErrorCode
    detail: str = ""
    lock_timeout: float = 0.0
    partitions: tuple[ShareFetchedPartition, ...] = ()
    leaders: tuple[BrokerMetadata, ...] = ()

    @property
    def acquired(self) -> int:
        """How many offsets are acquired."""
        return sum(
            acquired.last_offset - acquired.first_offset + 1
            for fetched in self.partitions
            for acquired in fetched.acquired
        )


class ShareAcknowledgeRequest(Request, frozen=True, kw_only=True):
    """Acknowledges acquired records, also those of partitions that are not in the session."""

    group_id: str
    member_id: str
    session_epoch: int
    partitions: tuple[SharePartition, ...]


class ShareAcknowledgedPartition(KafkaMessage, frozen=True, kw_only=True):
    """With an error, no acknowledgement of the partition in the request was applied."""

    partition: TopicIdPartition
    error: ErrorCode


class ShareAcknowledgeResponse(Response, frozen=True, kw_only=True):
    """``lock_timeout`` in seconds is for the records whose lock was renewed."""

    error: ErrorCode
    detail: str = ""
    lock_timeout: float = 0.0
    partitions: tuple[ShareAcknowledgedPartition, ...] = ()
