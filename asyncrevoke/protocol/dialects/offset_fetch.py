"""OffsetFetch.

From version 10 on (Kafka 4.2) topics are identified by id: committed offsets of a deleted topic are
not used for a new topic of that name.
"""

# Each version of a message is a module of kio; only versions in use are imported.

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol.dialects.dialect import Dialect, make, make_by_id
from asyncrevoke.protocol.dialects.topic_ids import by_id, by_name, name_of, names
from asyncrevoke.protocol.messages import (
    ErrorCode,
    FetchedOffset,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kio.schema.offset_fetch.v5.response import OffsetFetchResponse as Fetch5
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as Fetch7
    from kio.schema.offset_fetch.v9.response import OffsetFetchResponseGroup as Fetch9

    from asyncrevoke.protocol.dialects.topic_ids import TopicReference

_Part = TypeVar("_Part")

__all__ = ["offset_fetch_v5", "offset_fetch_v7", "offset_fetch_v9", "offset_fetch_v10"]


def offset_fetch_v5() -> Dialect:
    """With leader epochs (KIP-320), without ``require_stable``; Kafka 2.1 to 2.4."""
    from kio.schema.offset_fetch.v5 import request as q
    from kio.schema.offset_fetch.v5 import response as r
    from kio.schema.types import GroupId

    def build(message: OffsetFetchRequest) -> q.OffsetFetchRequest:
        topics = _topics(message, q.OffsetFetchRequestTopic, "name", by_name)
        return q.OffsetFetchRequest(group_id=GroupId(message.group_id), topics=topics)

    return make(q.OffsetFetchRequest, build, r.OffsetFetchResponse, _fetched)


def offset_fetch_v7() -> Dialect:
    """With ``require_stable`` (KIP-447)."""
    from kio.schema.offset_fetch.v7 import request as q
    from kio.schema.offset_fetch.v7 import response as r
    from kio.schema.types import GroupId

    def build(message: OffsetFetchRequest) -> q.OffsetFetchRequest:
        topics = _topics(message, q.OffsetFetchRequestTopic, "name", by_name)
        return q.OffsetFetchRequest(
            group_id=GroupId(message.group_id),
            topics=topics,
            require_stable=message.require_stable,
        )

    return make(q.OffsetFetchRequest, build, r.OffsetFetchResponse, _fetched)


def offset_fetch_v9() -> Dialect:
    """With the member id and its epoch (KIP-848)."""
    from kio.schema.offset_fetch.v9 import request as q
    from kio.schema.offset_fetch.v9 import response as r

    def build(message: OffsetFetchRequest) -> q.OffsetFetchRequest:
        topics = _topics(message, q.OffsetFetchRequestTopics, "name", by_name)
        group = _group(message, q.OffsetFetchRequestGroup, topics)
        return q.OffsetFetchRequest(groups=(group,), require_stable=message.require_stable)

    def read(entity: r.OffsetFetchResponse) -> OffsetFetchResponse:
        return _fetched(entity.groups[0]) if entity.groups else _NOTHING

    return make(q.OffsetFetchRequest, build, r.OffsetFetchResponse, read)


def offset_fetch_v10() -> Dialect:
    """By topic id; the request needs the ids of all its topics."""
    from kio.schema.offset_fetch.v10 import request as q
    from kio.schema.offset_fetch.v10 import response as r

    def build(message: OffsetFetchRequest) -> q.OffsetFetchRequest:
        topics = _topics(message, q.OffsetFetchRequestTopics, "topic_id", by_id)
        group = _group(message, q.OffsetFetchRequestGroup, topics)
        return q.OffsetFetchRequest(groups=(group,), require_stable=message.require_stable)

    def read(
        entity: r.OffsetFetchResponse, request: OffsetFetchRequest | None
    ) -> OffsetFetchResponse:
        if not entity.groups:
            return _NOTHING
        known = names(request.topic_ids if request is not None else None)
        group = entity.groups[0]
        return _offsets(
            group.error_code,
            (
                (name, topic.partitions)
                for topic in group.topics
                if (name := name_of(known, topic.topic_id)) is not None
            ),
        )

    return make_by_id(q.OffsetFetchRequest, build, r.OffsetFetchResponse, read)


_NOTHING = OffsetFetchResponse(error=ErrorCode.unknown_server_error)


def _topics(
    message: OffsetFetchRequest, topic: Callable[..., _Part], field: str, named: TopicReference
) -> tuple[_Part, ...] | None:
    if message.all_partitions:
        return None
    numbers: dict[str, list[int]] = {}
    for name, number in message.partitions:
        numbers.setdefault(name, []).append(number)
    return tuple(
        topic(**{field: named(message.topic_ids, name)}, partition_indexes=tuple(of_topic))
        for name, of_topic in numbers.items()
    )


def _group(
    message: OffsetFetchRequest, group: Callable[..., _Part], topics: tuple[object, ...] | None
) -> _Part:
    return group(
        group_id=message.group_id,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        topics=topics,
    )


def _fetched(entity: Fetch5 | Fetch7 | Fetch9) -> OffsetFetchResponse:
    return _offsets(entity.error_code, ((topic.name, topic.partitions) for topic in entity.topics))


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
