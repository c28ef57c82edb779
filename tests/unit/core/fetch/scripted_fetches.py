"""Partitions to fetch from scripted brokers, whose batches are texts of one letter a record."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from unit.core.scripted_environment import ScriptedRequests, topic, tp

from asyncrevoke.client.core.fetch.fetcher import Fetcher
from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.core.io.wall_clock import WallClock
from asyncrevoke.client.core.partition.instance import InstanceTransition, PartitionInstance
from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ErrorCode,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
)
from asyncrevoke.client.protocol.records import CorruptBatch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.core.io.effects import Send


@dataclasses.dataclass
class ScriptedBatch:
    """``count`` records from ``base_offset`` on, of ``each`` bytes."""

    base_offset: int
    count: int
    each: int = 100
    leader_epoch: int = 0
    corrupt: bool = False
    checksum: int = 0

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count

    @property
    def size(self) -> int:
        return self.count * self.each

    @property
    def unpacked_size(self) -> int:
        return self.size

    @property
    def viewed_size(self) -> int:
        return 0

    def copy(self) -> None:
        """Do nothing: it is not a view of a response."""

    def decode(self, topic: str, partition: int, tracker_id: int, from_offset: int) -> list[Record]:
        if self.corrupt:
            raise CorruptBatch("the checksum is wrong")
        return [
            Record(topic, partition, offset, 0, 0, None, None, (), tracker_id)
            for offset in range(max(self.base_offset, from_offset), self.next_offset)
        ]


def decode(fetched: FetchedPartition, read_committed: bool) -> list[ScriptedBatch]:
    """Bytes like ``b"10+5x99 20+1!"``: records 10 to 14 of 99 bytes, a corrupt one at 20."""
    batches: list[ScriptedBatch] = []
    for word in bytes(fetched.records).decode().split():
        if word == "broken":
            raise CorruptBatch("no header")
        base, _, count = word.rstrip("!").partition("+")
        count, _, each = count.partition("x")
        batches.append(
            ScriptedBatch(int(base), int(count), int(each or 100), corrupt=word.endswith("!"))
        )
    return batches


def data(number: int, records: str, *, high_watermark: int = 10**6) -> FetchedPartition:
    return FetchedPartition(
        partition=tp(number),
        error=ErrorCode.none,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark - 1,
        log_start_offset=0,
        records=records.encode(),
    )


def rejected(number: int, error: ErrorCode, leader: tuple[int, int] = (-1, -1)) -> FetchedPartition:
    """An error; ``leader`` is the leader that the broker names, and its epoch."""
    return FetchedPartition(
        partition=tp(number), error=error, leader_id=leader[0], leader_epoch=leader[1]
    )


class FetchWorld(ScriptedRequests):
    """A cluster of three brokers; partition n of "orders" is led by broker n % 3 + 1."""

    def __init__(self, partitions: int = 3, **options: Unpack[ConsumerOptions]) -> None:
        super().__init__(**options)
        # What the reactions of the other folders return.
        self.is_poll_waiting = False
        self.capacity: dict[TopicPartition, int] = {}
        self.fetching = Fetcher(
            self.outbox,
            self.config,
            self.cluster,
            decode,
            WallClock(0.0),
            self.partition_capacity,
            self,
        )
        self.know(topic("orders", {n: n % 3 + 1 for n in range(partitions)}, epoch=2))
        self.out_of_range: list[PartitionInstance] = []
        self.truncated: list[tuple[int, int | None, int]] = []
        self.times_sessions_ended = 0
        self.instances: dict[int, PartitionInstance] = {}

    def metadata_refreshed(self, now: float) -> None:
        self.fetching.leaders_known(now)

    def partition_capacity(self, instance: PartitionInstance, round_number: int) -> int:
        return self.capacity.get(instance.partition, 10**6)

    def position_out_of_range(self, now: float, instance: PartitionInstance) -> None:
        self.out_of_range.append(instance)

    def log_truncated(
        self, now: float, instance: PartitionInstance, offset: int | None, leader_epoch: int
    ) -> None:
        self.truncated.append((instance.partition.partition, offset, leader_epoch))

    def log_end_known(self, now: float, instance: PartitionInstance) -> None:
        pass

    def position_passed(self, now: float, instance: PartitionInstance) -> None:
        pass

    def sessions_ended(self) -> None:
        self.times_sessions_ended += 1

    def place(self, instance: PartitionInstance, position: int) -> None:
        tracker_id = 1 if instance.tracker is None else instance.tracker.tracker_id + 1
        instance.tracker = OffsetTracker(tracker_id, position)
        instance.buffer = RecordBuffer(instance.partition, tracker_id, position)
        self.fetching.add(instance)

    def assign(
        self, *numbers: int, position: int = 0, blocked: Sequence[int] = ()
    ) -> list[PartitionInstance]:
        for number in numbers:
            instance = PartitionInstance(tp(number), number)
            instance.transition(InstanceTransition.POSITIONED)
            instance.seek_pending = number in blocked
            self.instances[number] = instance
            self.place(instance, position)
        self.plan()
        return [self.instances[number] for number in numbers]

    def plan(self) -> None:
        self.fetching.plan(self.now)
        self.sync()

    def fetches(self, channel: Channel = Channel.FETCH) -> dict[int, FetchRequest]:
        """The open long polls by node, or the fetches for busy partitions."""
        found: dict[int, FetchRequest] = {}
        for send in self.sends(FetchRequest):
            assert isinstance(send.message, FetchRequest)
            if send.channel is channel:
                assert send.node.node_id not in found, "two fetches on one connection"
                found[send.node.node_id] = send.message
        return found

    def fetch_of(self, node_id: int, number: int | None = None) -> Send:
        """The open fetch at this node that asks for this partition, or the long poll."""
        (send,) = [
            send
            for send in self.sends(FetchRequest)
            if isinstance(send.message, FetchRequest)
            and send.node.node_id == node_id
            and (send.channel is Channel.FETCH if number is None else number in asked(send.message))
        ]
        return send

    def respond(self, node_id: int, *partitions: FetchedPartition) -> None:
        """Respond to the fetch at this node; partitions not named come back empty."""
        first = partitions[0].partition.partition if partitions else None
        send = self.fetch_of(node_id, first)
        assert isinstance(send.message, FetchRequest)
        named = {fetched.partition for fetched in partitions}
        rest = [p for p in send.message.partitions if p.partition not in named]
        empty = [data(p.partition.partition, "", high_watermark=p.offset) for p in rest]
        response = FetchResponse(error=ErrorCode.none, partitions=(*partitions, *empty))
        self.reply(send, response)
        self.plan()

    def respond_with_leaders(
        self, node_id: int, *partitions: FetchedPartition, leaders: tuple[BrokerMetadata, ...] = ()
    ) -> None:
        """Respond to the long poll at this node with these errors, and the leaders' addresses."""
        send = self.fetch_of(node_id)
        response = FetchResponse(error=ErrorCode.none, partitions=partitions, leaders=leaders)
        self.reply(send, response)
        self.plan()

    def wait_out(self, node_id: int) -> None:
        """Let the broker wait as long as it may, and respond with nothing."""
        message = self.fetch_of(node_id).message
        assert isinstance(message, FetchRequest)
        self.advance(message.max_wait)
        self.respond(node_id)

    def collect(self, limit: int = 500) -> dict[int, list[int]]:
        taken = self.fetching.collector.collect(self.now, limit)
        self.plan()
        return {
            partition.partition: [record.offset for record in records]
            for partition, records in taken.items()
        }


def asked(request: FetchRequest) -> dict[int, int]:
    return {p.partition.partition: p.offset for p in request.partitions}
