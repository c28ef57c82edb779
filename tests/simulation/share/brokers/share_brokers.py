"""Brokers of a share group: they stop, stall, and give partitions and the group to each other."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from simulation.brokers.faulty_brokers import FaultyBrokers
from simulation.brokers.simulated_consumer_group import ConsumerGroupOptions, SimulatedConsumerGroup
from simulation.share.brokers.numbered_responses import NumberingLeader
from typing_extensions import override

from asyncrevoke.client.protocol.messages import BrokerMetadata, ErrorCode, Request
from asyncrevoke.client.protocol.share_messages import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicIdPartition,
)
from asyncrevoke.testing.fake_kafka.share_group import ShareCoordinatorOptions, ShareGroup
from asyncrevoke.testing.fake_kafka.share_partition import ShareGroupOptions, SharePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from random import Random

    from simulation.brokers.changing_log import ChangingLog

    from asyncrevoke.testing.fake_kafka.clock import Clock
    from asyncrevoke.testing.fake_kafka.group_state import Reply

# Seconds in which a new leader reads the state of a partition, at most.
_LONGEST_LOAD = 0.2


class ShareBrokers(FaultyBrokers):
    """``over`` is the connection of the request that is handled next; ``is_late``: it is closed.

    ``fails_whole``: as Apache Kafka 4.3, an unknown topic id fails a whole response.
    """

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        brokers: int,
        options: ShareGroupOptions,
        coordinator: ShareCoordinatorOptions,
        *,
        fails_whole: bool,
    ) -> None:
        # No member of another type comes.
        others = SimulatedConsumerGroup(clock, ConsumerGroupOptions(lambda _topic: 0, 45.0))
        super().__init__(clock, rng, brokers, others)
        self.options = options
        self.over: Hashable = None
        self.is_late = False
        self.shares: dict[TopicIdPartition, SharePartition] = {}
        # Told of each new partition, before anything is acquired from it.
        self.created: Callable[[TopicIdPartition, SharePartition], None] = lambda _id, _state: None
        # Told of each request that was processed.
        self.processed: Callable[[int, Request], None] = lambda _broker, _message: None
        self.share_group = ShareGroup(clock, coordinator, self._partitions_of)
        self.leaders = [
            NumberingLeader(clock, number, self, fails_whole=fails_whole)
            for number in range(brokers)
        ]
        self._acquisitions = count(1)
        # Errors to respond to the next requests of a kind.
        self.errors: dict[type[Request], list[ErrorCode]] = {}

    # --- what the leaders ask --------------------------------------------------------------------

    def find(self, partition: TopicIdPartition) -> SharePartition | None:
        """The state of a partition; None if no topic has this id."""
        return self.shares.get(partition)

    def is_initialized(self, partition: TopicIdPartition) -> bool:
        """Whether it was ever assigned."""
        return self.share_group.is_initialized(partition)

    def address(self, broker: int) -> BrokerMetadata | None:
        """Where a broker is."""
        return self._address(broker)

    def next_acquisition(self) -> int:
        """A number for the next response."""
        return next(self._acquisitions)

    def _partitions_of(self, topic: str) -> Iterator[TopicIdPartition]:
        for number in range(self.topics.count_of(topic)):
            yield TopicIdPartition(self.topics.id_of(topic), number)

    # --- topics and leaders ----------------------------------------------------------------------

    @override
    def create_topic(self, name: str, partitions: int) -> None:
        super().create_topic(name, partitions)
        for number, partition in enumerate(self._partitions_of(name)):
            if partition not in self.shares:
                state = SharePartition(self.topics[name][number], self.options)
                self.shares[partition] = state
                self.created(partition, state)
        self.share_group.changed()

    @override
    def delete_topic(self, name: str) -> None:
        for partition in list(self._partitions_of(name)):
            self.shares.pop(partition).move()
        super().delete_topic(name)
        self.share_group.changed()

    @override
    def stop(self, broker: int) -> None:
        self.leaders[broker].restart()
        super().stop(broker)
        for state in self.shares.values():
            if state.log.leader_id == broker:  # nobody else could lead it
                self._move(state)

    @override
    def _elect(self, log: ChangingLog) -> None:
        super()._elect(log)
        for state in self.shares.values():
            if state.log is log:
                self._move(state)

    def move_leader(self, partition: TopicIdPartition) -> None:
        """Elect another leader of a partition, if there is one."""
        topic, number = self._named(partition)
        self._elect(self.topics[topic][number])

    def _move(self, state: SharePartition) -> None:
        state.move()
        state.loads_until = self._clock.now + self._rng.random() * _LONGEST_LOAD
        self._clock.at(state.loads_until, state.log.wake)

    def _named(self, partition: TopicIdPartition) -> tuple[str, int]:
        names = {self.topics.id_of(name): name for name in self.topics}
        return names[partition.topic_id], partition.partition

    # --- requests --------------------------------------------------------------------------------

    @override
    def handle(self, broker: int, client: int, message: Request, reply: Reply) -> None:
        match message:
            case ShareFetchRequest() | ShareAcknowledgeRequest():
                leader = self.leaders[broker]
                failed = self.errors.get(type(message))
                leader.fails_next = failed.pop(0) if failed else None
                leader.handle(message, self.over, reply)
                leader.fails_next = None
            case ShareGroupHeartbeatRequest():
                reply(self._heartbeat(broker, message))
            case _:
                super().handle(broker, client, message, reply)
        self.processed(broker, message)

    def serves(self, broker: int, partition: TopicIdPartition) -> bool:
        """Whether a fetch at this broker acquires records of this partition now."""
        state = self.shares.get(partition)
        return (
            state is not None
            and state.log.leader_id == broker
            and self.is_initialized(partition)
            and self._clock.now >= state.loads_until
        )

    def _heartbeat(
        self, broker: int, message: ShareGroupHeartbeatRequest
    ) -> ShareGroupHeartbeatResponse:
        failed = self.errors.get(ShareGroupHeartbeatRequest)
        if broker != self.coordinator:
            error = ErrorCode.not_coordinator
        elif self.loads:
            error = ErrorCode.coordinator_load_in_progress
        elif failed:
            error = failed.pop(0)
        else:
            return self.share_group.heartbeat(message)
        return ShareGroupHeartbeatResponse(error=error)

    def connection_closed(self, broker: int, connection: Hashable) -> None:
        """A broker has noticed that a connection is closed."""
        self.leaders[broker].connection_closed(connection)
