"""A simulated Kafka for one consumer group. Its records have values."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, cast

import msgspec
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.record.default_records import DefaultRecordBatch

from asyncrevoke.client.groups.configs import DescribeConfigsRequest
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.client.producing.message import Published
from asyncrevoke.client.producing.requests import (
    InitProducerIdRequest,
    ProduceRequest,
    produce_response,
    produced_batches,
    producer_id_response,
)
from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest
from asyncrevoke.client.producing.transactions.requests import EndTxnRequest
from asyncrevoke.client.producing.transactions.requests import (
    InitProducerIdRequest as InitTransactionsRequest,
)
from asyncrevoke.client.protocol.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ApiVersionsRequest,
    EntityResponse,
    ErrorCode,
    FetchedOffset,
    FetchedPartition,
    OffsetFetchRequest,
    OffsetFetchResponse,
    Request,
)
from asyncrevoke.replays.ranges.topic_settings import describe_configs_response
from asyncrevoke.testing.fake_kafka.brokers import Brokers
from asyncrevoke.testing.fake_kafka.partition_leaders import Leaders
from asyncrevoke.testing.fake_kafka.topics import (
    PartitionLog,
    SimulatedBatch,
    Topics,
    decode_simulated,
)
from asyncrevoke.testing.fake_kafka.transactions import FEATURES, Batches, Offsets, Transactions
from asyncrevoke.testing.scripted_group import ScriptedEpochGroup, ScriptedGroup

_SESSION_TIMEOUT = 45.0
_LONGEST = str(2**63 - 1)
_KEEPS_ALL = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _LONGEST,
    "message.timestamp.after.max.ms": _LONGEST,
    "retention.ms": "-1",
}

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from kio.schema.produce.v8.response import ProduceResponse

    from asyncrevoke.client.config import GroupProtocol
    from asyncrevoke.client.protocol.records import RecordBatch
    from asyncrevoke.testing.fake_kafka.clock import Clock
    from asyncrevoke.testing.fake_kafka.group_state import Reply

Headers = tuple[tuple[str, bytes | None], ...]


class WrittenLog(PartitionLog):
    """A partition that stores records, in the order of their offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        """Append one record, whose offset must be the next one."""
        self.records.append(record)
        self.append(1)

    def mark(self) -> None:
        """Append the marker of a committed transaction, which takes an offset."""
        self._append(0, self.end + 1)

    def offset_at(self, timestamp: int) -> tuple[int, int]:
        """The offset that ListOffsets finds for a timestamp (ms), and the time of its record."""
        if timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
            return super().offset_at(timestamp)
        found = next((r for r in self.records if r.timestamp >= timestamp), None)
        return (-1, -1) if found is None else (found.offset, found.timestamp)


class _WrittenBatch(SimulatedBatch):
    __slots__ = ("_log",)

    def __init__(self, simulated: RecordBatch, log: WrittenLog) -> None:
        super().__init__(
            simulated.base_offset, simulated.next_offset, simulated.count, simulated.leader_epoch
        )
        self._log = log

    def decode(self, topic: str, partition: int, tracker_id: int, from_offset: int) -> list[Record]:
        del topic, partition
        first = max(self.base_offset, from_offset)
        stored = self._log.records
        index = bisect_left(stored, first, key=lambda record: record.offset)
        written = stored[index : index + self.base_offset + self.count - first]
        return [msgspec.structs.replace(record, tracker_id=tracker_id) for record in written]


