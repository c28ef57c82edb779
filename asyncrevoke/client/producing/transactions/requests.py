"""The requests of transactions, and the checks of their responses."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, ClassVar, Final

from kio.schema.add_offsets_to_txn.v3.request import AddOffsetsToTxnRequest as AddOffsetsEntity
from kio.schema.add_offsets_to_txn.v3.response import AddOffsetsToTxnResponse
from kio.schema.add_partitions_to_txn.v3 import request as adding
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnResponse
from kio.schema.end_txn.v5.request import EndTxnRequest as EndTxnEntity
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.init_producer_id.v3.request import InitProducerIdRequest as InitProducerIdEntity
from kio.schema.init_producer_id.v3.response import InitProducerIdResponse
from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i32Timedelta

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import NEWEST, EntityRequest, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.protocol.messages import ApiVersionsResponse, Entities, Request

_FEATURE: Final = "transaction.version"
# EndTxn from version 5 on ends transactions of transaction.version 2 (KIP-890), in which Produce
# from version 12 on adds the partitions.
IMPLICIT: Final = 2
_EXPLICIT_END: Final = 4
# The lowest versions that transaction.version 2 needs, by API key: of Produce, which uses the one
# that has topic ids, EndTxn, and TxnOffsetCommit.
_OF_IMPLICIT: Final = {0: 13, 26: 5, 28: 5}


class InitProducerIdRequest(EntityRequest[InitProducerIdResponse], frozen=True, kw_only=True):
    """Requests the producer id of a transactional id, with the next epoch: requests of the epochs
    before are rejected from then on. With the present ``producer_id`` and ``producer_epoch`` it
    fails if another producer has requested one since (KIP-360)."""

    entities: ClassVar[Entities] = (InitProducerIdEntity, InitProducerIdResponse)
    transactional_id: TransactionalId
    transaction_timeout: i32Timedelta
    producer_id: ProducerId = ProducerId(-1)
    producer_epoch: i16 = i16(-1)


class AddPartitionsToTxnRequest(
    EntityRequest[AddPartitionsToTxnResponse], frozen=True, kw_only=True
):
    """Adds partitions to the transaction, before the first Produce to them."""

    entities: ClassVar[Entities] = (adding.AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
    v3_and_below_transactional_id: TransactionalId
    v3_and_below_producer_id: ProducerId
    v3_and_below_producer_epoch: i16
    v3_and_below_topics: tuple[adding.AddPartitionsToTxnTopic, ...]


class AddOffsetsToTxnRequest(EntityRequest[AddOffsetsToTxnResponse], frozen=True, kw_only=True):
    """Adds the offsets of a group to the transaction, before TxnOffsetCommit."""

    entities: ClassVar[Entities] = (AddOffsetsEntity, AddOffsetsToTxnResponse)
    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: i16
    group_id: GroupId


class EndTxnRequest(EntityRequest[EndTxnResponse], frozen=True, kw_only=True):
    """Commits or aborts the transaction. With transaction.version 2 the response has the id and
    epoch of the next one."""

    entities: ClassVar[Entities] = (EndTxnEntity, EndTxnResponse)
    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: i16
    committed: bool
    highest_version: int = NEWEST


def init_producer_id(
    transactional_id: str, timeout: float, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdRequest:
    """Request an id; ``timeout`` in seconds is how long the coordinator lets a transaction last."""
    return InitProducerIdRequest(
        transactional_id=TransactionalId(transactional_id),
        transaction_timeout=i32Timedelta.parse(datetime.timedelta(seconds=timeout)),
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
    )


def add_partitions(
    transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Add these partitions to the transaction."""
    topics: dict[str, list[i32]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(i32(partition.partition))
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TransactionalId(transactional_id),
        v3_and_below_producer_id=ProducerId(producer_id),
        v3_and_below_producer_epoch=i16(epoch),
        v3_and_below_topics=tuple(
            adding.AddPartitionsToTxnTopic(name=TopicName(name), partitions=tuple(numbers))
            for name, numbers in topics.items()
        ),
    )


def add_offsets(
    transactional_id: str, producer_id: int, epoch: int, group_id: str
) -> AddOffsetsToTxnRequest:
    """Add the offsets of this group to the transaction."""
    return AddOffsetsToTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
        group_id=GroupId(group_id),
    )


def may_fence_itself(message: Request) -> bool:
    """Whether this request, if it arrives late, fences the producer that has sent it: a first
    InitProducerId does, and AddPartitionsToTxn and AddOffsetsToTxn begin a transaction that the
    next one aborts."""
    if isinstance(message, InitProducerIdRequest):
        return message.producer_id < 0
    return isinstance(message, (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest))


def added_errors(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, ErrorCode]:
    """The error of each partition of the response."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }


def end_transaction(
    transactional_id: str, producer_id: int, epoch: int, *, committed: bool, version: int
) -> EndTxnRequest:
    """End the transaction; ``version`` is the transaction.version that it was begun with."""
    return EndTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
        committed=committed,
        highest_version=NEWEST if version >= IMPLICIT else _EXPLICIT_END,
    )


def offered_transaction_version(response: ApiVersionsResponse) -> int:
    """The transaction.version to use: the finalized one of the cluster, unless the broker lacks a
    version of a request that it needs."""
    level = response.features.get(_FEATURE, 0)
    highest = {key: response.ranges.get(key, (0, -1))[1] for key in _OF_IMPLICIT}
    if level >= IMPLICIT and all(highest[key] >= _OF_IMPLICIT[key] for key in _OF_IMPLICIT):
        return IMPLICIT
    return min(level, IMPLICIT - 1)
