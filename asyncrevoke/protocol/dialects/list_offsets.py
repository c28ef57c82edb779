"""ListOffsets."""

# Each version of a message is a module of kio; only versions in use are imported.

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol.dialects.dialect import Dialect, by_topic, make
from asyncrevoke.protocol.messages import (
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kio.schema.list_offsets.v5.response import ListOffsetsResponse as List5
    from kio.schema.list_offsets.v6.response import ListOffsetsResponse as List6

    from asyncrevoke.protocol.dialects.dialect import RequestEntity

    _Request = TypeVar("_Request", bound=RequestEntity)

__all__ = ["list_offsets_v5", "list_offsets_v6"]


def list_offsets_v5() -> Dialect:
    """With leader epochs (KIP-320)."""
    from kio.schema.list_offsets.v5 import request as q
    from kio.schema.list_offsets.v5 import response as r

    build = _builder(q.ListOffsetsRequest, q.ListOffsetsTopic, q.ListOffsetsPartition)
    return make(q.ListOffsetsRequest, build, r.ListOffsetsResponse, _listed)


def list_offsets_v6() -> Dialect:
    """With tagged fields."""
    from kio.schema.list_offsets.v6 import request as q
    from kio.schema.list_offsets.v6 import response as r

    build = _builder(q.ListOffsetsRequest, q.ListOffsetsTopic, q.ListOffsetsPartition)
    return make(q.ListOffsetsRequest, build, r.ListOffsetsResponse, _listed)


def _builder(
    request: Callable[..., _Request],
    topic: Callable[..., object],
    partition: Callable[..., object],
) -> Callable[[ListOffsetsRequest], _Request]:
    """Encodes a version; all versions have the same fields."""
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i8, i32, i64

    def build(message: ListOffsetsRequest) -> _Request:
        return request(
            replica_id=BrokerId(-1),
            isolation_level=i8(message.read_committed),
            topics=tuple(
                topic(
                    name=TopicName(name),
                    partitions=tuple(
                        partition(
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

    return build


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
