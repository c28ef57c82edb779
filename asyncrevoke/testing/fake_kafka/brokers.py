"""A simulated broker: its partitions, its group, and its responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ErrorCode,
    FetchedOffset,
    FetchRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionMetadata,
    Request,
    SyncGroupRequest,
    TopicMetadata,
)
from asyncrevoke.testing.fake_kafka.consumer_group import ConsumerGroup
from asyncrevoke.testing.fake_kafka.topics import LogT, Topics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.testing.fake_kafka.group_state import Reply
    from asyncrevoke.testing.fake_kafka.partition_leaders import Leaders


class ServesClassicMembers(Protocol):
    """A group whose coordinator handles JoinGroup, SyncGroup, Heartbeat and LeaveGroup. Implemented
    by :class:`~asyncrevoke.testing.fake_kafka.classic_group.ClassicGroup`."""

    def offset_commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Store offsets, if the member and its generation are valid."""
        ...

    def offset_fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Read offsets."""
        ...

    def consumer_heartbeat(
        self, client: int, request: ConsumerGroupHeartbeatRequest, /
    ) -> ConsumerGroupHeartbeatResponse:
        """Respond to a ConsumerGroupHeartbeat."""
        ...

    def join_group(self, client: int, request: JoinGroupRequest, reply: Reply) -> None:
        """Respond to a JoinGroup, at once or at the end of the join phase."""

    def sync_group(self, request: SyncGroupRequest, reply: Reply) -> None:
        """Respond to a SyncGroup, at once or when the leader has sent the assignment."""

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Respond to a Heartbeat."""
        ...

    def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Remove a member."""
        ...

    def describe(self) -> DescribeGroupsResponse:
        """The state of the group, and its assignor."""
        ...


GroupT = TypeVar("GroupT", bound="ServesClassicMembers | ConsumerGroup[Any]")

PORT = 9092


class Brokers(Generic[LogT, GroupT]):
    """A cluster of one broker, which has the number 0, with one group. Topics are by name."""

    def __init__(self, group: GroupT, topics: Topics[LogT], leaders: Leaders[LogT]) -> None:
        self.group = group
        self._topics = topics
        self._leaders = leaders
        # Cleared when a topic or a leader changes.
        self._described: dict[str, TopicMetadata] = {}

    @property
    def topics(self) -> Topics[LogT]:
        """The existing topics."""
        return self._topics

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic with this number of partitions, or add partitions to it."""
        self._described.clear()
        self.topics.create(name, partitions)

    def bootstrap(self) -> list[Node]:
        """The bootstrap addresses."""
        return [Node(-1, "broker-0", PORT)]

    def resolve(self, node: Node) -> int | None:
        """The broker that has this address."""
        return 0 if node.host == "broker-0" else None

    # --- requests --------------------------------------------------------------------------------

    def handle(self, broker: int, client: int, message: Request, reply: Reply) -> None:
        """Process one request."""
        match message:
            case FetchRequest():
                self._leaders.fetch(broker, message, reply)
            case ListOffsetsRequest():
                reply(self._leaders.list_offsets(broker, message))
            case MetadataRequest():
                reply(self._metadata(message))
            case FindCoordinatorRequest():
                reply(self._find_coordinator())
            case _:
                self._coordinate(broker, client, message, reply)

    def _coordinate(self, _broker: int, client: int, message: Request, reply: Reply) -> None:
        """Process a request to the coordinator."""
        self._to_group(client, message, reply)

    def _to_group(self, client: int, message: Request, reply: Reply) -> None:
        group = self.group
        match message:
            case OffsetCommitRequest():
                reply(self._commit(message))
            case OffsetFetchRequest():
                reply(self._committed(message))
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
            case DescribeGroupsRequest():
                reply(group.describe())
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

    def _denied_commits(self, message: OffsetCommitRequest) -> dict[TopicPartition, ErrorCode]:
        return self._denied((e.partition for e in message.entries), message.topic_ids)

    def _commit(self, message: OffsetCommitRequest) -> OffsetCommitResponse:
        denied = self._denied_commits(message)
        if not denied:
            return self.group.offset_commit(message)
        left = tuple(entry for entry in message.entries if entry.partition not in denied)
        errors = self.group.offset_commit(replace(message, entries=left)).errors
        return OffsetCommitResponse(errors=(*errors, *denied.items()))

    def _committed(self, message: OffsetFetchRequest) -> OffsetFetchResponse:
        if message.topic_ids is None:
            return self.group.offset_fetch(message)
        denied = self._denied(message.partitions, message.topic_ids)
        left = tuple(partition for partition in message.partitions if partition not in denied)
        response = self.group.offset_fetch(replace(message, partitions=left))
        rejected = tuple(FetchedOffset(partition=tp, error=why) for tp, why in denied.items())
        return replace(response, offsets=(*response.offsets, *rejected))

    def _metadata(self, message: MetadataRequest) -> MetadataResponse:
        names = tuple(self.topics) if message.topics is None else message.topics
        by_id = {self.topics.id_of(name): name for name in self.topics} if message.topic_ids else {}
        unknown = ErrorCode.unknown_topic_id
        return MetadataResponse(
            brokers=self._addresses(),
            topics=(
                *(self._describe(name) for name in names),
                *(
                    self._describe(by_id[topic_id])
                    if topic_id in by_id
                    else TopicMetadata(error=unknown, name="", topic_id=topic_id)
                    for topic_id in message.topic_ids
                ),
            ),
            cluster_id="simulated",
            controller_id=0,
        )

    def _addresses(self) -> tuple[BrokerMetadata, ...]:
        return (BrokerMetadata(node_id=0, host="broker-0", port=PORT),)

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
                self._describe_partition(number, log) for number, log in enumerate(logs)
            ),
        )

    def _describe_partition(self, number: int, log: LogT) -> PartitionMetadata:
        return PartitionMetadata(
            error=ErrorCode.none,
            partition=number,
            leader_id=log.leader_id,
            leader_epoch=log.leader_epoch,
            replicas=(log.leader_id,),
        )

    def _find_coordinator(self) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(error=ErrorCode.none, node_id=0, host="broker-0", port=PORT)
