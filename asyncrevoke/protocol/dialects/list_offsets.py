"""ListOffsets."""

# Each version of a message is a module of kio: only those in use are loaded.
# ruff: noqa: PLC0415

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol.dialects.dialect import Dialect, by_topic, make
from asyncrevoke.protocol.messages import (
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

if TYPE_CHECKING:
    from kio.schema.list_offsets.v5.response import ListOffsetsResponse as List5
    from kio.schema.list_offsets.v6.response import ListOffsetsResponse as List6

__all__ = ["list_offsets_v5", "list_offsets_v6"]


def list_offsets_v5() -> Dialect:
    """With leader epochs (KIP-320)."""
    from kio.schema.list_offsets.v5 import request as q
    from kio.schema.list_offsets.v5 import response as r
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i8, i32, i64

    def build(message: ListOffsetsRequest) -> q.ListOffsetsRequest:
        return q.ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(message.read_committed),
            topics=tuple(
                q.ListOffsetsTopic(
                    name=TopicName(topic),
                    partitions=tuple(
                        q.ListOffsetsPartition(
                            partition_index=i32(query.partition.partition),
                            current_leader_epoch=i32(query.leader_epoch),
                            timestamp=i64(query.timestamp),
                        )
                        for query in queries
                    ),
                )
                for topic, queries in by_topic(message.queries).items()
            ),
        )

    return make(q.ListOffsetsRequest, build, r.ListOffsetsResponse, _listed)


def list_offsets_v6() -> Dialect:
    """The same with tagged fields."""
    from kio.schema.list_offsets.v6 import request as q
    from kio.schema.list_offsets.v6 import response as r
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i8, i32, i64

    def build(message: ListOffsetsRequest) -> q.ListOffsetsRequest:
        return q.ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(message.read_committed),
            topics=tuple(
                q.ListOffsetsTopic(
                    name=TopicName(topic),
                    partitions=tuple(
                        q.ListOffsetsPartition(
                            partition_index=i32(query.partition.partition),
                            current_leader_epoch=i32(query.leader_epoch),
                            timestamp=i64(query.timestamp),
                        )
                        for query in queries
                    ),
                )
                for topic, queries in by_topic(message.queries).items()
            ),
        )

    return make(q.ListOffsetsRequest, build, r.ListOffsetsResponse, _listed)


def _listed(entity: List5 | List6) -> ListOffsetsResponse:
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
