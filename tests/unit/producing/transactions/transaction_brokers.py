"""A transaction coordinator that behaves as Apache Kafka's with each transaction.version."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiokafka.record.default_records import DefaultRecordBatch
from kio.schema.add_partitions_to_txn.v3.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.init_producer_id.v3.response import InitProducerIdResponse
from kio.schema.types import ProducerId, TopicName
from kio.static.primitive import i16, i32, i32Timedelta
from unit.producing.transactions.offsets_of_group import (
    OffsetsOfGroup,
    group_added,
    offsets_response,
)

from asyncrevoke.client.producing.requests import ProduceRequest, produce_response, produced_batches
from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest
from asyncrevoke.client.producing.transactions.requests import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from asyncrevoke.client.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    BrokerMetadata,
    EntityResponse,
    ErrorCode,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)

if TYPE_CHECKING:
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.protocol.messages import Request, Response

TOPIC = "results"
_NO_TIME = i32Timedelta.parse(datetime.timedelta(0))
_RANGES = {0: (0, 13), 24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5)}
_REMEMBERED = 5


@dataclass
class Batch:
    """A batch in a log; ``committed`` is None while its transaction is open."""

    producer: tuple[int, int]
    first: int
    values: list[bytes]
    offset: int
    committed: bool | None = None


@dataclass
class PartitionLog:
    """The log of one partition, with what its leader knows of the producer."""

    batches: list[Batch] = field(default_factory=list[Batch])
    producer: tuple[int, int] = (-1, -1)
    following: int = 0
    last: list[Batch] = field(default_factory=list[Batch])
    end: int = 0

    def produce(self, batch: Any) -> tuple[ErrorCode, int]:
        producer, first = (batch.producer_id, batch.producer_epoch), batch.base_sequence
        if producer[0] == self.producer[0] and producer[1] < self.producer[1]:
            return ErrorCode.invalid_producer_epoch, -1
        if producer == self.producer:
            for known in self.last[-_REMEMBERED:]:
                if known.first == first:
                    return ErrorCode.none, known.offset
            if first != self.following:
                return ErrorCode.out_of_order_sequence_number, -1
        elif first != 0:
            return ErrorCode.out_of_order_sequence_number, -1
        else:
            self.last = []
        values = [bytes(record.value or b"") for record in batch]
        added = Batch(producer, first, values, self.end)
        self.producer, self.following = producer, first + len(values)
        self.end += len(values)
        self.batches.append(added)
        self.last.append(added)
        return ErrorCode.none, added.offset

    def end_transaction(self, producer: tuple[int, int], *, committed: bool) -> None:
        """Write the marker, which has the epoch of the end: later requests of the same transaction
        are rejected from then on with transaction.version 2."""
        for batch in self.batches:
            if batch.committed is None:
                batch.committed = committed
        if producer > self.producer:
            self.producer, self.following, self.last = producer, 0, []
        self.end += 1

    @property
    def visible(self) -> list[bytes]:
        """What readers with ``read_committed`` see; nothing after the first open transaction."""
        found: list[bytes] = []
        for batch in self.batches:
            if batch.committed is None:
                break
            if batch.committed:
                found += batch.values
        return found


class TransactionBrokers:
    """The coordinator of one transactional id and of one group, and the leaders of all partitions.

    ``completing``: until :meth:`complete` is called, the markers of the last transaction are not
    written. ``rejections``: errors of the next requests of a type, which are not processed.
    """

    def __init__(self, version: int, partitions: int = 3, leaders: int = 1) -> None:
        self.version = version
        self._leaders = range(1, leaders + 1)
        self.logs = [PartitionLog() for _ in range(partitions)]
        self.producer_id, self.epoch = 1000, -1
        self.bumped_from: int | None = None
        self.state = "empty"
        self.last_end: bool | None = None
        self.added: set[int] = set()
        self.group = OffsetsOfGroup()
        self.completing: (
            tuple[bool, tuple[int, int], set[int], dict[TopicPartition, int]] | None
        ) = None
        self.rejections: dict[type[Request], list[ErrorCode]] = {}

    def complete(self) -> None:
        """Write the markers."""
        if self.completing is not None:
            committed, producer, partitions, offsets = self.completing
            self.completing = None
            self.group.marker_written(offsets, committed=committed)
            for number in partitions:
                self.logs[number].end_transaction(producer, committed=committed)

    def expire(self) -> None:
        """The coordinator aborts a transaction that has taken too long. In Apache Kafka 4.4 its
        producer may begin the next epoch with transaction.version 2 only."""
        if self.state == "ongoing":
            if self.version < 2:
                self._fence()
            else:
                self._begin_epoch()
            self._end(committed=False)

    def _fence(self) -> None:
        """Begin an epoch that no producer has, so that none may begin another one after it."""
        self.epoch += 1
        self.bumped_from = None

    def handle(self, message: Request) -> Response:
        """The response to a request."""
        if rejected := self.rejections.get(type(message)):
            return self.rejected(message, rejected.pop(0))
        match message:
            case MetadataRequest():
                return self._metadata()
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(error=ErrorCode.none, node_id=1, host="a", port=1)
            case ApiVersionsRequest():
                features = {"transaction.version": self.version} if self.version else {}
                return ApiVersionsResponse(error=ErrorCode.none, ranges=_RANGES, features=features)
            case InitProducerIdRequest():
                return self._init(message)
            case AddPartitionsToTxnRequest():
                return self._add(message)
            case AddOffsetsToTxnRequest():
                return self._add_group(message)
            case TxnOffsetCommitRequest():
                return self._commit_offsets(message)
            case ProduceRequest():
                return self._produce(message)
            case EndTxnRequest():
                return self._end_requested(message)
            case other:
                raise AssertionError(f"unexpected: {other!r}")

    def rejected(self, message: Request, error: ErrorCode) -> Response:
        """A response with this error."""
        match message:
            case AddOffsetsToTxnRequest():
                return group_added(error)
            case TxnOffsetCommitRequest():
                return offsets_response(message, error)
            case InitProducerIdRequest():
                return _initialized(error, -1, -1)
            case AddPartitionsToTxnRequest():
                return _added(message, error)
            case ProduceRequest():
                errors = {partition: error for partition, _ in produced_batches(message)}
                return EntityResponse(entity=produce_response(errors))
            case EndTxnRequest():
                return _ended(error, -1, -1)
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(error=error)
            case other:
                raise AssertionError(f"unexpected: {other!r}")

    def _metadata(self) -> MetadataResponse:
        partitions = tuple(
            PartitionMetadata(
                error=ErrorCode.none,
                partition=number,
                leader_id=self._leaders[number % len(self._leaders)],
            )
            for number in range(len(self.logs))
        )
        topic = TopicMetadata(
            error=ErrorCode.none, name=TOPIC, topic_id=bytes(15) + b"\1", partitions=partitions
        )
        brokers = tuple(
            BrokerMetadata(node_id=node_id, host="a", port=1) for node_id in self._leaders
        )
        return MetadataResponse(brokers=brokers, topics=(topic,))

    def _begin_epoch(self) -> None:
        self.bumped_from = self.epoch
        self.epoch += 1

    def _init(self, message: InitProducerIdRequest) -> Response:
        if self.completing is not None:
            return _initialized(ErrorCode.concurrent_transactions, -1, -1)
        if message.producer_id >= 0:
            if message.producer_epoch == self.bumped_from and self.state != "ongoing":
                return _initialized(ErrorCode.none, self.producer_id, self.epoch)
            if message.producer_epoch != self.epoch:
                return _initialized(ErrorCode.invalid_producer_epoch, -1, -1)
        if self.state == "ongoing":
            self._fence()
            self._end(committed=False)
            return _initialized(ErrorCode.concurrent_transactions, -1, -1)
        self._begin_epoch()
        self.state, self.last_end = "empty", None
        return _initialized(ErrorCode.none, self.producer_id, self.epoch)

    def _add(self, message: AddPartitionsToTxnRequest) -> Response:
        if message.v3_and_below_producer_epoch != self.epoch:
            return _added(message, ErrorCode.invalid_producer_epoch)
        if self.completing is not None:
            return _added(message, ErrorCode.concurrent_transactions)
        self.state = "ongoing"
        for topic in message.v3_and_below_topics:
            self.added.update(topic.partitions)
        return _added(message, ErrorCode.none)

    def _add_group(self, message: AddOffsetsToTxnRequest) -> Response:
        if message.producer_epoch != self.epoch:
            return group_added(ErrorCode.invalid_producer_epoch)
        if self.completing is not None:
            return group_added(ErrorCode.concurrent_transactions)
        self.state, self.group.is_added = "ongoing", True
        return group_added(ErrorCode.none)

    def _commit_offsets(self, message: TxnOffsetCommitRequest) -> Response:
        """As :meth:`_may_produce` does for batches."""
        implicit = message.highest_version > 4
        assert implicit is (self.version >= 2)
        if message.producer_epoch != self.epoch:
            return offsets_response(message, ErrorCode.invalid_producer_epoch)
        if not implicit and not self.group.is_added:
            return offsets_response(message, ErrorCode.invalid_txn_state)
        if implicit:
            if self.completing is not None:
                return offsets_response(message, ErrorCode.concurrent_transactions)
            self.state, self.group.is_added = "ongoing", True
        return self.group.commit(message)

    def _produce(self, message: ProduceRequest) -> Response:
        errors: dict[TopicPartition, ErrorCode] = {}
        offsets: dict[TopicPartition, int] = {}
        for partition, data in produced_batches(message):
            batch: Any = DefaultRecordBatch(data)
            assert batch.is_transactional
            error = self._may_produce(batch.producer_epoch, partition.partition)
            offset = -1
            if error is ErrorCode.none:
                error, offset = self.logs[partition.partition].produce(batch)
            errors[partition], offsets[partition] = error, offset
        return EntityResponse(entity=produce_response(errors, offsets))

    def _may_produce(self, epoch: int, number: int) -> ErrorCode:
        """As the leader verifies with the coordinator, since Apache Kafka 3.6. Within an epoch,
        which lasts for several transactions below transaction.version 2, a late batch enters the
        next one."""
        if epoch != self.epoch:
            return ErrorCode.invalid_producer_epoch
        if self.version < 2:
            return ErrorCode.none if number in self.added else ErrorCode.invalid_txn_state
        if self.completing is not None:
            return ErrorCode.concurrent_transactions
        self.state = "ongoing"
        self.added.add(number)
        return ErrorCode.none

    def _end_requested(self, message: EndTxnRequest) -> Response:
        committed, implicit = message.committed, message.highest_version > 4
        assert implicit is (self.version >= 2)
        if implicit and message.producer_epoch == self.bumped_from and self.last_end is not None:
            if self.last_end is committed:
                return _ended(ErrorCode.none, self.producer_id, self.epoch)
            return _ended(ErrorCode.invalid_txn_state, -1, -1)
        if message.producer_epoch != self.epoch:
            return _ended(ErrorCode.invalid_producer_epoch, -1, -1)
        if self.completing is not None and self.last_end is committed:
            return _ended(ErrorCode.concurrent_transactions, -1, -1)
        if self.state != "ongoing":
            if not implicit and self.last_end is committed:
                return _ended(ErrorCode.none, -1, -1)
            if not (implicit and not committed):
                return _ended(ErrorCode.invalid_txn_state, -1, -1)
        if implicit:
            self._begin_epoch()
        self._end(committed=committed)
        if implicit:
            return _ended(ErrorCode.none, self.producer_id, self.epoch)
        return _ended(ErrorCode.none, -1, -1)

    def _end(self, *, committed: bool) -> None:
        self.complete()
        offsets = self.group.end_transaction()
        self.completing = committed, (self.producer_id, self.epoch), self.added, offsets
        self.added = set()
        self.state, self.last_end = "ended", committed


def _initialized(error: ErrorCode, producer_id: int, epoch: int) -> EntityResponse:
    return EntityResponse(
        entity=InitProducerIdResponse(
            throttle_time=_NO_TIME,
            error_code=error,
            producer_id=ProducerId(producer_id),
            producer_epoch=i16(epoch),
        )
    )


def _added(message: AddPartitionsToTxnRequest, error: ErrorCode) -> EntityResponse:
    results = tuple(
        AddPartitionsToTxnTopicResult(
            name=TopicName(topic.name),
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=i32(number), partition_error_code=error
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


def _ended(error: ErrorCode, producer_id: int, epoch: int) -> EntityResponse:
    return EntityResponse(
        entity=EndTxnResponse(
            throttle_time=_NO_TIME,
            error_code=error,
            producer_id=ProducerId(producer_id),
            producer_epoch=i16(epoch),
        )
    )
