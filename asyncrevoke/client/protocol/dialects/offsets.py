"""ListOffsets, OffsetsForLeaderEpoch, OffsetCommit and OffsetFetch.

From version 10 on (Kafka 4.2) OffsetCommit and OffsetFetch identify topics by id: offsets of a
deleted topic are neither committed nor used for a new topic of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.dialects.dialect import Dialect, by_topic, make, make_by_id, schema
from asyncrevoke.client.protocol.dialects.topic_ids import by_id, by_name, with_names
from asyncrevoke.client.protocol.messages import (
    EpochEnd,
    ErrorCode,
    FetchedOffset,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kio.schema.list_offsets.v4.response import ListOffsetsResponse as List4
    from kio.schema.list_offsets.v5.response import ListOffsetsResponse as List5
    from kio.schema.list_offsets.v6.response import ListOffsetsResponse as List6
    from kio.schema.offset_commit.v7.response import OffsetCommitResponse as Commit7
    from kio.schema.offset_commit.v9.response import OffsetCommitResponse as Commit9
    from kio.schema.offset_commit.v10.response import OffsetCommitResponse as Commit10
    from kio.schema.offset_fetch.v5.response import OffsetFetchResponse as Fetch5
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as Fetch7
    from kio.schema.offset_fetch.v9.response import OffsetFetchResponse as Fetch9
    from kio.schema.offset_fetch.v9.response import OffsetFetchResponseGroup as Group9
    from kio.schema.offset_fetch.v10.response import OffsetFetchResponse as Fetch10
    from kio.schema.offset_for_leader_epoch.v2.response import OffsetForLeaderEpochResponse as Ends2
    from kio.schema.offset_for_leader_epoch.v3.response import OffsetForLeaderEpochResponse as Ends3
    from kio.schema.offset_for_leader_epoch.v4.response import OffsetForLeaderEpochResponse as Ends4

_NOTHING = OffsetFetchResponse(error=ErrorCode.unknown_server_error)


def offset_commit(version: int) -> Dialect:
    """With leader epochs (KIP-320) and static members (KIP-345). From version 9 on, members may
    have epochs (KIP-848). From version 10 on, the request needs the ids of all its topics."""
    q, r = schema("offset_commit", version)
    field, named = ("topic_id", by_id) if version >= 10 else ("name", by_name)

    def build(message: OffsetCommitRequest) -> object:
        return q.OffsetCommitRequest(
            group_id=message.group_id,
            generation_id_or_member_epoch=message.generation,
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            topics=tuple(
                q.OffsetCommitRequestTopic(
                    **{field: named(message.topic_ids, name)},
                    partitions=tuple(
                        q.OffsetCommitRequestPartition(
                            partition_index=entry.partition.partition,
                            committed_offset=entry.offset,
                            committed_leader_epoch=entry.leader_epoch,
                            committed_metadata=entry.metadata,
                        )
                        for entry in entries
                    ),
                )
                for name, entries in by_topic(message.entries).items()
            ),
        )

    if version >= 10:
        return make_by_id(q.OffsetCommitRequest, build, r.OffsetCommitResponse, _committed_by_id)
    return make(q.OffsetCommitRequest, build, r.OffsetCommitResponse, _committed)


def _committed(entity: Commit7 | Commit9) -> OffsetCommitResponse:
    return _errors((topic.name, topic.partitions) for topic in entity.topics)


def _committed_by_id(entity: Commit10, request: OffsetCommitRequest | None) -> OffsetCommitResponse:
    return _errors((name, topic.partitions) for name, topic in with_names(entity.topics, request))


class _Committed(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> ErrorCode: ...


def _errors(topics: Iterable[tuple[str, Sequence[_Committed]]]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        errors=tuple(
            (TopicPartition(name, partition.partition_index), partition.error_code)
            for name, partitions in topics
            for partition in partitions
        )
    )


def offset_fetch(version: int) -> Dialect:
    """With leader epochs (KIP-320). Version 5 (Kafka 2.1 to 2.4) has no ``require_stable``
    (KIP-447). From version 9 on, there is one group in a list, with the member id and its epoch
    (KIP-848). From version 10 on, the request needs the ids of all its topics."""
    q, r = schema("offset_fetch", version)
    field, named = ("topic_id", by_id) if version >= 10 else ("name", by_name)
    topic = q.OffsetFetchRequestTopic if version < 9 else q.OffsetFetchRequestTopics

    def build(message: OffsetFetchRequest) -> object:
        numbers: dict[str, list[int]] = {}
        for name, number in message.partitions:
            numbers.setdefault(name, []).append(number)
        topics = tuple(
            topic(**{field: named(message.topic_ids, name)}, partition_indexes=tuple(of_topic))
            for name, of_topic in numbers.items()
        )
        group: dict[str, Any] = {
            "group_id": message.group_id,
            "topics": None if message.all_partitions else topics,
        }
        stable = {"require_stable": message.require_stable} if version >= 7 else {}
        if version < 9:
            return q.OffsetFetchRequest(**group, **stable)
        identity = {"member_id": message.member_id, "member_epoch": message.member_epoch}
        groups = (q.OffsetFetchRequestGroup(**group, **identity),)
        return q.OffsetFetchRequest(groups=groups, **stable)

    if version >= 10:
        return make_by_id(q.OffsetFetchRequest, build, r.OffsetFetchResponse, _fetched_by_id)
    read = _fetched if version < 9 else _fetched_group
    return make(q.OffsetFetchRequest, build, r.OffsetFetchResponse, read)


def _fetched(entity: Fetch5 | Fetch7 | Group9) -> OffsetFetchResponse:
    return _offsets(entity.error_code, ((topic.name, topic.partitions) for topic in entity.topics))


def _fetched_group(entity: Fetch9) -> OffsetFetchResponse:
    return _fetched(entity.groups[0]) if entity.groups else _NOTHING


def _fetched_by_id(entity: Fetch10, request: OffsetFetchRequest | None) -> OffsetFetchResponse:
    if not entity.groups:
        return _NOTHING
    group = entity.groups[0]
    found = with_names(group.topics, request)
    return _offsets(group.error_code, ((name, topic.partitions) for name, topic in found))


class _Fetched(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> ErrorCode: ...
    @property
    def committed_offset(self) -> int: ...
    @property
    def committed_leader_epoch(self) -> int: ...
    @property
    def metadata(self) -> str | None: ...


def _offsets(
    error: ErrorCode, topics: Iterable[tuple[str, Sequence[_Fetched]]]
) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error=error,
        offsets=tuple(
            FetchedOffset(
                partition=TopicPartition(name, partition.partition_index),
                error=partition.error_code,
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=partition.metadata or "",
            )
            for name, partitions in topics
            for partition in partitions
        ),
    )


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