class Cluster(Brokers[WrittenLog, ScriptedGroup | ScriptedEpochGroup]):
    """A cluster of one broker. ``wall_clock_offset`` converts the clock's seconds to seconds since
    the epoch.

    ``topics`` are created with these numbers of partitions; other topics get ``partitions``.
    ``protocol`` is the group protocol of its group.
    """

    def __init__(
        self,
        clock: Clock,
        wall_clock_offset: float,
        partitions: int,
        topics: Mapping[str, int],
        protocol: GroupProtocol = "classic",
    ) -> None:
        written = Topics(lambda _number: WrittenLog())
        group: ScriptedGroup | ScriptedEpochGroup
        if protocol == "consumer":
            group = ScriptedEpochGroup(clock, _SESSION_TIMEOUT, topics=written)
        else:
            group = ScriptedGroup(clock, topics=written)
        super().__init__(group, written, Leaders(clock, written))
        self._clock = clock
        self._wall_clock_offset = wall_clock_offset
        self._next: dict[str, int] = {}
        self._producers = 0
        self._transactions = Transactions(clock, self._transaction_committed)
        self._partitions_by_default = partitions
        for name, count in topics.items():
            self.create_topic(name, count)

    def wall_time(self) -> float:
        """Seconds since the epoch."""
        return self._clock.now + self._wall_clock_offset

    def have(self, topic: str) -> None:
        """Create a topic if it does not exist."""
        if topic not in self.topics:
            self.create_topic(topic, self._partitions_by_default)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic with this number of partitions, or add partitions to it."""
        before = len(self.topics.get(name, ()))
        super().create_topic(name, partitions)
        if before < partitions:
            self.group.rebalance()

    def records(self, topic: str) -> list[Record]:
        """All records of a topic, by partition and offset."""
        return [record for log in self.topics.get(topic, []) for record in log.records]

    def write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int | None,
        timestamp: int | None = None,
    ) -> Published:
        """Append a record to an existing topic. Without ``partition``, the key decides as in
        Kafka's producers. Records without a key go to each partition in turn."""
        count = len(self.topics[topic])
        if partition is None:
            if key is None:
                partition = self._next.get(topic, 0) % count
                self._next[topic] = partition + 1
            else:
                everywhere = list(range(count))
                partition = cast("int", DefaultPartitioner()(key, everywhere, everywhere))
        log = self.topics.log(TopicPartition(topic, partition))
        if log is None:
            raise ValueError(f"{topic} has partitions 0 to {count - 1}, and no {partition}")
        if timestamp is None:
            timestamp = int(self.wall_time() * 1000)
        log.write(Record(topic, partition, log.end, timestamp, 0, key, value, headers))
        return Published(topic, partition, log.end - 1)

    def receive(
        self, broker: int, client: int, connection: Hashable, message: Request, reply: Reply
    ) -> None:
        """Process one request that has come over this connection."""
        del connection  # nothing of a consumer group depends on it
        self.handle(broker, client, message, reply)

    def connection_closed(self, connection: Hashable) -> None:
        """A client's connection has closed, which nothing of a consumer group depends on."""

    def handle(self, broker: int, client: int, message: Request, reply: Reply) -> None:
        """Process one request, including requests of producers."""
        if isinstance(message, ProduceRequest):
            reply(EntityResponse(entity=self._produce(message)))
        elif isinstance(message, DescribeConfigsRequest):
            # Its topics keep all records, and accept all timestamps.
            reply(EntityResponse(entity=describe_configs_response(message, _KEEPS_ALL)))
        elif isinstance(message, InitProducerIdRequest):
            reply(EntityResponse(entity=producer_id_response(self._new_producer_id())))
        elif isinstance(message, InitTransactionsRequest):
            reply(self._transactions.init_producer_id(message, self._new_producer_id()))
        elif isinstance(message, TxnOffsetCommitRequest):
            reply(self._transactions.commit_offsets(message, self.group.check_txn_commit))
        elif isinstance(message, EndTxnRequest):
            reply(self._transactions.end(message))
        elif isinstance(message, ApiVersionsRequest):
            reply(FEATURES)
        else:
            super().handle(broker, client, message, reply)

    def _new_producer_id(self) -> int:
        self._producers += 1
        return self._producers

    def _produce(self, message: ProduceRequest) -> ProduceResponse:
        errors: dict[TopicPartition, ErrorCode] = {}
        offsets: dict[TopicPartition, int] = {}
        for partition, records in produced_batches(message):
            log = self.topics.log(partition)
            if log is None:
                errors[partition] = ErrorCode.unknown_topic_or_partition
                continue
            if message.transactional_id is not None:
                errors[partition] = self._transactions.produce(
                    message.transactional_id, partition, records
                )
                continue
            errors[partition] = ErrorCode.none
            offsets[partition] = log.end
            self._write_batch(partition, records)
        return produce_response(errors, offsets)

    def _write_batch(self, partition: TopicPartition, records: bytes) -> None:
        for record in DefaultRecordBatch(records):
            self.write(
                partition.topic,
                record.key,
                record.value,
                tuple(record.headers),
                partition.partition,
                record.timestamp,
            )

    def _transaction_committed(self, batches: Batches, offsets: Offsets) -> None:
        for (partition, _), records in batches.items():
            self._write_batch(partition, records)
        for partition in dict.fromkeys(partition for partition, _ in batches):
            log = self.topics.log(partition)
            assert log is not None
            log.mark()
        self.group.offsets.update(offsets)

    def _committed(self, message: OffsetFetchRequest) -> OffsetFetchResponse:
        """As a coordinator does: the offset of an open transaction is waited for."""
        response = super()._committed(message)
        unstable = ErrorCode.unstable_offset_commit
        return msgspec.structs.replace(
            response,
            offsets=tuple(
                FetchedOffset(partition=found.partition, error=unstable)
                if message.require_stable and self._transactions.pending(found.partition)
                else found
                for found in response.offsets
            ),
        )

    def decode(self, fetched: FetchedPartition, read_committed: bool) -> list[RecordBatch]:
        """Decode a partition of a Fetch response of this cluster."""
        log = self.topics.log(fetched.partition)
        assert log is not None
        return [_WrittenBatch(batch, log) for batch in decode_simulated(fetched, read_committed)]


def encode(value: object) -> bytes | None:
    """A value as bytes: text as UTF-8, bytes and None unchanged, other values as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    to_json = getattr(value, "model_dump_json", None)
    if callable(to_json):  # a pydantic model
        return str(to_json()).encode()
    try:
        return msgspec.json.encode(value)
    except TypeError as error:
        raise TypeError(
            f"a {type(value).__name__} cannot be published: use bytes, str, None, or a value that "
            "JSON can represent (dict, list, dataclass, msgspec.Struct, pydantic model)"
        ) from error


def encode_headers(headers: Mapping[str, str | bytes | None]) -> Headers:
    """Headers with their values as bytes."""
    return tuple((name, encode(value)) for name, value in headers.items())


def to_partitions(given: Sequence[tuple[str, int]]) -> list[TopicPartition]:
    """Check the partitions that a test passes: pairs of topic and number."""
    for item in cast("Sequence[object]", given):
        match item:
            case (str(), int()):
                pass
            case _:
                raise TypeError(f'{item!r} is not a partition: use ("orders", 0)')
    return [TopicPartition(topic, number) for topic, number in given]
