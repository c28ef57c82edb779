"""Brokers that stop, stall and move the group, and topics that are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from simulation.brokers.changing_log import ChangingLog
from simulation.brokers.converting_group import ConvertingGroup
from simulation.brokers.deletable_topics import DeletableTopics
from simulation.brokers.moving_leaders import MovingLeaders
from simulation.brokers.simulated_classic_group import SimulatedClassicGroup
from simulation.brokers.simulated_consumer_group import SimulatedConsumerGroup
from simulation.invariants.oracle_state import Violation

from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ErrorCode,
    FetchRequest,
    FetchResponse,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetsForLeaderEpochRequest,
    PartitionMetadata,
    Request,
    Response,
    SyncGroupRequest,
    SyncGroupResponse,
)
from asyncrevoke.testing.fake_kafka.brokers import PORT, Brokers

if TYPE_CHECKING:
    from random import Random

    from asyncrevoke.testing.fake_kafka.clock import Clock
    from asyncrevoke.testing.fake_kafka.group_state import Reply

# Seconds in which a client sends fetches that it did not know to be throttled.
_ON_THE_WAY = 1.0

SimulatedGroup: TypeAlias = SimulatedClassicGroup | SimulatedConsumerGroup | ConvertingGroup


class FaultyBrokers(Brokers[ChangingLog, SimulatedGroup]):
    """A cluster of ``count`` brokers, of which one coordinates the group."""

    def __init__(self, clock: Clock, rng: Random, count: int, group: SimulatedGroup) -> None:
        self._deletable = topics = DeletableTopics(count)
        self._moving_leaders = leaders = MovingLeaders(clock, topics, self._address)
        super().__init__(group, topics, leaders)
        self.coordinator = 0
        self.count = count
        self._clock = clock
        self._rng = rng
        self._up = [True] * count
        self._stalled = [0.0] * count
        # Until when a broker throttles fetches, and since when a client knows it.
        self._throttled = [0.0] * count
        self._told: dict[tuple[int, int], float] = {}
        self._loading_until = 0.0
        self._load_count = 0
        # The broker that loaded the group last; whether it loads the group again, and was stopped
        # meanwhile, so that all connections to it were closed.
        self._loaded_on = 0
        self.loads_again = self.was_away = False
        # Topics whose commits are rejected, with the time until which they are.
        self._rejected: dict[str, float] = {}
        # The former coordinator, which the other brokers report until this time.
        self._previous_coordinator: tuple[float, int] = (0.0, 0)

    @property
    def topics(self) -> DeletableTopics:
        """The existing topics."""
        return self._deletable

    # --- topics ----------------------------------------------------------------------------------

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its committed offsets. Another topic may get its name."""
        self._described.clear()
        for number in range(self.topics.count_of(name)):
            self.group.offsets.pop(TopicPartition(name, number), None)
        self.topics.delete(name)

    def reject_commits(self, topic: str, until: float) -> None:
        """Reject commits for a topic."""
        self._rejected[topic] = max(self._rejected.get(topic, 0.0), until)

    def end_rejections(self) -> None:
        """Accept commits for all topics again."""
        self._rejected.clear()

    # --- brokers come and go ---------------------------------------------------------------------

    def bootstrap(self) -> list[Node]:
        """The bootstrap addresses."""
        return [Node(-1 - number, f"broker-{number}", PORT) for number in range(self.count)]

    def resolve(self, node: Node) -> int | None:
        """The broker that has this address."""
        name, _, number = node.host.partition("-")
        if name != "broker" or not number.isdigit() or int(number) >= self.count:
            return None
        return int(number)

    def is_up(self, broker: int) -> bool:
        """Whether a broker accepts connections."""
        return self._up[broker]

    def stalled_until(self, broker: int) -> float:
        """The time until which a paused broker is paused."""
        return self._stalled[broker]

    def stall(self, broker: int, until: float) -> None:
        """Pause a broker: it reads nothing and sends no response until then."""
        self._stalled[broker] = max(self._stalled[broker], until)

    def throttle(self, broker: int, until: float) -> None:
        """Throttle fetches from a broker until then (KIP-219)."""
        self._throttled[broker] = max(self._throttled[broker], until)
        self._told = {known: at for known, at in self._told.items() if known[0] != broker}

    def stop(self, broker: int) -> None:
        """Kill a broker. Other running brokers get its partitions and the group."""
        self._up[broker] = False
        self._described.clear()
        for logs in self.topics.values():
            for log in logs:
                if log.leader_id == broker:
                    self._elect(log)
        if self.coordinator == broker:
            self.group.crash()
            self.was_away = self.was_away or self._loaded_on == broker
            others = [number for number in range(self.count) if self._up[number]]
            self._become_coordinator(self._rng.choice(others) if others else broker, others != [])

    def start(self, broker: int) -> None:
        """Start a broker again. It leads the partitions that no other broker could lead."""
        self._up[broker] = True
        self._described.clear()
        for logs in self.topics.values():
            for log in logs:
                if not self._up[log.leader_id]:
                    self._elect(log)
        if self.coordinator == broker:
            self._become_coordinator(broker, loads=True)

    def elect_unclean(self, partition: TopicPartition, end: int) -> None:
        """Elect a leader whose log ends at ``end`` (or with the batch before it)."""
        log = self.topics.log(partition)
        if log is None:
            raise ValueError(f"there is no {partition}")
        log.truncate(end)
        self._elect(log)

    def _elect(self, log: ChangingLog) -> None:
        others = [number for number in range(self.count) if self._up[number]]
        if others:
            self._described.clear()
            log.leader_id = self._rng.choice(others)
            log.begin_epoch()
            log.wake()

    @property
    def loads(self) -> bool:
        """Whether the coordinator is still loading the group."""
        return self._clock.now < self._loading_until

    def move_coordinator(self, load_time: float) -> None:
        """Move the group to another broker, or load it again on the same one, which takes
        ``load_time`` seconds."""
        former = {self.coordinator, self._loaded_on if self.count > 2 else None}
        others = [n for n in range(self.count) if self._up[n] and n not in former]
        self.group.unload()
        self._previous_coordinator = (self._clock.now + self._rng.random() * 0.5, self.coordinator)
        self._become_coordinator(
            self._rng.choice(others) if others else self.coordinator, True, load_time
        )

    def _become_coordinator(self, broker: int, loads: bool, load_time: float = 0.3) -> None:
        self.coordinator = broker
        self._load_count += 1
        if not loads:
            return
        count = self._load_count
        self._loading_until = self._clock.now + load_time
        self._clock.at(self._loading_until, lambda: self._loaded(count))

    def _loaded(self, count: int) -> None:
        if count == self._load_count:
            self.loads_again = self._loaded_on == self.coordinator
            self._loaded_on = self.coordinator
            self.group.load()
            self.was_away = False

    # --- requests --------------------------------------------------------------------------------

    def handle(self, broker: int, client: int, message: Request, reply: Reply) -> None:
        """Process one request."""
        if isinstance(message, OffsetsForLeaderEpochRequest):
            reply(self._moving_leaders.epoch_ends(broker, message))
        elif isinstance(message, FetchRequest) and self._clock.now < self._throttled[broker]:
            reply(self._throttled_fetch(broker, client))
        else:
            super().handle(broker, client, message, reply)

    def _throttled_fetch(self, broker: int, client: int) -> FetchResponse:
        """No records, and the throttle time. A client that knows it waits for its end."""
        now, until = self._clock.now, self._throttled[broker]
        told = self._told.setdefault((broker, client), now)
        if now > told + _ON_THE_WAY:
            raise Violation(
                "KIP-219",
                f"client {client} fetches from broker {broker} {until - now:.1f} s before the end "
                f"of the throttle time that it was told {now - told:.1f} s ago",
            )
        return FetchResponse(error=ErrorCode.none, throttle_time=until - now)

    def _coordinate(self, broker: int, client: int, message: Request, reply: Reply) -> None:
        if broker != self.coordinator:
            reply(_coordinator_error(message, ErrorCode.not_coordinator))
        elif self.loads:
            reply(_coordinator_error(message, ErrorCode.coordinator_load_in_progress))
        else:
            super()._coordinate(broker, client, message, reply)

    def _to_group(self, client: int, message: Request, reply: Reply) -> None:
        match message:
            case OffsetCommitRequest():
                reply(self._commit_and_report(client, message))
            case OffsetFetchRequest():
                reply(self._fetch_and_report(client, message))
            case _:
                super()._to_group(client, message, reply)

    def _commit_and_report(self, client: int, message: OffsetCommitRequest) -> OffsetCommitResponse:
        events, offsets = self.group.events, self.group.offsets
        for partition in self._rejected_partitions(message):
            events.commit_rejected(client, partition)
        before = {entry.partition: offsets.get(entry.partition) for entry in message.entries}
        response = self._commit(message)
        for partition, error in response.errors:
            if error is ErrorCode.none:
                old = before[partition]
                offset = None if old is None else old.offset
                events.commit_accepted(client, partition, offset, offsets[partition])
        return response

    def _fetch_and_report(self, client: int, message: OffsetFetchRequest) -> OffsetFetchResponse:
        response = self._committed(message)
        if response.error is ErrorCode.none:
            read = (found.partition for found in response.offsets if found.error is ErrorCode.none)
            self.group.events.offsets_fetched(client, tuple(read))
        return response

    def _denied_commits(self, message: OffsetCommitRequest) -> dict[TopicPartition, ErrorCode]:
        error = ErrorCode.topic_authorization_failed
        rejected = dict.fromkeys(self._rejected_partitions(message), error)
        return super()._denied_commits(message) | rejected

    def _rejected_partitions(self, message: OffsetCommitRequest) -> list[TopicPartition]:
        return [
            entry.partition
            for entry in message.entries
            if self._clock.now < self._rejected.get(entry.partition.topic, 0.0)
        ]

    def _address(self, broker: int) -> BrokerMetadata | None:
        if not self._up[broker]:
            return None
        return BrokerMetadata(node_id=broker, host=f"broker-{broker}", port=PORT)

    def _addresses(self) -> tuple[BrokerMetadata, ...]:
        addresses = (self._address(number) for number in range(self.count))
        return tuple(address for address in addresses if address is not None)

    def _describe_partition(self, number: int, log: ChangingLog) -> PartitionMetadata:
        up = self._up[log.leader_id]
        return PartitionMetadata(
            error=ErrorCode.none if up else ErrorCode.leader_not_available,
            partition=number,
            leader_id=log.leader_id if up else -1,
            leader_epoch=log.leader_epoch,
            replicas=tuple(range(self.count)),
        )

    def _find_coordinator(self) -> FindCoordinatorResponse:
        until, old = self._previous_coordinator
        node = old if self._clock.now < until else self.coordinator
        if not self._up[node]:
            return FindCoordinatorResponse(error=ErrorCode.coordinator_not_available)
        return FindCoordinatorResponse(
            error=ErrorCode.none, node_id=node, host=f"broker-{node}", port=PORT
        )


def _coordinator_error(message: Request, error: ErrorCode) -> Response:
    match message:
        case JoinGroupRequest():
            return JoinGroupResponse(error=error, member_id=message.member_id)
        case SyncGroupRequest():
            return SyncGroupResponse(error=error)
        case HeartbeatRequest():
            # A broker that is loading the group responds to heartbeats without an error.
            blind = error is ErrorCode.coordinator_load_in_progress
            return HeartbeatResponse(error=ErrorCode.none if blind else error)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error=error)
        case DescribeGroupsRequest():
            return DescribeGroupsResponse(error=error)
        case ConsumerGroupHeartbeatRequest():
            return ConsumerGroupHeartbeatResponse(error=error)
        case OffsetCommitRequest():
            return OffsetCommitResponse(
                errors=tuple((entry.partition, error) for entry in message.entries)
            )
        case OffsetFetchRequest():
            return OffsetFetchResponse(error=error)
        case _:
            raise TypeError(f"the simulated coordinator does not support {type(message).__name__}")
