"""Leaders of partitions that move between brokers (KIP-320, KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.brokers.changing_log import ChangingLog

from asyncrevoke.client.protocol.messages import (
    EpochEnd,
    EpochQuery,
    ErrorCode,
    FetchedPartition,
    FetchResponse,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
)
from asyncrevoke.testing.fake_kafka.partition_leaders import Leaders

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.protocol.messages import BrokerMetadata, FetchPartition
    from asyncrevoke.testing.fake_kafka.clock import Clock
    from asyncrevoke.testing.fake_kafka.topics import Topics

_LEADER_ERRORS = frozenset((ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch))


class MovingLeaders(Leaders[ChangingLog]):
    """A broker with an even number reports the new leader of a partition that has moved. A broker
    with an odd number does not, as before Apache Kafka 3.7.

    ``address`` returns the address of a running broker, otherwise None.
    """

    def __init__(
        self,
        clock: Clock,
        topics: Topics[ChangingLog],
        address: Callable[[int], BrokerMetadata | None],
    ) -> None:
        super().__init__(clock, topics)
        self._address = address

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

    def _read(
        self, broker: int, entry: FetchPartition, ids: dict[str, bytes] | None
    ) -> FetchedPartition:
        found = super()._read(broker, entry, ids)
        if found.error in _LEADER_ERRORS and broker % 2 == 0:
            return self._moved(entry.partition, found.error)
        return found

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

    def _fetched(self, found: tuple[FetchedPartition, ...]) -> FetchResponse:
        named = sorted({candidate.leader_id for candidate in found if candidate.leader_id >= 0})
        leaders = tuple(
            address for number in named if (address := self._address(number)) is not None
        )
        return FetchResponse(error=ErrorCode.none, partitions=found, leaders=leaders)
