"""OffsetCommit, OffsetFetch and ListOffsets."""

# Each version of a message is a module of kio: only those in use are loaded.
# ruff: noqa: PLC0415

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol.dialects.dialect import Dialect, by_topic, make
from asyncrevoke.protocol.messages import (
    ErrorCode,
    FetchedOffset,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from kio.schema.list_offsets.v5.response import ListOffsetsResponse as List5
    from kio.schema.list_offsets.v6.response import ListOffsetsResponse as List6
    from kio.schema.offset_commit.v7.response import OffsetCommitResponse as Commit7
    from kio.schema.offset_commit.v9.response import OffsetCommitResponse as Commit9
    from kio.schema.offset_fetch.v5.response import OffsetFetchResponse as Fetch5
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as Fetch7
    from kio.schema.offset_fetch.v9.response import OffsetFetchResponseGroup as Fetch9

__all__ = [
    "list_offsets_v5",
    "list_offsets_v6",
    "offset_commit_v7",
    "offset_commit_v9",
    "offset_fetch_v5",
    "offset_fetch_v7",
    "offset_fetch_v9",
]


def offset_commit_v7() -> Dialect:
    """With leader epochs (KIP-320) and static members (KIP-345)."""
    from kio.schema.offset_commit.v7 import request as q
    from kio.schema.offset_commit.v7 import response as r
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32, i64

    def build(message: OffsetCommitRequest) -> q.OffsetCommitRequest:
        return q.OffsetCommitRequest(
            group_id=GroupId(message.group_id),
            generation_id_or_member_epoch=i32(message.generation),
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            topics=tuple(
                q.OffsetCommitRequestTopic(
                    name=TopicName(topic),
                    partitions=tuple(
                        q.OffsetCommitRequestPartition(
                            partition_index=i32(entry.partition.partition),
                            committed_offset=i64(entry.offset),
                            committed_leader_epoch=i32(entry.leader_epoch),
                            committed_metadata=entry.metadata,
                        )
                        for entry in entries
                    ),
                )
                for topic, entries in by_topic(message.entries).items()
            ),
        )

    return make(q.OffsetCommitRequest, build, r.OffsetCommitResponse, _committed)


def offset_commit_v9() -> Dialect:
    """With the epochs of members (KIP-848); the same with tagged fields otherwise."""
    from kio.schema.offset_commit.v9 import request as q
    from kio.schema.offset_commit.v9 import response as r
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32, i64

    def build(message: OffsetCommitRequest) -> q.OffsetCommitRequest:
        return q.OffsetCommitRequest(
            group_id=GroupId(message.group_id),
            generation_id_or_member_epoch=i32(message.generation),
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            topics=tuple(
                q.OffsetCommitRequestTopic(
                    name=TopicName(topic),
                    partitions=tuple(
                        q.OffsetCommitRequestPartition(
                            partition_index=i32(entry.partition.partition),
                            committed_offset=i64(entry.offset),
                            committed_leader_epoch=i32(entry.leader_epoch),
                            committed_metadata=entry.metadata,
                        )
                        for entry in entries
                    ),
                )
                for topic, entries in by_topic(message.entries).items()
            ),
        )

    return make(q.OffsetCommitRequest, build, r.OffsetCommitResponse, _committed)


def _committed(entity: Commit7 | Commit9) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        errors=tuple(
            (TopicPartition(topic.name, partition.partition_index), partition.error_code)
            for topic in entity.topics
            for partition in topic.partitions
        )
    )


def offset_fetch_v9() -> Dialect:
    """With the member and its epoch (KIP-848)."""
    from kio.schema.offset_fetch.v9 import request as q
    from kio.schema.offset_fetch.v9 import response as r
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32

    def build(message: OffsetFetchRequest) -> q.OffsetFetchRequest:
        group = q.OffsetFetchRequestGroup(
            group_id=GroupId(message.group_id),
            member_id=message.member_id,
            member_epoch=i32(message.member_epoch),
            topics=tuple(
                q.OffsetFetchRequestTopics(
                    name=TopicName(topic), partition_indexes=tuple(map(i32, numbers))
                )
                for topic, numbers in _numbers(message).items()
            ),
        )
        return q.OffsetFetchRequest(groups=(group,), require_stable=message.require_stable)

    def read(entity: r.OffsetFetchResponse) -> OffsetFetchResponse:
        if not entity.groups:
            return OffsetFetchResponse(error=ErrorCode.unknown_server_error)
        return _fetched(entity.groups[0])

    return make(q.OffsetFetchRequest, build, r.OffsetFetchResponse, read)


def offset_fetch_v7() -> Dialect:
    """Waits for open transactions if ``require_stable`` (KIP-447)."""
    from kio.schema.offset_fetch.v7 import request as q
    from kio.schema.offset_fetch.v7 import response as r
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32

    def build(message: OffsetFetchRequest) -> q.OffsetFetchRequest:
        return q.OffsetFetchRequest(
            group_id=GroupId(message.group_id),
            topics=tuple(
                q.OffsetFetchRequestTopic(
                    name=TopicName(topic), partition_indexes=tuple(map(i32, numbers))
                )
                for topic, numbers in _numbers(message).items()
            ),
            require_stable=message.require_stable,
        )

    return make(q.OffsetFetchRequest, build, r.OffsetFetchResponse, _fetched)


def offset_fetch_v5() -> Dialect:
    """With leader epochs (KIP-320), and blind to open transactions; Kafka 2.1 to 2.4."""
    from kio.schema.offset_fetch.v5 import request as q
    from kio.schema.offset_fetch.v5 import response as r
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32

    def build(message: OffsetFetchRequest) -> q.OffsetFetchRequest:
        return q.OffsetFetchRequest(
            group_id=GroupId(message.group_id),
            topics=tuple(
                q.OffsetFetchRequestTopic(
                    name=TopicName(topic), partition_indexes=tuple(map(i32, numbers))
                )
                for topic, numbers in _numbers(message).items()
            ),
        )

    return make(q.OffsetFetchRequest, build, r.OffsetFetchResponse, _fetched)


def _numbers(message: OffsetFetchRequest) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in message.partitions:
        topics.setdefault(topic, []).append(number)
    return topics


def _fetched(entity: Fetch5 | Fetch7 | Fetch9) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error=entity.error_code,
        offsets=tuple(
            FetchedOffset(
                partition=TopicPartition(topic.name, partition.partition_index),
                error=partition.error_code,
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=partition.metadata or "",
            )
            for topic in entity.topics
            for partition in topic.partitions
        ),
    )


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
