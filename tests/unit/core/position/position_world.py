"""A position resolver with scripted brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unit.core.scripted_environment import NODES, ScriptedRequests, topic, tp

from asyncrevoke.client.core.commit.user_commits import RequestedOffsets
from asyncrevoke.client.core.io.wall_clock import WallClock
from asyncrevoke.client.core.partition.instance import (
    InstanceState,
    InstanceTransition,
    PartitionInstance,
)
from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
from asyncrevoke.client.core.position.resolver import PositionResolver
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchedOffset,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition

NONE = ErrorCode.none
WALL = 1_700_000_000_000


class WallClockAt(WallClock):
    """Shows WALL at 0, and a millisecond more each second."""

    def milliseconds(self, now: float) -> int:
        return WALL + int(now)


class PositionWorld(ScriptedRequests):
    """Broker 2 coordinates the group; partition n of "orders" is led by broker n % 3 + 1."""

    def __init__(self, partitions: int = 3, **options: Unpack[ConsumerOptions]) -> None:
        super().__init__(**options)
        self.offset_fetch_identity: tuple[str | None, int] = (None, -1)
        self.requested = RequestedOffsets(self.outbox)
        self.positions = PositionResolver(
            self.outbox,
            self.config,
            self.cluster,
            self.coordinator,
            self.requested,
            WallClockAt(0.0),
            self,
        )
        self.know(topic("orders", {n: n % 3 + 1 for n in range(partitions)}, epoch=2))
        self.coordinator.node = NODES[2]
        self.added: set[TopicPartition] = set()
        self.found: dict[PartitionInstance, tuple[int, int, bool]] = {}

    def metadata_refreshed(self, now: float) -> None:
        self.positions.leaders_known(now)

    def is_added(self, partition: TopicPartition) -> bool:
        return partition in self.added

    def position_found(
        self, now: float, instance: PartitionInstance, found: OffsetAndMetadata, from_reset: bool
    ) -> None:
        assert instance not in self.found, "found twice"
        self.found[instance] = (found.offset, found.leader_epoch, from_reset)
        self.place(instance, found.offset)

    @staticmethod
    def place(instance: PartitionInstance, offset: int) -> None:
        tracker_id = 1 if instance.tracker is None else instance.tracker.tracker_id + 1
        instance.tracker = OffsetTracker(tracker_id, offset)
        if instance.state is InstanceState.INIT:
            instance.transition(InstanceTransition.POSITIONED)

    def find(self, *numbers: int) -> list[PartitionInstance]:
        instances = [PartitionInstance(tp(number), number) for number in numbers]
        self.positions.find(self.now, instances)
        return instances

    def active(self, number: int, offset: int = 50) -> PartitionInstance:
        instance = PartitionInstance(tp(number), number)
        self.place(instance, offset)
        return instance

    def commits_are(self, *offsets: FetchedOffset, error: ErrorCode = NONE) -> OffsetFetchRequest:
        send, request = self.only(OffsetFetchRequest)
        self.reply(send, OffsetFetchResponse(error=error, offsets=offsets))
        return request

    def log_is(self, *offsets: ListedOffset) -> ListOffsetsRequest:
        send, request = self.only(ListOffsetsRequest)
        self.reply(send, ListOffsetsResponse(offsets=offsets))
        return request


def committed(number: int, offset: int, epoch: int = -1) -> FetchedOffset:
    return FetchedOffset(partition=tp(number), error=NONE, offset=offset, leader_epoch=epoch)


def failed(number: int, error: ErrorCode) -> FetchedOffset:
    return FetchedOffset(partition=tp(number), error=error)


def listed(number: int, offset: int, epoch: int = 2) -> ListedOffset:
    return ListedOffset(partition=tp(number), error=NONE, offset=offset, leader_epoch=epoch)


def asked(request: ListOffsetsRequest) -> dict[int, int]:
    return {query.partition.partition: query.timestamp for query in request.queries}
