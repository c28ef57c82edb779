"""ListOffsets and OffsetsForLeaderEpoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.dialects.dialect import Dialect, by_topic, make, schema
from asyncrevoke.client.protocol.messages import (
    EpochEnd,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from kio.schema.list_offsets.v4.response import ListOffsetsResponse as List4
    from kio.schema.list_offsets.v5.response import ListOffsetsResponse as List5
    from kio.schema.list_offsets.v6.response import ListOffsetsResponse as List6
    from kio.schema.offset_for_leader_epoch.v2.response import OffsetForLeaderEpochResponse as Ends2
    from kio.schema.offset_for_leader_epoch.v3.response import OffsetForLeaderEpochResponse as Ends3
    from kio.schema.offset_for_leader_epoch.v4.response import OffsetForLeaderEpochResponse as Ends4


def list_offsets(version: int) -> Dialect:
    """With leader epochs (KIP-320). Version 5 adds an error code, version 6 tagged fields."""
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i8, i32, i64

    q, r = schema("list_offsets", version)

    def build(message: ListOffsetsRequest) -> object:
        return q.ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(message.read_committed),
            topics=tuple(
                q.ListOffsetsTopic(
                    name=TopicName(name),
                    partitions=tuple(
                        q.ListOffsetsPartition(
                            partition_index=i32(query.partition.partition),
                            current_leader_epoch=i32(query.leader_epoch),
                            timestamp=i64(query.timestamp),
                        )
                        for query in queries
                    ),
                )
                for name, queries in by_topic(message.queries).items()
            ),
        )

    return make(q.ListOffsetsRequest, build, r.ListOffsetsResponse, _listed)


def _listed(entity: List4 | List5 | List6) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        offsets=tuple(
            ListedOffset(
                partition=TopicPartition(topic.name, partition.partition_index),
                error=partition.error_code,
                offset=partition.offset,
                timestamp=partition.timestamp,
                leader_epoch=partition.leader_epoch,
            )
            for topic in entity.topics
            for partition in topic.partitions
        )
    )


def offsets_for_leader_epoch(version: int) -> Dialect:
    """From version 3 on, consumers need only DESCRIBE on the topic (KIP-320). Version 4 adds tagged
    fields."""
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i32

    q, r = schema("offset_for_leader_epoch", version)

    def build(message: OffsetsForLeaderEpochRequest) -> object:
        return q.OffsetForLeaderEpochRequest(
            **({"replica_id": BrokerId(-1)} if version >= 3 else {}),
            topics=tuple(
                q.OffsetForLeaderTopic(
                    topic=TopicName(name),
                    partitions=tuple(
                        q.OffsetForLeaderPartition(
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

    return make(q.OffsetForLeaderEpochRequest, build, r.OffsetForLeaderEpochResponse, _ends)


def _ends(entity: Ends2 | Ends3 | Ends4) -> OffsetsForLeaderEpochResponse:
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
