"""One topic that results are written to: its partitions, their leaders and queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncrevoke.model import TopicPartition
from asyncrevoke.producing.partitioner import Partitioner
from asyncrevoke.producing.queueing.partition_queue import PartitionQueue
from asyncrevoke.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.protocol.messages import TopicMetadata


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """A topic has the partitions 0 to ``count`` - 1, of which those in ``led`` have a leader."""

    count: int
    led: Sequence[int]


class ResultTopic:
    """``queues`` are empty while the topic is unknown; ``error`` says what the last metadata said
    of it. ``leaders`` are broker ids, -1 for a partition without leader, and ``led`` the
    partitions that have one."""

    __slots__ = ("error", "leaders", "led", "name", "partitioner", "queues")

    def __init__(self, name: str) -> None:
        self.name = name
        self.error = ErrorCode.none
        self.leaders: list[int] = []
        self.led: list[int] = []
        self.queues: list[PartitionQueue] = []
        self.partitioner = Partitioner()

    def partitions(self) -> TopicPartitions:
        """What is known of its partitions now."""
        return TopicPartitions(len(self.queues), tuple(self.led))

    def partition_of(self, key: bytes | None) -> int:
        """Where the next record with this key goes."""
        count = len(self.queues)
        if key is None:
            return self.partitioner.without_key(self.led, count)
        return self.partitioner.of_key(key, count)

    def learn(self, metadata: TopicMetadata) -> None:
        """Take in what a broker says. Partitions never become fewer: what is queued is sent."""
        self.error = metadata.error
        if metadata.error is not ErrorCode.none or not metadata.partitions:
            return
        # Kafka numbers partitions from 0 on: a higher number would cost a queue for each below it.
        named = len(metadata.partitions)
        leaders = {
            each.partition: each.leader_id
            for each in metadata.partitions
            if 0 <= each.partition < named
        }
        count = max(len(self.queues), named)
        for number in range(len(self.queues), count):
            self.queues.append(PartitionQueue(TopicPartition(self.name, number)))
        self.leaders = [leaders.get(number, -1) for number in range(count)]
        self.led = [number for number, leader in enumerate(self.leaders) if leader >= 0]
