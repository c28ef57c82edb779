"""OffsetCommit and OffsetFetch by topic ids (KIP-848; Kafka 4.1 and later).

A topic that was deleted and created again has another id: what was done of the old one is neither
committed for the new one, nor taken for its progress.
"""

# Each version of a message is a module of kio: only those in use are loaded.
# ruff: noqa: PLC0415

from __future__ import annotations

from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol.dialects.dialect import Dialect, by_topic, make_by_id
from asyncrevoke.protocol.dialects.topic_ids import name_of, names, topic_uuid
from asyncrevoke.protocol.messages import (
    ErrorCode,
    FetchedOffset,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

__all__ = ["offset_commit_v10", "offset_fetch_v10"]


def offset_commit_v10() -> Dialect:
    """By topic ids, all of which must be told."""
    from kio.schema.offset_commit.v10 import request as q
    from kio.schema.offset_commit.v10 import response as r
    from kio.schema.types import GroupId
    from kio.static.primitive import i32, i64

    def build(message: OffsetCommitRequest) -> q.OffsetCommitRequest:
        return q.OffsetCommitRequest(
            group_id=GroupId(message.group_id),
            generation_id_or_member_epoch=i32(message.generation),
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            topics=tuple(
                q.OffsetCommitRequestTopic(
                    topic_id=topic_uuid(message.topic_ids, topic),
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

    def read(
        entity: r.OffsetCommitResponse, request: OffsetCommitRequest | None
    ) -> OffsetCommitResponse:
        known = names(request.topic_ids if request is not None else None)
        return OffsetCommitResponse(
            errors=tuple(
                (TopicPartition(name, partition.partition_index), partition.error_code)
                for topic in entity.topics
                if (name := name_of(known, topic.topic_id)) is not None
                for partition in topic.partitions
            )
        )

    return make_by_id(q.OffsetCommitRequest, build, r.OffsetCommitResponse, read)


def offset_fetch_v10() -> Dialect:
    """By topic ids, all of which must be told."""
    from kio.schema.offset_fetch.v10 import request as q
    from kio.schema.offset_fetch.v10 import response as r
    from kio.schema.types import GroupId
    from kio.static.primitive import i32

    def build(message: OffsetFetchRequest) -> q.OffsetFetchRequest:
        numbers: dict[str, list[int]] = {}
        for topic, number in message.partitions:
            numbers.setdefault(topic, []).append(number)
        group = q.OffsetFetchRequestGroup(
            group_id=GroupId(message.group_id),
            member_id=message.member_id,
            member_epoch=i32(message.member_epoch),
            topics=tuple(
                q.OffsetFetchRequestTopics(
                    topic_id=topic_uuid(message.topic_ids, topic),
                    partition_indexes=tuple(map(i32, of_topic)),
                )
                for topic, of_topic in numbers.items()
            ),
        )
        return q.OffsetFetchRequest(groups=(group,), require_stable=message.require_stable)

    def read(
        entity: r.OffsetFetchResponse, request: OffsetFetchRequest | None
    ) -> OffsetFetchResponse:
        if not entity.groups:
            return OffsetFetchResponse(error=ErrorCode.unknown_server_error)
        known = names(request.topic_ids if request is not None else None)
        return OffsetFetchResponse(
            error=entity.groups[0].error_code,
            offsets=tuple(
                FetchedOffset(
                    partition=TopicPartition(name, partition.partition_index),
                    error=partition.error_code,
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata or "",
                )
                for topic in entity.groups[0].topics
                if (name := name_of(known, topic.topic_id)) is not None
                for partition in topic.partitions
            ),
        )

    return make_by_id(q.OffsetFetchRequest, build, r.OffsetFetchResponse, read)
