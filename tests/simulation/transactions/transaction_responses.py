"""The responses to the requests of transactions."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Final

from kio.schema.add_offsets_to_txn.v3.response import AddOffsetsToTxnResponse
from kio.schema.add_partitions_to_txn.v3.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kio.schema.types import ProducerId
from kio.static.primitive import i16, i32Timedelta

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.requests import (
    ProduceRequest,
    produce_response,
    produced_batches,
    producer_id_response,
)
from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest
from asyncrevoke.client.producing.transactions.requests import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from asyncrevoke.client.protocol.messages import CommitEntry, EntityResponse, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.protocol.messages import Request

_NO_TIME: Final = i32Timedelta.parse(datetime.timedelta(0))


def initialized(error: ErrorCode, producer_id: int = -1, epoch: int = -1) -> EntityResponse:
    """The response to InitProducerId."""
    return EntityResponse(entity=producer_id_response(producer_id, epoch, error))


def ended(error: ErrorCode, producer_id: int = -1, epoch: int = -1) -> EntityResponse:
    """The response to EndTxn. The id and epoch are those of the next transaction."""
    return EntityResponse(
        entity=EndTxnResponse(
            throttle_time=_NO_TIME,
            error_code=error,
            producer_id=ProducerId(producer_id),
            producer_epoch=i16(epoch),
        )
    )


def partitions_added(message: AddPartitionsToTxnRequest, error: ErrorCode) -> EntityResponse:
    """The response to AddPartitionsToTxn."""
    results = tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=error
                )
                for number in topic.partitions
            ),
        )
        for topic in message.v3_and_below_topics
    )
    return EntityResponse(
        entity=AddPartitionsToTxnResponse(
            throttle_time=_NO_TIME, results_by_topic_v3_and_below=results
        )
    )


def group_added(error: ErrorCode) -> EntityResponse:
    """The response to AddOffsetsToTxn."""
    return EntityResponse(entity=AddOffsetsToTxnResponse(throttle_time=_NO_TIME, error_code=error))


def offsets_added(
    message: TxnOffsetCommitRequest, errors: Mapping[TopicPartition, ErrorCode]
) -> EntityResponse:
    """The response to TxnOffsetCommit."""
    topics = tuple(
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=tuple(
                TxnOffsetCommitResponsePartition(
                    partition_index=row.partition_index,
                    error_code=errors[TopicPartition(topic.name, row.partition_index)],
                )
                for row in topic.partitions
            ),
        )
        for topic in message.topics
    )
    return EntityResponse(entity=TxnOffsetCommitResponse(throttle_time=_NO_TIME, topics=topics))


def offset_entries(message: TxnOffsetCommitRequest) -> tuple[CommitEntry, ...]:
    """The offsets of a TxnOffsetCommit."""
    return tuple(
        CommitEntry(
            partition=TopicPartition(topic.name, row.partition_index),
            offset=row.committed_offset,
            leader_epoch=row.committed_leader_epoch,
            metadata=row.committed_metadata or "",
        )
        for topic in message.topics
        for row in topic.partitions
    )


def rejected(message: Request, error: ErrorCode) -> EntityResponse | None:
    """The response with this error for all of a request; None if it is not one of transactions."""
    match message:
        case InitProducerIdRequest():
            return initialized(error)
        case AddPartitionsToTxnRequest():
            return partitions_added(message, error)
        case AddOffsetsToTxnRequest():
            return group_added(error)
        case TxnOffsetCommitRequest():
            entries = offset_entries(message)
            return offsets_added(message, {entry.partition: error for entry in entries})
        case EndTxnRequest():
            return ended(error)
        case ProduceRequest():
            errors = {partition: error for partition, _ in produced_batches(message)}
            return EntityResponse(entity=produce_response(errors))
        case _:
            return None
