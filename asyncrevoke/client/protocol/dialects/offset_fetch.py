"""OffsetFetch.

From version 10 on (Kafka 4.2) topics are identified by id: committed offsets of a deleted topic are
not used for a new topic of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.dialects.dialect import Dialect, make, make_by_id, schema
from asyncrevoke.client.protocol.dialects.topic_ids import by_id, by_name, name_of, names
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchedOffset,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kio.schema.offset_fetch.v5.response import OffsetFetchResponse as Fetch5
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as Fetch7
    from kio.schema.offset_fetch.v9.response import OffsetFetchResponse as Fetch9
    from kio.schema.offset_fetch.v9.response import OffsetFetchResponseGroup as Group9
    from kio.schema.offset_fetch.v10.response import OffsetFetchResponse as Fetch10

_NOTHING = OffsetFetchResponse(error=ErrorCode.unknown_server_error)


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
