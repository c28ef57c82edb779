"""The requests and responses of the core, independent of protocol versions.

Times are in seconds, timestamps in milliseconds since the epoch, and topics have names.
``codec.py`` encodes and decodes them in a version that the broker offers.
"""

from __future__ import annotations

import asyncrevoke.client.protocol.dependencies.kio_without_hypothesis  # noqa: F401  # pyright: ignore[reportUnusedImport]

# isort: split
from collections.abc import Mapping
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar

import msgspec
from kio.schema.errors import ErrorCode
from kio.static.protocol import RequestPayload, ResponsePayload

from asyncrevoke.client.config.software import __version__
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffer

__all__ = ["Entities", "ErrorCode", "Request", "Response"]

# kio's request and response of the preferred version.
Entities: TypeAlias = tuple[type[RequestPayload], type[ResponsePayload]]
_Response_co = TypeVar("_Response_co", covariant=True)


# The newest version of a request may be used.
NEWEST: Final = 2**15 - 1


class KafkaMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all messages. They have no cycles and are not tracked by the garbage collector: a
    large response has hundreds of thousands."""


class Request(KafkaMessage, frozen=True, kw_only=True):
    """Base of all requests."""


class Response(KafkaMessage, frozen=True, kw_only=True):
    """Base of all responses."""


# --- cluster ---------------------------------------------------------------------------------


class MetadataRequest(Request, frozen=True, kw_only=True):
    """``topics=None`` requests all topics, ``()`` brokers, and topics by their ``topic_ids``."""

    topics: tuple[str, ...] | None
    topic_ids: tuple[bytes, ...] = ()


class BrokerMetadata(KafkaMessage, frozen=True, kw_only=True):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(KafkaMessage, frozen=True, kw_only=True):
    error: ErrorCode
    partition: int
    leader_id: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()


class TopicMetadata(KafkaMessage, frozen=True, kw_only=True):
    error: ErrorCode
    name: str
    topic_id: bytes = bytes(16)
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()


class MetadataResponse(Response, frozen=True, kw_only=True):
    """``error`` is REBOOTSTRAP_REQUIRED (KIP-1102), or none."""

    error: ErrorCode = ErrorCode.none
    brokers: tuple[BrokerMetadata, ...]
    topics: tuple[TopicMetadata, ...]
    cluster_id: str | None = None
    controller_id: int = -1


class FindCoordinatorRequest(Request, frozen=True, kw_only=True):
    """The coordinator of a group, or of a transactional id if there is one."""

    group_id: str = ""
    transactional_id: str | None = None


class FindCoordinatorResponse(Response, frozen=True, kw_only=True):
    error: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1


# --- classic membership ------------------------------------------------------------------------


class JoinGroupRequest(Request, frozen=True, kw_only=True):
    group_id: str
    session_timeout: float
    rebalance_timeout: float
    member_id: str
    group_instance_id: str | None
    # (assignor name, encoded subscription), preferred first
    protocols: tuple[tuple[str, bytes], ...]
    reason: str = ""


class JoinGroupMember(KafkaMessage, frozen=True, kw_only=True):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResponse(Response, frozen=True, kw_only=True):
    error: ErrorCode
    generation: int = -1
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinGroupMember, ...] = ()


class SyncGroupRequest(Request, frozen=True, kw_only=True):
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    protocol_name: str
    # (member id, encoded assignment); empty unless this member leads
    assignments: tuple[tuple[str, bytes], ...] = ()


class SyncGroupResponse(Response, frozen=True, kw_only=True):
    error: ErrorCode
    assignment: bytes = b""


class HeartbeatRequest(Request, frozen=True, kw_only=True):
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


class HeartbeatResponse(Response, frozen=True, kw_only=True):
    error: ErrorCode


class LeaveGroupRequest(Request, frozen=True, kw_only=True):
    group_id: str
    member_id: str
    group_instance_id: str | None
    reason: str = ""


class LeaveGroupResponse(Response, frozen=True, kw_only=True):
    error: ErrorCode


class DescribeGroupsRequest(Request, frozen=True, kw_only=True):
    """DescribeGroups of one classic group; sent to its coordinator."""

    group_id: str


class DescribeGroupsResponse(Response, frozen=True, kw_only=True):
    """The state is ``Dead`` if there is no classic group of that name. The assignor is empty unless
    the group is stable."""

    error: ErrorCode
    state: str = ""
    protocol_type: str = ""
    assignor: str = ""


# --- membership by epochs (KIP-848) --------------------------------------------------------------

# The partitions of one topic, by its id.
TopicIdPartitions: TypeAlias = tuple[bytes, tuple[int, ...]]

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
# A static member leaves and intends to return before its session times out.
LEAVE_STATIC_EPOCH = -2


class ConsumerGroupHeartbeatRequest(Request, frozen=True, kw_only=True):
    """None means unchanged since the last acknowledged heartbeat.

    ``member_epoch`` may be JOIN_EPOCH, LEAVE_EPOCH or LEAVE_STATIC_EPOCH. ``regex`` is RE2; empty
    ends a subscription by regex. ``owned`` are the partitions that this member has not released.
    """

    group_id: str
    member_id: str
    member_epoch: int
    group_instance_id: str | None
    rack: str | None = None
    rebalance_timeout: float | None = None
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: tuple[TopicIdPartitions, ...] | None = None


class ConsumerGroupHeartbeatResponse(Response, frozen=True, kw_only=True):
    """``assignment`` are the partitions that the member may read now; None means unchanged."""

    error: ErrorCode
    detail: str = ""
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval: float = 0.0
    assignment: tuple[TopicIdPartitions, ...] | None = None


# --- offsets -----------------------------------------------------------------------------------


class CommitEntry(KafkaMessage, frozen=True, kw_only=True):
    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class OffsetCommitRequest(Request, frozen=True, kw_only=True):
    """``generation`` is the member epoch in KIP-848; outside a group it is -1 and ``member_id`` is
    empty. ``topic_ids`` are the ids of all topics by name; None: only versions with topic names can
    be used."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    entries: tuple[CommitEntry, ...]
    topic_ids: dict[str, bytes] | None = None


