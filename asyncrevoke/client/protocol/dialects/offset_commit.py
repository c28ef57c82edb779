"""OffsetCommit.

From version 10 on (Kafka 4.2) topics are identified by id: offsets of a deleted topic are not
committed for a new topic of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.dialects.dialect import Dialect, by_topic, make, make_by_id, schema
from asyncrevoke.client.protocol.dialects.topic_ids import by_id, by_name, name_of, names
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    OffsetCommitRequest,
    OffsetCommitResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kio.schema.offset_commit.v7.response import OffsetCommitResponse as Commit7
    from kio.schema.offset_commit.v9.response import OffsetCommitResponse as Commit9
    from kio.schema.offset_commit.v10.response import OffsetCommitResponse as Commit10


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
    known = names(request.topic_ids if request is not None else None)
    return _errors(
        (name, topic.partitions)
        for topic in entity.topics
        if (name := name_of(known, topic.topic_id)) is not None
    )


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
