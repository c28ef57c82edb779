"""A simulated Kafka for one share group (KIP-932). Its records have values."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Literal, TypeAlias

from asyncrevoke.client.groups.requests import DescribeShareGroupOffsetsRequest
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import BrokerMetadata, EntityResponse
from asyncrevoke.client.protocol.share_messages import (
    AcknowledgeType,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
    TopicIdPartition,
)
from asyncrevoke.testing.cluster import Cluster
from asyncrevoke.testing.fake_kafka.brokers import PORT
from asyncrevoke.testing.fake_kafka.share_group import ShareCoordinatorOptions, ShareGroup
from asyncrevoke.testing.fake_kafka.share_leader import ShareLeader
from asyncrevoke.testing.fake_kafka.share_offsets import share_offsets_response
from asyncrevoke.testing.fake_kafka.share_partition import ShareGroupOptions, SharePartition

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.protocol.messages import Request
    from asyncrevoke.testing.fake_kafka.clock import Clock
    from asyncrevoke.testing.fake_kafka.group_state import Reply
    from asyncrevoke.testing.fake_kafka.share_partition import LockEnd, ShareOffset

Acknowledgement: TypeAlias = Literal["accept", "release", "reject"]

# So that a partition can get another leader.
_BROKERS = 2
_NAMES: dict[AcknowledgeType, Acknowledgement] = {
    AcknowledgeType.ACCEPT: "accept",
    AcknowledgeType.RELEASE: "release",
    AcknowledgeType.REJECT: "reject",
}


class ShareCluster(Cluster):
    """Its brokers acquire records for the members of a share group.

    ``shares`` is the state of each partition in the group, and ``acknowledged`` the last
    acknowledgement of each offset.
    """

    def __init__(
        self, clock: Clock, wall_clock_offset: float, partitions: int, topics: Mapping[str, int]
    ) -> None:
        self.shares: dict[TopicIdPartition, SharePartition] = {}
        self.acknowledged: dict[TopicIdPartition, dict[int, Acknowledgement]] = {}
        self.share_group = ShareGroup(clock, ShareCoordinatorOptions(), self._partitions_of)
        self.share_leaders = [ShareLeader(clock, number, self) for number in range(_BROKERS)]
        self._options = ShareGroupOptions()
        self._acquisitions = count(1)
        super().__init__(clock, wall_clock_offset, partitions, topics)

    # --- brokers ---------------------------------------------------------------------------------

    def resolve(self, node: Node) -> int | None:
        """The broker that has this address."""
        return next((n for n in range(_BROKERS) if node.host == _host(n)), None)

    def _addresses(self) -> tuple[BrokerMetadata, ...]:
        return tuple(map(_address, range(_BROKERS)))

    def receive(
        self, broker: int, client: int, connection: Hashable, message: Request, reply: Reply
    ) -> None:
        """Process one request that has come over this connection."""
        match message:
            case ShareFetchRequest() | ShareAcknowledgeRequest():
                self.share_leaders[broker].handle(message, connection, reply)
            case ShareGroupHeartbeatRequest():
                reply(self.share_group.heartbeat(message))
            case DescribeShareGroupOffsetsRequest():
                names = {self.id_of(tp): tp for tp in self._named()}
                shares = {names[each]: share for each, share in self.shares.items()}
                reply(EntityResponse(entity=share_offsets_response(message, shares)))
            case _:
                super().receive(broker, client, connection, message, reply)

    def _named(self) -> Iterator[TopicPartition]:
        for topic, logs in self.topics.items():
            for number in range(len(logs)):
                yield TopicPartition(topic, number)

    def connection_closed(self, connection: Hashable) -> None:
        """A client's connection has closed: the share session that it has opened ends."""
        for leader in self.share_leaders:
            leader.connection_closed(connection)

    # --- partitions ------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic with this number of partitions, or add partitions to it."""
        super().create_topic(name, partitions)
        for number, partition in enumerate(self._partitions_of(name)):
            if partition not in self.shares:
                share = SharePartition(self.topics[name][number], self._options)
                acknowledged = self.acknowledged[partition] = {}
                share.lock_ended = partial(_note, acknowledged)
                self.shares[partition] = share
        self.share_group.changed()

    def id_of(self, partition: TopicPartition) -> TopicIdPartition:
        """A partition by the id of its topic."""
        return TopicIdPartition(self.topics.id_of(partition.topic), partition.partition)

    def move_leader(self, partition: TopicPartition) -> None:
        """Let the next broker lead a partition: it knows of no lock."""
        share = self.shares[self.id_of(partition)]
        share.log.leader_id = (share.log.leader_id + 1) % _BROKERS
        share.log.leader_epoch += 1
        self._described.clear()
        share.move()
        share.log.wake()

    def is_fetched(self, partition: TopicPartition) -> bool:
        """Whether a member's session at the leader has this partition, whose start offset is
        set."""
        found = self.id_of(partition)
        share = self.shares[found]
        sessions = self.share_leaders[share.log.leader_id].sessions.values()
        return share.is_loaded and any(found in session.partitions for session in sessions)

    # --- what the leaders ask --------------------------------------------------------------------

    def find(self, partition: TopicIdPartition) -> SharePartition | None:
        """The state of a partition; None if no topic has this id."""
        return self.shares.get(partition)

    def is_initialized(self, partition: TopicIdPartition) -> bool:
        """Whether it was ever assigned."""
        return self.share_group.is_initialized(partition)

    def address(self, broker: int) -> BrokerMetadata | None:
        """Where a broker is."""
        return _address(broker)

    def next_acquisition(self) -> int:
        """A number for the next response that acquires records."""
        return next(self._acquisitions)

    def _partitions_of(self, topic: str) -> Iterator[TopicIdPartition]:
        for number in range(len(self.topics.get(topic, ()))):
            yield self.id_of(TopicPartition(topic, number))


def _note(
    acknowledged: dict[int, Acknowledgement],
    offset: int,
    _lock: ShareOffset,
    _why: LockEnd,
    kind: AcknowledgeType | None,
) -> None:
    if kind is not None and kind in _NAMES:
        acknowledged[offset] = _NAMES[kind]


def _host(broker: int) -> str:
    return f"broker-{broker}"


def _address(broker: int) -> BrokerMetadata:
    return BrokerMetadata(node_id=broker, host=_host(broker), port=PORT)
