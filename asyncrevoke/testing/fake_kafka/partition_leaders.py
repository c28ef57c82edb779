"""The requests to which only the leader of a partition responds: ListOffsets, Fetch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic

from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetQuery,
)
from asyncrevoke.testing.fake_kafka.topics import LogT, PartitionLog, Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.testing.fake_kafka.clock import Clock
    from asyncrevoke.testing.fake_kafka.group_state import Reply


class Leaders(Generic[LogT]):
    """Responds to these requests from the logs that ``broker`` leads."""

    def __init__(self, clock: Clock, topics: Topics[LogT]) -> None:
        self._clock = clock
        self._topics = topics

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

    def _led(
        self, broker: int, partition: TopicPartition, epoch: int
    ) -> tuple[LogT | None, ErrorCode]:
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
        read = partial(self._read, broker, ids=ids)
        _Fetch(self._clock, read, find, self._fetched, message, reply)

    def _read(
        self, broker: int, entry: FetchPartition, ids: dict[str, bytes] | None
    ) -> FetchedPartition:
        if not self._topics.has(entry.partition.topic, ids):
            return FetchedPartition(partition=entry.partition, error=ErrorCode.unknown_topic_id)
        log, error = self._led(broker, entry.partition, entry.leader_epoch)
        if log is not None and not log.start <= entry.offset <= log.end:
            error = ErrorCode.offset_out_of_range
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

    def _fetched(self, found: tuple[FetchedPartition, ...]) -> FetchResponse:
        return FetchResponse(error=ErrorCode.none, partitions=found)


class _Fetch:
    """One Fetch, which waits for records for at most ``max_wait``."""

    __slots__ = ("_message", "_read", "_reply", "_respond", "_responded")

    def __init__(
        self,
        clock: Clock,
        read: Callable[[FetchPartition], FetchedPartition],
        log: Callable[[TopicPartition], PartitionLog | None],
        respond: Callable[[tuple[FetchedPartition, ...]], FetchResponse],
        message: FetchRequest,
        reply: Reply,
    ) -> None:
        self._read = read
        self._respond = respond
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
        self._reply(self._respond(found))
        return True
