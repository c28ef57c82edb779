"""ConsumerGroupHeartbeat, the membership request of KIP-848."""

# Each version of a message is a module of kio; only versions in use are imported.

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from asyncrevoke.printable import printable
from asyncrevoke.protocol.dialects.dialect import Dialect, duration, make
from asyncrevoke.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kio.schema.consumer_group_heartbeat.v0.response import (
        ConsumerGroupHeartbeatResponse as Heartbeat0,
    )
    from kio.schema.consumer_group_heartbeat.v1.response import (
        ConsumerGroupHeartbeatResponse as Heartbeat1,
    )

__all__ = ["consumer_group_heartbeat_v0", "consumer_group_heartbeat_v1"]

_UNCHANGED = -0.001


def consumer_group_heartbeat_v1() -> Dialect:
    """The client generates the member id, the broker matches regular expressions; Kafka 4.0."""
    from kio.schema.consumer_group_heartbeat.v1 import request as q
    from kio.schema.consumer_group_heartbeat.v1 import response as r

    def build(message: ConsumerGroupHeartbeatRequest) -> q.ConsumerGroupHeartbeatRequest:
        fields = _fields(message, q.TopicPartitions)
        return q.ConsumerGroupHeartbeatRequest(**fields, subscribed_topic_regex=message.regex)

    return make(q.ConsumerGroupHeartbeatRequest, build, r.ConsumerGroupHeartbeatResponse, _read)


def consumer_group_heartbeat_v0() -> Dialect:
    """Without regular expressions; Kafka 3.7 to 3.9, where KIP-848 is a preview."""
    from kio.schema.consumer_group_heartbeat.v0 import request as q
    from kio.schema.consumer_group_heartbeat.v0 import response as r

    def build(message: ConsumerGroupHeartbeatRequest) -> q.ConsumerGroupHeartbeatRequest:
        if message.regex:
            raise ValueError(
                "brokers before Apache Kafka 4.0 match no regular expressions: subscribe by "
                "topics, or by a pattern that the client matches"
            )
        return q.ConsumerGroupHeartbeatRequest(**_fields(message, q.TopicPartitions))

    return make(q.ConsumerGroupHeartbeatRequest, build, r.ConsumerGroupHeartbeatResponse, _read)


def _fields(
    message: ConsumerGroupHeartbeatRequest, topic_partitions: Callable[..., object]
) -> dict[str, Any]:
    """The fields that all versions have."""
    timeout = message.rebalance_timeout
    return {
        "group_id": message.group_id,
        "member_id": message.member_id,
        "member_epoch": message.member_epoch,
        "instance_id": message.group_instance_id,
        "rack_id": message.rack,
        "rebalance_timeout": duration(_UNCHANGED if timeout is None else timeout),
        "subscribed_topic_names": message.topics,
        "server_assignor": message.assignor,
        "topic_partitions": None
        if message.owned is None
        else tuple(
            topic_partitions(topic_id=uuid.UUID(bytes=topic_id), partitions=tuple(numbers))
            for topic_id, numbers in message.owned
        ),
    }


def _read(entity: Heartbeat0 | Heartbeat1) -> ConsumerGroupHeartbeatResponse:
    assignment = entity.assignment
    return ConsumerGroupHeartbeatResponse(
        error=entity.error_code,
        detail=printable(entity.error_message or ""),
        member_id=entity.member_id,
        member_epoch=entity.member_epoch,
        heartbeat_interval=entity.heartbeat_interval.total_seconds(),
        assignment=None
        if assignment is None
        else tuple(
            (bytes(16) if topic.topic_id is None else topic.topic_id.bytes, topic.partitions)
            for topic in assignment.topic_partitions
        ),
    )
