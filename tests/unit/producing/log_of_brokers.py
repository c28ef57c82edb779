"""Brokers with a log for each partition, which check sequences as Kafka does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiokafka.record.default_records import DefaultRecordBatch

from asyncrevoke.client.producing.requests import ProduceRequest, produced_batches
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ErrorCode,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)

if TYPE_CHECKING:
    from asyncrevoke.client.model import TopicPartition

TOPIC = "orders"
BROKERS = 3
_BATCHES_REMEMBERED = 5


def values_of(data: bytes) -> list[int]:
    """The numbers that the values of a batch begin with."""
    return [int(record.value.split()[0]) for record in DefaultRecordBatch(data) if record.value]


@dataclass
class PartitionLog:
    """``values`` were appended. The producer's state is what Kafka keeps of its last batches."""

    leader: int
    values: list[int] = field(default_factory=list)
    producer: tuple[int, int] | None = None
    # First sequence, count and offset of the last batches.
    batches: list[tuple[int, int, int]] = field(default_factory=list)

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        """Append a batch, if its sequence is the next one; returns its offset."""
        batch = DefaultRecordBatch(data)
        values = values_of(data)
        if batch.producer_id < 0:  # not idempotent
            self.values += values
            return ErrorCode.none, len(self.values) - len(values)
        identity, first = (batch.producer_id, batch.producer_epoch), batch.base_sequence
        for before, count, offset in self.batches if identity == self.producer else ():
            if (before, count) == (first, len(values)):
                return ErrorCode.none, offset
        if self.producer is not None and identity[0] == self.producer[0]:
            if identity[1] < self.producer[1]:
                return ErrorCode.invalid_producer_epoch, -1
            if identity[1] == self.producer[1] and self.batches:
                last, count, _ = self.batches[-1]
                if first != last + count:
                    return ErrorCode.out_of_order_sequence_number, -1
        if identity != self.producer:
            if first != 0:
                known = self.producer is not None
                return (
                    ErrorCode.out_of_order_sequence_number
                    if known
                    else ErrorCode.unknown_producer_id
                ), -1
            self.producer, self.batches = identity, []
        offset = len(self.values)
        self.values += values
        self.batches = [*self.batches, (first, len(values), offset)][-_BATCHES_REMEMBERED:]
        return ErrorCode.none, offset

    def has(self, data: bytes) -> bool:
        """Whether a batch was written, perhaps in an epoch or with a sequence of before."""
        return any(value in self.values for value in values_of(data))

    def forget_producer(self) -> None:
        """Its state is lost, as after producer.id.expiration.ms."""
        self.producer, self.batches = None, []

    def fence(self) -> None:
        """A later epoch of the producer is known."""
        if self.producer is not None:
            producer_id, epoch = self.producer
            self.producer, self.batches = (producer_id, epoch + 1), []


class Cluster:
    """``partitions`` have one leader each. What its other brokers are sent is rejected."""

    def __init__(self, partitions: int) -> None:
        self.logs: list[PartitionLog] = []
        self.creations = 0
        self.next_producer_id = 1
        self.create_again(partitions)

    def create_again(self, partitions: int) -> None:
        """The topic is deleted, and created with so many empty partitions and another id."""
        self.creations += 1
        self.logs = [PartitionLog(number % BROKERS) for number in range(partitions)]

    @property
    def topic_id(self) -> bytes:
        """The id of the topic as it was created last."""
        return self.creations.to_bytes(16, "big")

    def metadata(self) -> MetadataResponse:
        """The present leaders."""
        return MetadataResponse(
            brokers=tuple(BrokerMetadata(node_id=n, host="h", port=1) for n in range(BROKERS)),
            topics=(
                TopicMetadata(
                    error=ErrorCode.none,
                    name=TOPIC,
                    topic_id=self.topic_id,
                    partitions=tuple(
                        PartitionMetadata(error=ErrorCode.none, partition=n, leader_id=log.leader)
                        for n, log in enumerate(self.logs)
                    ),
                ),
            ),
        )

    def produce(
        self, node_id: int, request: ProduceRequest, rejected: dict[int, ErrorCode]
    ) -> tuple[dict[TopicPartition, ErrorCode], dict[TopicPartition, int]]:
        """Append the batches of a request to the logs of this broker; errors and offsets.

        Partitions of ``rejected`` are not appended to, but for errors that leave that open.
        """
        errors: dict[TopicPartition, ErrorCode] = {}
        offsets: dict[TopicPartition, int] = {}
        ids = request.topic_ids
        for partition, data in produced_batches(request):
            if ids is not None and ids[TOPIC] != self.topic_id:
                errors[partition] = ErrorCode.unknown_topic_id
                continue
            if partition.partition >= len(self.logs):
                errors[partition] = ErrorCode.unknown_topic_or_partition
                continue
            log = self.logs[partition.partition]
            if log.leader != node_id:
                errors[partition] = ErrorCode.not_leader_or_follower
                continue
            rejection = rejected.get(partition.partition)
            if rejection is ErrorCode.message_too_large and log.has(data):
                rejection = None  # it was not too large before
            if (
                rejection is not None
                and rejection is not ErrorCode.not_enough_replicas_after_append
            ):
                errors[partition] = rejection
                continue
            error, offset = log.append(data)
            if error is ErrorCode.none and rejection is not None:
                error = rejection
            errors[partition], offsets[partition] = error, offset
        return errors, offsets
