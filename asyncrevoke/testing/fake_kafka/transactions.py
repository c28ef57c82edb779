"""A simulated transaction coordinator, with transaction.version 2 (KIP-890)."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokafka.record.default_records import DefaultRecordBatch
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.txn_offset_commit.v5 import response as committing
from kio.schema.types import ProducerId
from kio.static.primitive import i16, i32Timedelta

from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition
from asyncrevoke.client.producing.requests import producer_id_response
from asyncrevoke.client.protocol.messages import (
    ApiVersionsResponse,
    CommitEntry,
    EntityResponse,
    ErrorCode,
    OffsetCommitRequest,
)
from asyncrevoke.testing.fake_kafka.group_state import MAX_METADATA_CHARACTERS

if TYPE_CHECKING:
    from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest
    from asyncrevoke.client.producing.transactions.requests import (
        EndTxnRequest,
        InitProducerIdRequest,
    )
    from asyncrevoke.testing.fake_kafka.clock import Alarm, Clock

# The batches of a transaction by partition and first sequence: a batch that is sent again replaces
# itself.
Batches: TypeAlias = dict[tuple[TopicPartition, int], bytes]
Offsets: TypeAlias = dict[TopicPartition, OffsetAndMetadata]
Commit: TypeAlias = Callable[[Batches, Offsets], None]

_NO_TIME: Final = i32Timedelta.parse(datetime.timedelta(0))

# What a client with transaction.version 2 needs: Produce, EndTxn and TxnOffsetCommit.
FEATURES: Final = ApiVersionsResponse(
    error=ErrorCode.none,
    ranges={0: (0, 13), 26: (0, 5), 28: (0, 5)},
    features={"transaction.version": 2},
)


@dataclass(slots=True)
class _TransactionalProducer:
    """The producer of one transactional id. Each transaction has an epoch of its own.

    ``bumped_from``: the last epoch of the same producer, whose requests may be sent again;
    ``committed``: how the transaction of that epoch has ended. ``expiry``: aborts the open
    transaction; None if none is open.
    """

    producer_id: int
    timeout: float
    epoch: int = 0
    bumped_from: int | None = None
    committed: bool | None = None
    expiry: Alarm | None = None
    batches: Batches = field(default_factory=dict["tuple[TopicPartition, int]", bytes])
    offsets: Offsets = field(default_factory=dict[TopicPartition, OffsetAndMetadata])

    def begin(self, clock: Clock) -> None:
        """Open a transaction, if none is open, which ends after the timeout at the latest."""
        if self.expiry is None:
            self.expiry = clock.after(self.timeout, self._expired)

    def _expired(self) -> None:
        self.end(committed=False)

    def end(self, *, committed: bool) -> tuple[Batches, Offsets]:
        """End the transaction and begin the next epoch; returns what was written."""
        if self.expiry is not None:
            self.expiry.cancel()
        written = self.batches, self.offsets
        self.batches, self.offsets, self.expiry = {}, {}, None
        self.bumped_from, self.committed = self.epoch, committed
        self.epoch += 1
        return written


class Transactions:
    """The coordinator of all transactional ids.

    The records and offsets of a transaction are kept until EndTxn commits it, and are written then
    by ``commit``. So an aborted transaction, or that of a process that was killed, writes nothing.
    """

    def __init__(self, clock: Clock, commit: Commit) -> None:
        self._clock = clock
        self._commit = commit
        self._producers: dict[str, _TransactionalProducer] = {}

    def pending(self, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset of this partition."""
        return any(partition in producer.offsets for producer in self._producers.values())

    def init_producer_id(self, message: InitProducerIdRequest, new_id: int) -> EntityResponse:
        """Respond to InitProducerId. Aborts the open transaction of the transactional id."""
        name = message.transactional_id
        producer = self._producers.get(name)
        if producer is None:
            timeout = message.transaction_timeout.total_seconds()
            producer = self._producers[name] = _TransactionalProducer(new_id, timeout)
        elif message.producer_id < 0 or message.producer_epoch == producer.epoch:
            producer.end(committed=False)
            producer.committed = None
            if message.producer_id < 0:
                producer.bumped_from = None
        elif message.producer_epoch != producer.bumped_from:
            return _initialized(-1, -1, ErrorCode.producer_fenced)
        return _initialized(producer.producer_id, producer.epoch, ErrorCode.none)

    def produce(
        self, transactional_id: str, partition: TopicPartition, records: bytes
    ) -> ErrorCode:
        """Add a batch to the transaction."""
        producer = self._producers.get(transactional_id)
        batch = DefaultRecordBatch(records)
        error = _check(producer, batch.producer_epoch)
        if producer is not None and error is ErrorCode.none:
            producer.begin(self._clock)
            producer.batches[partition, batch.base_sequence] = records
        return error

    def commit_offsets(
        self,
        message: TxnOffsetCommitRequest,
        check: Callable[[OffsetCommitRequest], ErrorCode],
    ) -> EntityResponse:
        """Add offsets to the transaction; ``check`` checks the member and its generation."""
        producer = self._producers.get(message.transactional_id)
        asked = _as_offset_commit(message)
        error = _check(producer, message.producer_epoch)
        if error is ErrorCode.none:
            error = check(asked)
        errors: dict[TopicPartition, ErrorCode] = {}
        for entry in asked.entries:
            errors[entry.partition] = error
            if error is ErrorCode.none and len(entry.metadata) > MAX_METADATA_CHARACTERS:
                errors[entry.partition] = ErrorCode.offset_metadata_too_large
            elif producer is not None and error is ErrorCode.none:
                producer.begin(self._clock)
                offset = OffsetAndMetadata(entry.offset, entry.metadata, entry.leader_epoch)
                producer.offsets[entry.partition] = offset
        return _offsets_response(message, errors)

    def end(self, message: EndTxnRequest) -> EntityResponse:
        """Commit or abort the transaction; the response has the next epoch."""
        producer = self._producers.get(message.transactional_id)
        if producer is None:
            return _ended(-1, -1, ErrorCode.invalid_producer_id_mapping)
        if message.producer_epoch == producer.bumped_from and producer.committed is not None:
            # The first response may be lost.
            if producer.committed is not message.committed:
                return _ended(-1, -1, ErrorCode.invalid_txn_state)
        elif message.producer_epoch != producer.epoch:
            return _ended(-1, -1, ErrorCode.producer_fenced)
        elif message.committed and producer.expiry is None:
            return _ended(-1, -1, ErrorCode.invalid_txn_state)
        else:
            written = producer.end(committed=message.committed)
            if message.committed:
                self._commit(*written)
        return _ended(producer.producer_id, producer.epoch, ErrorCode.none)