class OffsetCommitResponse(Response, frozen=True, kw_only=True):
    errors: tuple[tuple[TopicPartition, ErrorCode], ...]


class OffsetFetchRequest(Request, frozen=True, kw_only=True):
    """With ``require_stable`` the broker responds UNSTABLE_OFFSET_COMMIT while a transaction is
    open. With ``member_id`` and ``member_epoch`` (KIP-848) it rejects a stale epoch. ``topic_ids``
    is as in :class:`OffsetCommitRequest`. ``all_partitions`` requests those that have a committed
    offset, in place of ``partitions``."""

    group_id: str
    partitions: tuple[TopicPartition, ...]
    all_partitions: bool = False
    require_stable: bool = True
    member_id: str | None = None
    member_epoch: int = -1
    topic_ids: dict[str, bytes] | None = None


class FetchedOffset(KafkaMessage, frozen=True, kw_only=True):
    """``offset`` is -1 if nothing was committed."""

    partition: TopicPartition
    error: ErrorCode
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""


class OffsetFetchResponse(Response, frozen=True, kw_only=True):
    error: ErrorCode
    offsets: tuple[FetchedOffset, ...] = ()


LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2


class OffsetQuery(KafkaMessage, frozen=True, kw_only=True):
    """``timestamp``: LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, or milliseconds since the epoch."""

    partition: TopicPartition
    timestamp: int
    leader_epoch: int = -1


class ListOffsetsRequest(Request, frozen=True, kw_only=True):
    queries: tuple[OffsetQuery, ...]
    read_committed: bool = False


class ListedOffset(KafkaMessage, frozen=True, kw_only=True):
    """``offset`` is -1 if no record has that timestamp or a later one."""

    partition: TopicPartition
    error: ErrorCode
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


class ListOffsetsResponse(Response, frozen=True, kw_only=True):
    offsets: tuple[ListedOffset, ...]


class EpochQuery(KafkaMessage, frozen=True, kw_only=True):
    """Where ``epoch`` ends in the log. ``leader_epoch`` is the current one of the leader."""

    partition: TopicPartition
    epoch: int
    leader_epoch: int = -1


class OffsetsForLeaderEpochRequest(Request, frozen=True, kw_only=True):
    queries: tuple[EpochQuery, ...]


class EpochEnd(KafkaMessage, frozen=True, kw_only=True):
    """``epoch`` is the largest in the log that is not above the queried one, ``offset`` the end of
    its records; both are -1 if there is none."""

    partition: TopicPartition
    error: ErrorCode
    epoch: int = -1
    offset: int = -1


class OffsetsForLeaderEpochResponse(Response, frozen=True, kw_only=True):
    ends: tuple[EpochEnd, ...]


# --- fetching ----------------------------------------------------------------------------------


class FetchPartition(KafkaMessage, frozen=True, kw_only=True):
    partition: TopicPartition
    offset: int
    max_bytes: int
    leader_epoch: int = -1


