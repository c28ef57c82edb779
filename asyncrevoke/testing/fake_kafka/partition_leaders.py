"""The requests to which only the leader of a partition responds: ListOffsets,
OffsetsForLeaderEpoch, Fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.protocol.messages import (
    EpochEnd,
    EpochQuery,
    ErrorCode,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetQuery,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncrevoke.model import TopicPartition
    from asyncrevoke.protocol.messages import BrokerMetadata
    from asyncrevoke.testing.fake_kafka.clock import Clock
    from asyncrevoke.testing.fake_kafka.group_state import Reply
    from asyncrevoke.testing.fake_kafka.partition_log import PartitionLog
    from asyncrevoke.testing.fake_kafka.topics import Topics

_LEADER_ERRORS = frozenset((ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch))


class Leaders:
    """Responds to these requests from the logs that ``broker`` leads.

    ``address`` returns the address of a running broker, otherwise None. A broker with an even
    number reports the new leader of a partition that has moved (KIP-951). A broker with an odd
    number does not, as before Apache Kafka 3.7.
    """

    def __init__(
        self, clock: Clock, topics: Topics, address: Callable[[int], BrokerMetadata | None]
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._address = address

    def list_offsets(self, broker: int, message: ListOffsetsRequest) -> ListOffsetsResponse:
        """Respond to ListOffsets."""
        return ListOffsetsResponse(
            offsets=tuple(self._list_offset(broker, query) for query in message.queries)
        )

    def _list_offset(self, broker: int, query: OffsetQuery) -> ListedOffset:
        log, error = self._led(broker, query.partition, query.leader_epoch)
        if log is None:
            return ListedOffset(partition=query.partition, error=error)
        offset, timestamp = log.offset_at(query.timestamp)
        return ListedOffset(
            partition=query.partition,
            error=ErrorCode.none,
            offset=offset,
            timestamp=timestamp,
            leader_epoch=log.leader_epoch,
        )

    def epoch_ends(
        self, broker: int, message: OffsetsForLeaderEpochRequest
    ) -> OffsetsForLeaderEpochResponse:
        """Respond to OffsetsForLeaderEpoch."""
        return OffsetsForLeaderEpochResponse(
            ends=tuple(self._epoch_end(broker, query) for query in message.queries)
        )

    def _epoch_end(self, broker: int, query: EpochQuery) -> EpochEnd:
        log, error = self._led(broker, query.partition, query.leader_epoch)
        if log is None:
            return EpochEnd(partition=query.partition, error=error)
        epoch, offset = log.end_of_epoch(query.epoch)
        return EpochEnd(partition=query.partition, error=error, epoch=epoch, offset=offset)

    def _led(
        self, broker: int, partition: TopicPartition, epoch: int
    ) -> tuple[PartitionLog | None, ErrorCode]:
        log = self._topics.log(partition)
        if log is None:
            return None, ErrorCode.unknown_topic_or_partition
        if log.leader_id != broker:
            return None, ErrorCode.not_leader_or_follower
        if 0 <= epoch < log.leader_epoch:
            return None, ErrorCode.fenced_leader_epoch
        if epoch > log.leader_epoch:
            return None, ErrorCode.unknown_leader_epoch
        return log, ErrorCode.none

    def fetch(self, broker: int, message: FetchRequest, reply: Reply) -> None:
        """Respond to a Fetch when there are records, or after its ``max_wait``."""
        ids, find = message.topic_ids, self._topics.log
        named = self._named_leaders
        _Fetch(
            self._clock, lambda entry: self._read(broker, entry, ids), find, named, message, reply
        )

    def _read(
        self, broker: int, entry: FetchPartition, ids: dict[str, bytes] | None
    ) -> FetchedPartition:
        if not self._topics.has(entry.partition.topic, ids):
            return FetchedPartition(partition=entry.partition, error=ErrorCode.unknown_topic_id)
        log, error = self._led(broker, entry.partition, entry.leader_epoch)
        if log is not None and not log.start <= entry.offset <= log.end:
            error = ErrorCode.offset_out_of_range
        if error in _LEADER_ERRORS and broker % 2 == 0:
            return self._moved(entry.partition, error)
        if log is None or error is not ErrorCode.none:
            return FetchedPartition(partition=entry.partition, error=error)
        return FetchedPartition(
            partition=entry.partition,
            error=ErrorCode.none,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
            records=log.read(entry.offset, entry.max_bytes) if entry.offset < log.end else b"",
        )

    def _moved(self, partition: TopicPartition, error: ErrorCode) -> FetchedPartition:
        log = self._topics.log(partition)
        if log is None or self._address(log.leader_id) is None:
            return FetchedPartition(partition=partition, error=error)
        return FetchedPartition(
            partition=partition,
            error=error,
            leader_id=log.leader_id,
            leader_epoch=log.leader_epoch,
        )

    def _named_leaders(self, found: Iterable[FetchedPartition]) -> tuple[BrokerMetadata, ...]:
        """The addresses of the leaders in these partitions."""
        named = sorted({each.leader_id for each in found if each.leader_id >= 0})
        return tuple(address for number in named if (address := self._address(number)) is not None)


class _Fetch:
    """One Fetch, which waits for records for at most ``max_wait``."""

    __slots__ = ("_message", "_named_leaders", "_read", "_reply", "_responded")

    def __init__(
        self,
        clock: Clock,
        read: Callable[[FetchPartition], FetchedPartition],
        log: Callable[[TopicPartition], PartitionLog | None],
        named_leaders: Callable[[Iterable[FetchedPartition]], tuple[BrokerMetadata, ...]],
        message: FetchRequest,
        reply: Reply,
    ) -> None:
        self._read = read
        self._named_leaders = named_leaders
        self._message = message
        self._reply = reply
        self._responded = False
        if not self._try():
            for entry in message.partitions:
                waited_for = log(entry.partition)
                if waited_for is not None:
                    waited_for.waiting.append(self._grown)
            clock.after(message.max_wait, self._waited)

    def _grown(self) -> None:
        self._try()

    def _waited(self) -> None:
        self._try(waited=True)

    def _try(self, *, waited: bool = False) -> bool:
        if self._responded:
            return True
        found = tuple(self._read(entry) for entry in self._message.partitions)
        if (
            not waited
            and self._message.min_bytes > 0
            and all(part.error is ErrorCode.none and not part.records for part in found)
        ):
            return False
        self._responded = True
        leaders = self._named_leaders(found)
        self._reply(FetchResponse(error=ErrorCode.none, partitions=found, leaders=leaders))
        return True
