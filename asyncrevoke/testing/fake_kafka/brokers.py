"""Simulated brokers: their partitions, their group, and their responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from asyncrevoke.core.io.effects import Node
from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol.messages import (
    BrokerMetadata,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ErrorCode,
    FetchedOffset,
    FetchRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
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
    TopicMetadata,
)
from asyncrevoke.testing.fake_kafka.consumer_group import ConsumerGroup
from asyncrevoke.testing.fake_kafka.partition_leaders import Leaders
from asyncrevoke.testing.fake_kafka.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from asyncrevoke.testing.fake_kafka.classic_members import ServesClassicMembers
    from asyncrevoke.testing.fake_kafka.clock import Clock
    from asyncrevoke.testing.fake_kafka.group_state import Reply
    from asyncrevoke.testing.fake_kafka.partition_log import PartitionLog

    Group: TypeAlias = ServesClassicMembers | ConsumerGroup

_PORT = 9092


class Brokers:
    """A cluster of ``count`` brokers with one group. Topics are by name."""

    def __init__(
        self, clock: Clock, rng: Random, count: int, group: Group, topics: Topics | None = None
    ) -> None:
        self.group = group
        self.topics = Topics() if topics is None else topics
        self._leaders = Leaders(clock, self.topics, self._address)
        # Cleared when a topic or a leader changes.
        self._described: dict[str, TopicMetadata] = {}
        self.coordinator = 0
        self.count = count
        self._clock = clock
        self._rng = rng
        self._up = [True] * count
        self._stalled = [0.0] * count
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

    # --- topics ----------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic with this number of partitions, or add partitions to it."""
        self._described.clear()
        self.topics.create(name, partitions, self.count)

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
        return [Node(-1 - number, f"broker-{number}", _PORT) for number in range(self.count)]

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

    def _elect(self, log: PartitionLog) -> None:
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
        match message:
            case FetchRequest():
                self._leaders.fetch(broker, message, reply)
            case ListOffsetsRequest():
                reply(self._leaders.list_offsets(broker, message))
            case OffsetsForLeaderEpochRequest():
                reply(self._leaders.epoch_ends(broker, message))
            case MetadataRequest():
                reply(self._metadata(message))
            case FindCoordinatorRequest():
                reply(self._find_coordinator())
            case _:
                self._coordinate(broker, client, message, reply)

    def _coordinate(self, broker: int, client: int, message: Request, reply: Reply) -> None:
        if broker != self.coordinator:
            reply(_coordinator_error(message, ErrorCode.not_coordinator))
        elif self.loads:
            reply(_coordinator_error(message, ErrorCode.coordinator_load_in_progress))
        else:
            self._to_group(client, message, reply)

    def _to_group(self, client: int, message: Request, reply: Reply) -> None:
        group = self.group
        match message:
            case OffsetCommitRequest():
                reply(self._commit(client, message))
            case OffsetFetchRequest():
                reply(self._committed(client, message))
            case ConsumerGroupHeartbeatRequest():
                reply(group.consumer_heartbeat(client, message))
            case _ if isinstance(group, ConsumerGroup):
                raise TypeError(f"a member of a KIP-848 group sends no {type(message).__name__}")
            case JoinGroupRequest():
                group.join_group(client, message, reply)
            case SyncGroupRequest():
                group.sync_group(message, reply)
            case HeartbeatRequest():
                reply(group.heartbeat(message))
            case LeaveGroupRequest():
                reply(group.leave_group(message))
            case _:
                raise TypeError(f"the simulated broker does not support {type(message).__name__}")

    def _denied(
        self, partitions: Iterable[TopicPartition], ids: dict[str, bytes] | None
    ) -> dict[TopicPartition, ErrorCode]:
        """The partitions whose topics do not exist, or have other ids."""
        denied: dict[TopicPartition, ErrorCode] = {}
        for partition in partitions:
            if not self.topics.has(partition.topic, ids):
                denied[partition] = ErrorCode.unknown_topic_id
            elif self.topics.log(partition) is None:
                denied[partition] = ErrorCode.unknown_topic_or_partition
        return denied

    def _commit(self, client: int, message: OffsetCommitRequest) -> OffsetCommitResponse:
        denied = self._denied((e.partition for e in message.entries), message.topic_ids)
        for partition in (entry.partition for entry in message.entries):
            if self._clock.now < self._rejected.get(partition.topic, 0.0):
                denied[partition] = ErrorCode.topic_authorization_failed
                self.group.events.commit_rejected(client, partition)
        if not denied:
            return self.group.offset_commit(client, message)
        left = tuple(entry for entry in message.entries if entry.partition not in denied)
        errors = self.group.offset_commit(client, replace(message, entries=left)).errors
        return OffsetCommitResponse(errors=(*errors, *denied.items()))

    def _committed(self, client: int, message: OffsetFetchRequest) -> OffsetFetchResponse:
        if message.topic_ids is None:
            return self.group.offset_fetch(client, message)
        denied = self._denied(message.partitions, message.topic_ids)
        left = tuple(partition for partition in message.partitions if partition not in denied)
        response = self.group.offset_fetch(client, replace(message, partitions=left))
        rejected = tuple(FetchedOffset(partition=tp, error=why) for tp, why in denied.items())
        return replace(response, offsets=(*response.offsets, *rejected))

    def _address(self, broker: int) -> BrokerMetadata | None:
        if not self._up[broker]:
            return None
        return BrokerMetadata(node_id=broker, host=f"broker-{broker}", port=_PORT)

    def _metadata(self, message: MetadataRequest) -> MetadataResponse:
        names = tuple(self.topics) if message.topics is None else message.topics
        return MetadataResponse(
            brokers=tuple(
                address
                for number in range(self.count)
                if (address := self._address(number)) is not None
            ),
            topics=tuple(self._describe(name) for name in names),
            cluster_id="simulated",
            controller_id=0,
        )

    def _describe(self, name: str) -> TopicMetadata:
        found = self._described.get(name)
        if found is None:
            found = self._described[name] = self._describe_anew(name)
        return found

    def _describe_anew(self, name: str) -> TopicMetadata:
        logs = self.topics.get(name)
        if logs is None:
            return TopicMetadata(error=ErrorCode.unknown_topic_or_partition, name=name)
        return TopicMetadata(
            error=ErrorCode.none,
            name=name,
            topic_id=self.topics.id_of(name),
            partitions=tuple(
                PartitionMetadata(
                    error=(
                        ErrorCode.none
                        if self._up[log.leader_id]
                        else ErrorCode.leader_not_available
                    ),
                    partition=number,
                    leader_id=log.leader_id if self._up[log.leader_id] else -1,
                    leader_epoch=log.leader_epoch,
                    replicas=tuple(range(self.count)),
                )
                for number, log in enumerate(logs)
            ),
        )

    def _find_coordinator(self) -> FindCoordinatorResponse:
        until, old = self._previous_coordinator
        node = old if self._clock.now < until else self.coordinator
        if not self._up[node]:
            return FindCoordinatorResponse(error=ErrorCode.coordinator_not_available)
        return FindCoordinatorResponse(
            error=ErrorCode.none, node_id=node, host=f"broker-{node}", port=_PORT
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
