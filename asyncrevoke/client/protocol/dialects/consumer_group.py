"""ConsumerGroupHeartbeat, the membership request of KIP-848."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from asyncrevoke.client.printable import printable
from asyncrevoke.client.protocol.dialects.dialect import Dialect, duration, make, schema
from asyncrevoke.client.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from kio.schema.consumer_group_heartbeat.v0.response import (
        ConsumerGroupHeartbeatResponse as Heartbeat0,
    )
    from kio.schema.consumer_group_heartbeat.v1.response import (
        ConsumerGroupHeartbeatResponse as Heartbeat1,
    )

_UNCHANGED = -0.001


def consumer_group_heartbeat(version: int) -> Dialect:
    """From version 1 on (Kafka 4.0) the client generates the member id, and the broker matches
    regular expressions. Version 0 is that of Kafka 3.7 to 3.9, where KIP-848 is a preview."""
    q, r = schema("consumer_group_heartbeat", version)

    def build(message: ConsumerGroupHeartbeatRequest) -> object:
        if version == 0 and message.regex:
            raise ValueError(
                "brokers before Apache Kafka 4.0 match no regular expressions: subscribe by "
                "topics, or by a pattern that the client matches"
            )
        timeout = message.rebalance_timeout
        return q.ConsumerGroupHeartbeatRequest(
            group_id=message.group_id,
            member_id=message.member_id,
            member_epoch=message.member_epoch,
            instance_id=message.group_instance_id,
            rack_id=message.rack,
            rebalance_timeout=duration(_UNCHANGED if timeout is None else timeout),
            subscribed_topic_names=message.topics,
            server_assignor=message.assignor,
            topic_partitions=None
            if message.owned is None
            else tuple(
                q.TopicPartitions(topic_id=uuid.UUID(bytes=topic_id), partitions=tuple(numbers))
                for topic_id, numbers in message.owned
            ),
            **({} if version == 0 else {"subscribed_topic_regex": message.regex}),
        )

    return make(q.ConsumerGroupHeartbeatRequest, build, r.ConsumerGroupHeartbeatResponse, _read)


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
