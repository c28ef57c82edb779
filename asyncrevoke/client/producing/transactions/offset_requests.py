"""The request that commits offsets in a transaction, and the errors of its response."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from kio.schema.txn_offset_commit.v5 import request as committing
from kio.schema.txn_offset_commit.v5.response import TxnOffsetCommitResponse
from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i64

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.transactions.requests import IMPLICIT
from asyncrevoke.client.protocol.messages import NEWEST, EntityRequest, EntityResponse, ErrorCode

if TYPE_CHECKING:
    from asyncrevoke.client.producing.transactions.group_offsets import GroupOffsets
    from asyncrevoke.client.protocol.messages import Entities, Request, Response

# Version 5 adds the group to the transaction, with transaction.version 2 only.
_EXPLICIT: Final = 4


class TxnOffsetCommitRequest(EntityRequest[TxnOffsetCommitResponse], frozen=True, kw_only=True):
    """Commits offsets when the transaction is committed. Sent to the group's coordinator."""

    entities: ClassVar[Entities] = (committing.TxnOffsetCommitRequest, TxnOffsetCommitResponse)
    transactional_id: TransactionalId
    group_id: GroupId
    producer_id: ProducerId
    producer_epoch: i16
    generation_id: i32
    member_id: str
    group_instance_id: str | None
    topics: tuple[committing.TxnOffsetCommitRequestTopic, ...]
    highest_version: int = NEWEST


def commit_offsets(
    transactional_id: str, producer_id: int, epoch: int, offsets: GroupOffsets, *, version: int
) -> TxnOffsetCommitRequest:
    """Commit offsets; ``version`` is the transaction.version that the transaction was begun
    with."""
    identity = offsets.identity
    topics: dict[str, list[committing.TxnOffsetCommitRequestPartition]] = {}
    for entry in offsets.entries:
        topics.setdefault(entry.partition.topic, []).append(
            committing.TxnOffsetCommitRequestPartition(
                partition_index=i32(entry.partition.partition),
                committed_offset=i64(entry.offset),
                committed_leader_epoch=i32(entry.leader_epoch),
                committed_metadata=entry.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=TransactionalId(transactional_id),
        group_id=GroupId(identity.group_id),
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
        generation_id=i32(identity.generation),
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        topics=tuple(
            committing.TxnOffsetCommitRequestTopic(
                name=TopicName(topic), partitions=tuple(partitions)
            )
            for topic, partitions in topics.items()
        ),
        highest_version=NEWEST if version >= IMPLICIT else _EXPLICIT,
    )


def offset_errors(
    offsets: GroupOffsets, response: TxnOffsetCommitResponse
) -> dict[TopicPartition, ErrorCode]:
    """The error of each partition of the offsets. A partition that the response leaves out may be
    processed or not: it has UNKNOWN_SERVER_ERROR."""
    found = {
        TopicPartition(topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
    return {
        entry.partition: found.get(entry.partition, ErrorCode.unknown_server_error)
        for entry in offsets.entries
    }


def find_offset_contradiction(request: Request, response: Response) -> str | None:
    """Describe more partitions in a response than were requested; None if there are not."""
    entity = response.entity if isinstance(response, EntityResponse) else None
    if not (
        isinstance(request, TxnOffsetCommitRequest) and isinstance(entity, TxnOffsetCommitResponse)
    ):
        return None
    requested = sum(len(topic.partitions) for topic in request.topics)
    if len(entity.topics) > len(request.topics):
        return f"{len(entity.topics)} topics, of {len(request.topics)} requested ones"
    returned = sum(len(topic.partitions) for topic in entity.topics)
    if returned > requested:
        return f"{returned} partitions, of {requested} requested ones"
    return None
