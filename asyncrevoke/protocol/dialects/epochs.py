"""OffsetsForLeaderEpoch."""

# Each version of a message is a module of kio; only versions in use are imported.

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol.dialects.dialect import Dialect, by_topic, make
from asyncrevoke.protocol.messages import (
    EpochEnd,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kio.schema.offset_for_leader_epoch.v3.response import (
        OffsetForLeaderEpochResponse as Ends3,
    )
    from kio.schema.offset_for_leader_epoch.v4.response import (
        OffsetForLeaderEpochResponse as Ends4,
    )

    from asyncrevoke.protocol.dialects.dialect import RequestEntity

    _Request = TypeVar("_Request", bound=RequestEntity)

__all__ = ["offsets_for_leader_epoch_v3", "offsets_for_leader_epoch_v4"]


def offsets_for_leader_epoch_v3() -> Dialect:
    """For consumers: needs only DESCRIBE on the topic (KIP-320)."""
    from kio.schema.offset_for_leader_epoch.v3 import request as q
    from kio.schema.offset_for_leader_epoch.v3 import response as r

    parts = q.OffsetForLeaderTopic, q.OffsetForLeaderPartition
    build = _builder(q.OffsetForLeaderEpochRequest, *parts)
    return make(q.OffsetForLeaderEpochRequest, build, r.OffsetForLeaderEpochResponse, _ends)


def offsets_for_leader_epoch_v4() -> Dialect:
    """With tagged fields."""
    from kio.schema.offset_for_leader_epoch.v4 import request as q
    from kio.schema.offset_for_leader_epoch.v4 import response as r

    parts = q.OffsetForLeaderTopic, q.OffsetForLeaderPartition
    build = _builder(q.OffsetForLeaderEpochRequest, *parts)
    return make(q.OffsetForLeaderEpochRequest, build, r.OffsetForLeaderEpochResponse, _ends)


def _builder(
    request: Callable[..., _Request],
    topic: Callable[..., object],
    partition: Callable[..., object],
) -> Callable[[OffsetsForLeaderEpochRequest], _Request]:
    """Encodes a version; all versions have the same fields."""
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i32

    def build(message: OffsetsForLeaderEpochRequest) -> _Request:
        return request(
            replica_id=BrokerId(-1),
            topics=tuple(
                topic(
                    topic=TopicName(name),
                    partitions=tuple(
                        partition(
                            partition=i32(query.partition.partition),
                            current_leader_epoch=i32(query.leader_epoch),
                            leader_epoch=i32(query.epoch),
                        )
                        for query in queries
                    ),
                )
                for name, queries in by_topic(message.queries).items()
            ),
        )

    return build


def _ends(entity: Ends3 | Ends4) -> OffsetsForLeaderEpochResponse:
    return OffsetsForLeaderEpochResponse(
        ends=tuple(
            EpochEnd(
                partition=TopicPartition(topic.topic, partition.partition),
                error=partition.error_code,
                epoch=partition.leader_epoch,
                offset=partition.end_offset,
            )
            for topic in entity.topics
            for partition in topic.partitions
        )
    )
