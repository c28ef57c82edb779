"""OffsetCommit.

From version 10 on (Kafka 4.2) topics are identified by id: offsets of a deleted topic are not
committed for a new topic of that name.
"""

# Each version of a message is a module of kio; only versions in use are imported.

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol.dialects.dialect import Dialect, by_topic, make, make_by_id
from asyncrevoke.protocol.dialects.topic_ids import by_id, by_name, name_of, names
from asyncrevoke.protocol.messages import (
    ErrorCode,
    OffsetCommitRequest,
    OffsetCommitResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kio.schema.offset_commit.v7.response import OffsetCommitResponse as Commit7
    from kio.schema.offset_commit.v9.response import OffsetCommitResponse as Commit9
    from kio.schema.offset_commit.v10.response import OffsetCommitResponse as Commit10

    from asyncrevoke.protocol.dialects.dialect import RequestEntity
    from asyncrevoke.protocol.dialects.topic_ids import TopicReference

    _Request = TypeVar("_Request", bound=RequestEntity)

__all__ = ["offset_commit_v7", "offset_commit_v9", "offset_commit_v10"]


def offset_commit_v7() -> Dialect:
    """With leader epochs (KIP-320) and static members (KIP-345)."""
    from kio.schema.offset_commit.v7 import request as q
    from kio.schema.offset_commit.v7 import response as r

    parts = q.OffsetCommitRequestTopic, q.OffsetCommitRequestPartition
    build = _builder(q.OffsetCommitRequest, *parts, "name", by_name)
    return make(q.OffsetCommitRequest, build, r.OffsetCommitResponse, _committed)


def offset_commit_v9() -> Dialect:
    """With member epochs (KIP-848) and tagged fields."""
    from kio.schema.offset_commit.v9 import request as q
    from kio.schema.offset_commit.v9 import response as r

    parts = q.OffsetCommitRequestTopic, q.OffsetCommitRequestPartition
    build = _builder(q.OffsetCommitRequest, *parts, "name", by_name)
    return make(q.OffsetCommitRequest, build, r.OffsetCommitResponse, _committed)


def offset_commit_v10() -> Dialect:
    """By topic id; the request needs the ids of all its topics."""
    from kio.schema.offset_commit.v10 import request as q
    from kio.schema.offset_commit.v10 import response as r

    parts = q.OffsetCommitRequestTopic, q.OffsetCommitRequestPartition
    build = _builder(q.OffsetCommitRequest, *parts, "topic_id", by_id)
    return make_by_id(q.OffsetCommitRequest, build, r.OffsetCommitResponse, _committed_by_id)


def _builder(
    request: Callable[..., _Request],
    topic: Callable[..., object],
    partition: Callable[..., object],
    field: str,
    named: TopicReference,
) -> Callable[[OffsetCommitRequest], _Request]:
    """Encodes a version; only the field that identifies the topic differs between versions."""

    def build(message: OffsetCommitRequest) -> _Request:
        return request(
            group_id=message.group_id,
            generation_id_or_member_epoch=message.generation,
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            topics=tuple(
                topic(
                    **{field: named(message.topic_ids, name)},
                    partitions=tuple(
                        partition(
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

    return build


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
