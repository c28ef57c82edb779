"""ShareGroupHeartbeat, ShareFetch and ShareAcknowledge, the requests of a member of a share group
(KIP-932)."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from asyncrevoke.client.printable import printable
from asyncrevoke.client.protocol.dialects.dialect import Dialect, duration, make, schema
from asyncrevoke.client.protocol.dialects.topic_ids import bytes_of, uuid_of
from asyncrevoke.client.protocol.messages import BrokerMetadata, ErrorCode
from asyncrevoke.client.protocol.share_messages import (
    AcknowledgeType,
    AcquiredRange,
    ShareAcknowledgedPartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchedPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    SharePartition,
    TopicIdPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kio.schema.share_acknowledge.v2.response import (
        ShareAcknowledgeResponse as Acknowledged2,
    )
    from kio.schema.share_fetch.v2.response import PartitionData
    from kio.schema.share_fetch.v2.response import ShareFetchResponse as Fetched2
    from kio.schema.share_group_heartbeat.v1.response import (
        ShareGroupHeartbeatResponse as Heartbeat1,
    )

_topic_of_entry = attrgetter("partition.topic_id")


def share_group_heartbeat(version: int) -> Dialect:
    """The only version that is no preview."""
    q, r = schema("share_group_heartbeat", version)

    def build(message: ShareGroupHeartbeatRequest) -> object:
        return q.ShareGroupHeartbeatRequest(
            group_id=message.group_id,
            member_id=message.member_id,
            member_epoch=message.member_epoch,
            rack_id=message.rack,
            subscribed_topic_names=message.topics,
        )

    return make(q.ShareGroupHeartbeatRequest, build, r.ShareGroupHeartbeatResponse, _heartbeat)


def _heartbeat(entity: Heartbeat1) -> ShareGroupHeartbeatResponse:
    assignment = entity.assignment
    return ShareGroupHeartbeatResponse(
        error=entity.error_code,
        detail=printable(entity.error_message or ""),
        member_epoch=entity.member_epoch,
        heartbeat_interval=entity.heartbeat_interval.total_seconds(),
        assignment=None
        if assignment is None
        else tuple(
            (bytes_of(topic.topic_id), topic.partitions) for topic in assignment.topic_partitions
        ),
    )


def share_fetch(version: int) -> Dialect:
    """Version 2 (Kafka 4.2) has the acquire mode and the lock timeout of renewals."""
    q, r = schema("share_fetch", version)

    def build(message: ShareFetchRequest) -> object:
        return q.ShareFetchRequest(
            group_id=message.group_id,
            member_id=message.member_id,
            share_session_epoch=message.session_epoch,
            max_wait=duration(message.max_wait),
            min_bytes=message.min_bytes,
            max_bytes=message.max_bytes,
            max_records=message.max_records,
            batch_size=message.batch_size,
            share_acquire_mode=int(message.exact),
            topics=_topics(q, q.FetchTopic, q.FetchPartition, message.partitions),
            forgotten_topics_data=tuple(
                q.ForgottenTopic(
                    topic_id=uuid_of(topic_id),
                    partitions=tuple(forgotten.partition for forgotten in partitions),
                )
                for topic_id, partitions in groupby(
                    sorted(message.forgotten), attrgetter("topic_id")
                )
            ),
        )

    return make(q.ShareFetchRequest, build, r.ShareFetchResponse, _fetched)


def share_acknowledge(version: int) -> Dialect:
    """Version 2 (Kafka 4.2) renews locks, and has their timeout."""
    q, r = schema("share_acknowledge", version)

    def build(message: ShareAcknowledgeRequest) -> object:
        return q.ShareAcknowledgeRequest(
            group_id=message.group_id,
            member_id=message.member_id,
            share_session_epoch=message.session_epoch,
            is_renew_ack=any(
                batch.type is AcknowledgeType.RENEW
                for entry in message.partitions
                for batch in entry.acknowledgements
            ),
            topics=_topics(q, q.AcknowledgeTopic, q.AcknowledgePartition, message.partitions),
        )

    return make(q.ShareAcknowledgeRequest, build, r.ShareAcknowledgeResponse, _acknowledged)


def _topics(
    q: Any,  # noqa: ANN401 - a module
    topic: Callable[..., object],
    partition: Callable[..., object],
    partitions: Iterable[SharePartition],
) -> tuple[object, ...]:
    """The partitions of a request, with their acknowledgements, as these two types of kio."""
    return tuple(
        topic(
            topic_id=uuid_of(topic_id),
            partitions=tuple(
                partition(
                    partition_index=entry.partition.partition,
                    acknowledgement_batches=_batches(q, entry),
                )
                for entry in entries
            ),
        )
        for topic_id, entries in groupby(sorted(partitions, key=_topic_of_entry), _topic_of_entry)
    )


def _batches(q: Any, entry: SharePartition) -> tuple[object, ...]:  # noqa: ANN401 - a module
    return tuple(
        q.AcknowledgementBatch(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            # One type is for all offsets of the batch.
            acknowledge_types=(int(batch.type),),
        )
        for batch in entry.acknowledgements
    )


def _fetched(entity: Fetched2) -> ShareFetchResponse:
    return ShareFetchResponse(
        error=entity.error_code,
        detail=printable(entity.error_message or ""),
        lock_timeout=entity.acquisition_lock_timeout.total_seconds(),
        partitions=tuple(
            _fetched_partition(bytes_of(topic.topic_id), partition)
            for topic in entity.responses
            for partition in topic.partitions
        ),
        leaders=tuple(
            BrokerMetadata(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in entity.node_endpoints
        ),
    )


def _fetched_partition(topic_id: bytes, entity: PartitionData) -> ShareFetchedPartition:
    return ShareFetchedPartition(
        partition=TopicIdPartition(topic_id, entity.partition_index),
        error=entity.error_code,
        acknowledge_error=_error_of(entity.acknowledge_error_code),
        leader_id=entity.current_leader.leader_id,
        leader_epoch=entity.current_leader.leader_epoch,
        acquired=tuple(
            AcquiredRange(
                first_offset=acquired.first_offset,
                last_offset=acquired.last_offset,
                delivery_count=acquired.delivery_count,
            )
            for acquired in entity.acquired_records
        ),
        records=entity.records or b"",
    )


def _acknowledged(entity: Acknowledged2) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        error=entity.error_code,
        detail=printable(entity.error_message or ""),
        lock_timeout=entity.acquisition_lock_timeout.total_seconds(),
        partitions=tuple(
            ShareAcknowledgedPartition(
                partition=TopicIdPartition(bytes_of(topic.topic_id), partition.partition_index),
                error=partition.error_code,
            )
            for topic in entity.responses
            for partition in topic.partitions
        ),
    )


def _error_of(code: int) -> ErrorCode:
    """Kio reads the error of acknowledgements in a ShareFetch response as a number."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.unknown_server_error
