"""Metadata and FindCoordinator."""

# Each version of a message is a module of kio; only versions in use are imported.

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.protocol.dialects.dialect import Dialect, make
from asyncrevoke.protocol.messages import (
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
    from kio.schema.find_coordinator.v2.response import FindCoordinatorResponse as Coordinator2
    from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as Coordinator3
    from kio.schema.metadata.v8 import response as metadata8
    from kio.schema.metadata.v12 import response as metadata12
    from kio.schema.metadata.v13 import response as metadata13

__all__ = [
    "find_coordinator_v2",
    "find_coordinator_v3",
    "metadata_v8",
    "metadata_v12",
    "metadata_v13",
]

_NO_ID: Final = bytes(16)


def metadata_v13() -> Dialect:
    """With an error of the whole response, by which a broker asks clients to bootstrap again
    (KIP-1102)."""
    from kio.schema.metadata.v13 import request as q
    from kio.schema.metadata.v13 import response as r
    from kio.schema.types import TopicName

    def build(message: MetadataRequest) -> q.MetadataRequest:
        return q.MetadataRequest(
            topics=None
            if message.topics is None
            else tuple(
                q.MetadataRequestTopic(topic_id=None, name=TopicName(name))
                for name in message.topics
            ),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )

    def read(entity: r.MetadataResponse) -> MetadataResponse:
        return _metadata(entity, _topics_by_id(entity), entity.error_code)

    return make(q.MetadataRequest, build, r.MetadataResponse, read)


def metadata_v12() -> Dialect:
    """With topic ids (KIP-516), which show that a topic was deleted and created again."""
    from kio.schema.metadata.v12 import request as q
    from kio.schema.metadata.v12 import response as r
    from kio.schema.types import TopicName

    def build(message: MetadataRequest) -> q.MetadataRequest:
        return q.MetadataRequest(
            topics=None
            if message.topics is None
            else tuple(
                q.MetadataRequestTopic(topic_id=None, name=TopicName(name))
                for name in message.topics
            ),
            # A misspelled topic must not be created.
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )

    def read(entity: r.MetadataResponse) -> MetadataResponse:
        return _metadata(entity, _topics_by_id(entity))

    return make(q.MetadataRequest, build, r.MetadataResponse, read)


def metadata_v8() -> Dialect:
    """Without topic ids; Kafka 2.3 to 3.0."""
    from kio.schema.metadata.v8 import request as q
    from kio.schema.metadata.v8 import response as r
    from kio.schema.types import TopicName

    def build(message: MetadataRequest) -> q.MetadataRequest:
        return q.MetadataRequest(
            topics=None
            if message.topics is None
            else tuple(q.MetadataRequestTopic(name=TopicName(name)) for name in message.topics),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    def read(entity: r.MetadataResponse) -> MetadataResponse:
        # Partitions share few sets of replicas: each is stored once.
        known: dict[tuple[int, ...], tuple[int, ...]] = {}
        return _metadata(
            entity,
            tuple(_topic(topic, _NO_ID, known) for topic in entity.topics),
        )

    return make(q.MetadataRequest, build, r.MetadataResponse, read)


def _topics_by_id(
    entity: metadata12.MetadataResponse | metadata13.MetadataResponse,
) -> tuple[TopicMetadata, ...]:
    # Partitions share few sets of replicas: each is stored once.
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    return tuple(
        _topic(topic, topic.topic_id.bytes if topic.topic_id else _NO_ID, known)
        for topic in entity.topics
    )


def _metadata(
    entity: metadata8.MetadataResponse | metadata12.MetadataResponse | metadata13.MetadataResponse,
    topics: tuple[TopicMetadata, ...],
    error: ErrorCode = ErrorCode.none,
) -> MetadataResponse:
    return MetadataResponse(
        error=error,
        brokers=tuple(
            BrokerMetadata(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in entity.brokers
        ),
        topics=topics,
        cluster_id=entity.cluster_id,
        controller_id=entity.controller_id,
    )


def _topic(
    entity: metadata8.MetadataResponseTopic
    | metadata12.MetadataResponseTopic
    | metadata13.MetadataResponseTopic,
    topic_id: bytes,
    known: dict[tuple[int, ...], tuple[int, ...]],
) -> TopicMetadata:
    return TopicMetadata(
        error=entity.error_code,
        name=entity.name or "",
        topic_id=topic_id,
        is_internal=entity.is_internal,
        partitions=tuple(_partition(each, known) for each in entity.partitions),
    )


def _partition(
    entity: metadata8.MetadataResponsePartition
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


def find_coordinator_v2() -> Dialect:
    """One key per request."""
    from kio.schema.find_coordinator.v2 import request as q
    from kio.schema.find_coordinator.v2 import response as r

    def build(message: FindCoordinatorRequest) -> q.FindCoordinatorRequest:
        return q.FindCoordinatorRequest(key=message.group_id)  # a key type of 0 is a group

    return make(q.FindCoordinatorRequest, build, r.FindCoordinatorResponse, _coordinator)


def find_coordinator_v3() -> Dialect:
    """With tagged fields."""
    from kio.schema.find_coordinator.v3 import request as q
    from kio.schema.find_coordinator.v3 import response as r

    def build(message: FindCoordinatorRequest) -> q.FindCoordinatorRequest:
        return q.FindCoordinatorRequest(key=message.group_id)

    return make(q.FindCoordinatorRequest, build, r.FindCoordinatorResponse, _coordinator)


def _coordinator(entity: Coordinator2 | Coordinator3) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error=entity.error_code, node_id=entity.node_id, host=entity.host, port=entity.port
    )
