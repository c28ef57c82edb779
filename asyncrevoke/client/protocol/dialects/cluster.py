"""Metadata and FindCoordinator."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from asyncrevoke.client.protocol.dialects.dialect import Dialect, make, schema, with_writer
from asyncrevoke.client.protocol.dialects.versions import METADATA_WITH_TOPIC_IDS
from asyncrevoke.client.protocol.guard import varint_bytes
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ErrorCode,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kio.schema.find_coordinator.v2.response import FindCoordinatorResponse as Coordinator2
    from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as Coordinator3
    from kio.schema.metadata.v7 import response as metadata7
    from kio.schema.metadata.v8 import response as metadata8
    from kio.schema.metadata.v12 import response as metadata12
    from kio.schema.metadata.v13 import response as metadata13

_NO_ID: Final = bytes(16)
_COUNT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">h")
_NULL: Final = b"\0"
_NO_TAGS: Final = b"\0"
# No topic is created, and from version 8 on no operations are listed: of the cluster, of topics.
_CREATE_NONE: Final = bytes(1)
_NO_OPTIONS: Final = bytes(3)
# The type of a transactional id as a key of FindCoordinator.
_TRANSACTION: Final = 1
_NO_FLEXIBLE_OPTIONS: Final = bytes(2) + _NO_TAGS


def metadata(version: int) -> Dialect:
    """Versions 7 and 8 have no topic ids (KIP-516), which show that a topic was deleted and created
    again. From version 13 on, a broker may ask clients to bootstrap again (KIP-1102)."""
    from kio.schema.types import TopicName

    q, r = schema("metadata", version)
    # A misspelled topic must not be created.
    options = {"allow_auto_topic_creation": False}
    topic_options: dict[str, Any] = {"topic_id": None} if version >= 12 else {}
    if version >= 8:
        options["include_topic_authorized_operations"] = False
    if 8 <= version < 12:
        options["include_cluster_authorized_operations"] = False

    def build(message: MetadataRequest) -> object:
        if message.topic_ids:
            _check_ids(message, version)
            topics = tuple(
                q.MetadataRequestTopic(name=None, topic_id=UUID(bytes=topic_id))
                for topic_id in message.topic_ids
            )
            return q.MetadataRequest(topics=topics, **options)
        return q.MetadataRequest(
            topics=None
            if message.topics is None
            else tuple(
                q.MetadataRequestTopic(name=TopicName(name), **topic_options)
                for name in message.topics
            ),
            **options,
        )

    dialect = make(q.MetadataRequest, build, r.MetadataResponse, _metadata)
    # Without kio, which takes 10 us for each topic: the leader of a group asks for all that its
    # members subscribe to.
    if version >= 12:
        return with_writer(dialect, _write_flexible_metadata)
    return with_writer(dialect, _metadata_writer(_NO_OPTIONS if version >= 8 else _CREATE_NONE))


def _check_ids(message: MetadataRequest, version: int) -> None:
    if version < METADATA_WITH_TOPIC_IDS or message.topics != ():
        raise ValueError(f"{message} is not a request of version {version}")


def _metadata_writer(ending: bytes) -> Callable[[MetadataRequest], bytes | None]:
    def write(message: MetadataRequest) -> bytes | None:
        if message.topic_ids:
            return None
        if message.topics is None:
            return _COUNT.pack(-1) + ending
        parts = [_COUNT.pack(len(message.topics))]
        for topic in message.topics:
            name = topic.encode()
            parts += (_LENGTH.pack(len(name)), name)
        return b"".join((*parts, ending))

    return write


def _write_flexible_metadata(message: MetadataRequest) -> bytes | None:
    if message.topic_ids:
        return None  # rare: left to kio
    if message.topics is None:
        return _NULL + _NO_FLEXIBLE_OPTIONS
    parts = [varint_bytes(len(message.topics) + 1)]
    for topic in message.topics:
        name = topic.encode()
        parts += (_NO_ID, varint_bytes(len(name) + 1), name, _NO_TAGS)
    return b"".join((*parts, _NO_FLEXIBLE_OPTIONS))


def _metadata(
    entity: metadata7.MetadataResponse
    | metadata8.MetadataResponse
    | metadata12.MetadataResponse
    | metadata13.MetadataResponse,
) -> MetadataResponse:
    # Partitions share few sets of replicas: each is stored once.
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    return MetadataResponse(
        error=getattr(entity, "error_code", ErrorCode.none),
        brokers=tuple(
            BrokerMetadata(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in entity.brokers
        ),
        topics=tuple(_topic(topic, known) for topic in entity.topics),
        cluster_id=entity.cluster_id,
        controller_id=entity.controller_id,
    )


def _topic(
    entity: metadata7.MetadataResponseTopic
    | metadata8.MetadataResponseTopic
    | metadata12.MetadataResponseTopic
    | metadata13.MetadataResponseTopic,
    known: dict[tuple[int, ...], tuple[int, ...]],
) -> TopicMetadata:
    topic_id = getattr(entity, "topic_id", None)
    return TopicMetadata(
        error=entity.error_code,
        name=entity.name or "",
        topic_id=topic_id.bytes if topic_id else _NO_ID,
        is_internal=entity.is_internal,
        partitions=tuple(_partition(partition, known) for partition in entity.partitions),
    )


def _partition(
    entity: metadata7.MetadataResponsePartition
    | metadata8.MetadataResponsePartition
    | metadata12.MetadataResponsePartition
    | metadata13.MetadataResponsePartition,
    known: dict[tuple[int, ...], tuple[int, ...]],
) -> PartitionMetadata:
    replicas: tuple[int, ...] = entity.replica_nodes
    return PartitionMetadata(
        error=entity.error_code,
        partition=entity.partition_index,
        leader_id=entity.leader_id,
        leader_epoch=entity.leader_epoch,
        replicas=known.setdefault(replicas, replicas),
    )


def find_coordinator(version: int) -> Dialect:
    """One key per request. Version 3 adds tagged fields."""
    q, r = schema("find_coordinator", version)

    def build(message: FindCoordinatorRequest) -> object:
        if message.transactional_id is None:
            return q.FindCoordinatorRequest(key=message.group_id)  # a key type of 0 is a group
        return q.FindCoordinatorRequest(key=message.transactional_id, key_type=_TRANSACTION)

    return make(q.FindCoordinatorRequest, build, r.FindCoordinatorResponse, _coordinator)


def _coordinator(entity: Coordinator2 | Coordinator3) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error=entity.error_code, node_id=entity.node_id, host=entity.host, port=entity.port
    )