class FetchRequest(Request, frozen=True, kw_only=True):
    """A session epoch (KIP-227) of 0 opens a session, -1 requests none. Above 0, ``partitions`` are
    the new or changed ones and ``forgotten`` those to remove from the session. ``topic_ids`` is as
    in :class:`OffsetCommitRequest`, with the topics of all partitions of the session: the response
    may contain any of them."""

    partitions: tuple[FetchPartition, ...]
    max_wait: float
    min_bytes: int
    max_bytes: int
    read_committed: bool = False
    rack: str = ""
    session_id: int = 0
    session_epoch: int = -1
    forgotten: tuple[TopicPartition, ...] = ()
    topic_ids: dict[str, bytes] | None = None


class AbortedTransaction(KafkaMessage, frozen=True, kw_only=True):
    producer_id: int
    first_offset: int


class FetchedPartition(KafkaMessage, frozen=True, kw_only=True):
    """``records`` are record batches as they are in the log; the last may be cut off.

    With the errors NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH a broker may name the leader and
    its epoch (KIP-951); both are -1 otherwise.
    """

    partition: TopicPartition
    error: ErrorCode
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: tuple[AbortedTransaction, ...] = ()
    # The broker to fetch from instead (KIP-392), -1 if this one; ``records`` are then empty.
    preferred_read_replica: int = -1
    leader_id: int = -1
    leader_epoch: int = -1
    records: bytes | memoryview = b""


class FetchResponse(Response, frozen=True, kw_only=True):
    """In a session, unchanged partitions are left out. ``session_id`` is 0 without a session.
    ``leaders`` are the addresses of the leaders that the partitions name (KIP-951).
    ``throttle_time``: for so many seconds nothing is to be fetched of this broker (KIP-219).

    If ``buffer`` is set, ``records`` of the partitions are views of it.
    """

    error: ErrorCode
    session_id: int = 0
    partitions: tuple[FetchedPartition, ...] = ()
    leaders: tuple[BrokerMetadata, ...] = ()
    throttle_time: float = 0.0
    buffer: ReceiveBuffer | None = None


# --- opening a connection ------------------------------------------------------------------------


class ApiVersionsRequest(Request, frozen=True, kw_only=True):
    """Versions before 3 do not tell the broker the client's software (KIP-511), and versions before
    5 not which broker is expected (KIP-1242): both ``cluster_id`` and ``node_id``, or neither."""

    software_name: str
    software_version: str
    cluster_id: str | None = None
    node_id: int = -1
    highest_version: int = NEWEST


# Asks for the features of the cluster: later versions need the broker that is expected.
FEATURES_REQUEST: Final = ApiVersionsRequest(
    software_name="asyncrevoke", software_version=__version__, highest_version=3
)


class ApiVersionsResponse(Response, frozen=True, kw_only=True):
    """``error`` is REBOOTSTRAP_REQUIRED if another broker was expected.

    ``ranges`` has the lowest and the highest version by API key; requests whose lowest version is
    above the highest are left out. ``throttle_time`` is in seconds. ``features`` has the finalized
    level of each feature of the cluster (KIP-584); versions before 3 have none.
    """

    error: ErrorCode
    ranges: Mapping[int, tuple[int, int]]
    throttle_time: float = 0.0
    features: Mapping[str, int] = {}


class SaslHandshakeRequest(Request, frozen=True, kw_only=True):
    mechanism: str


class SaslHandshakeResponse(Response, frozen=True, kw_only=True):
    """``mechanisms`` are those that the broker has enabled."""

    error: ErrorCode
    mechanisms: tuple[str, ...] = ()


class SaslAuthenticateRequest(Request, frozen=True, kw_only=True):
    auth_bytes: bytes


class SaslAuthenticateResponse(Response, frozen=True, kw_only=True):
    """``session_lifetime``: the broker closes the connection after so many seconds; 0: never
    (KIP-368)."""

    error: ErrorCode
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime: float = 0.0


# --- requests that the core does not send ------------------------------------------------------


class EntityRequest(Request, Generic[_Response_co], frozen=True, kw_only=True):
    """Base of requests whose responses are used as kio decodes them, in the preferred version.

    A subclass has the fields of the request that differ from kio's defaults. It is named as the
    request, which may have lower versions in ``dialects/versions.py``. With a field
    ``highest_version``, later versions are not used for the message.
    """

    entities: ClassVar[Entities]


class EntityResponse(Response, frozen=True, kw_only=True):
    """The response to an :class:`EntityRequest`."""

    entity: object
