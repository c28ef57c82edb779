"""The offsets of one group, as its coordinator keeps them for transactions."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from kio.schema.add_offsets_to_txn.v3.response import AddOffsetsToTxnResponse
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import EntityResponse, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest

_NO_TIME = i32Timedelta.parse(datetime.timedelta(0))
LARGEST_METADATA = 4096


class OffsetsOfGroup:
    """``pending`` are those of the open transaction, and ``applied`` those of each marker that has
    committed some. Members of another generation than ``generation`` are rejected."""

    def __init__(self) -> None:
        self.generation = 1
        self.is_added = False
        self.pending: dict[TopicPartition, int] = {}
        self.applied: list[dict[TopicPartition, int]] = []

    def commit(self, message: TxnOffsetCommitRequest) -> EntityResponse:
        """Keep the offsets until the transaction ends, without those of rejected partitions."""
        if message.generation_id not in (-1, self.generation):
            return offsets_response(message, ErrorCode.illegal_generation)
        errors: dict[TopicPartition, ErrorCode] = {}
        for topic in message.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if len(row.committed_metadata or "") > LARGEST_METADATA:
                    errors[partition] = ErrorCode.offset_metadata_too_large
                else:
                    self.pending[partition] = row.committed_offset
        return offsets_response(message, ErrorCode.none, errors)

    def end_transaction(self) -> dict[TopicPartition, int]:
        """The offsets that the marker of this transaction is for."""
        pending, self.pending, self.is_added = self.pending, {}, False
        return pending

    def marker_written(self, offsets: dict[TopicPartition, int], *, committed: bool) -> None:
        if committed and offsets:
            self.applied.append(offsets)


def offsets_response(
    message: TxnOffsetCommitRequest,
    error: ErrorCode,
    errors: Mapping[TopicPartition, ErrorCode] | None = None,
) -> EntityResponse:
    """One error for all partitions, unless ``errors`` has another one."""
    topics = tuple(
        TxnOffsetCommitResponseTopic(
            name=TopicName(topic.name),
            partitions=tuple(
                TxnOffsetCommitResponsePartition(
                    partition_index=i32(row.partition_index),
                    error_code=(errors or {}).get(
                        TopicPartition(topic.name, row.partition_index), error
                    ),
                )
                for row in topic.partitions
            ),
        )
        for topic in message.topics
    )
    return EntityResponse(entity=TxnOffsetCommitResponse(throttle_time=_NO_TIME, topics=topics))


def group_added(error: ErrorCode) -> EntityResponse:
    return EntityResponse(entity=AddOffsetsToTxnResponse(throttle_time=_NO_TIME, error_code=error))