def _check(producer: _TransactionalProducer | None, epoch: int) -> ErrorCode:
    if producer is None:
        return ErrorCode.invalid_producer_id_mapping
    return ErrorCode.none if epoch == producer.epoch else ErrorCode.invalid_producer_epoch


def _as_offset_commit(message: TxnOffsetCommitRequest) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=message.group_id,
        generation=message.generation_id,
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        entries=tuple(
            CommitEntry(
                partition=TopicPartition(topic.name, row.partition_index),
                offset=row.committed_offset,
                leader_epoch=row.committed_leader_epoch,
                metadata=row.committed_metadata or "",
            )
            for topic in message.topics
            for row in topic.partitions
        ),
    )


def _initialized(producer_id: int, epoch: int, error: ErrorCode) -> EntityResponse:
    return EntityResponse(entity=producer_id_response(producer_id, epoch, error))


def _ended(producer_id: int, epoch: int, error: ErrorCode) -> EntityResponse:
    return EntityResponse(
        entity=EndTxnResponse(
            throttle_time=_NO_TIME,
            error_code=error,
            producer_id=ProducerId(producer_id),
            producer_epoch=i16(epoch),
        )
    )


def _offsets_response(
    message: TxnOffsetCommitRequest, errors: Mapping[TopicPartition, ErrorCode]
) -> EntityResponse:
    topics = tuple(
        committing.TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=tuple(
                committing.TxnOffsetCommitResponsePartition(
                    partition_index=row.partition_index,
                    error_code=errors[TopicPartition(topic.name, row.partition_index)],
                )
                for row in topic.partitions
            ),
        )
        for topic in message.topics
    )
    return EntityResponse(
        entity=committing.TxnOffsetCommitResponse(throttle_time=_NO_TIME, topics=topics)
    )
