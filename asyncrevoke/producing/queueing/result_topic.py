"""A topic to which results are written: its partitions, their leaders and queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asyncrevoke.model import TopicPartition
from asyncrevoke.producing.partitioner import Partitioner
from asyncrevoke.producing.queueing.partition_queue import PartitionQueue
from asyncrevoke.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.protocol.messages import TopicMetadata


# The id in the responses of brokers before Kafka 2.8.
_NO_ID: Final = bytes(16)


@dataclass(frozen=True, slots=True)
class OutputPartitions:
    """The partitions 0 to ``count`` - 1 of a topic; those in ``led`` have a leader."""

    count: int
    led: Sequence[int]


class ResultTopic:
    """A topic to which results are written.

    ``queues`` is empty while the topic is unknown; ``error`` is that of the last Metadata response.
    ``leaders`` has broker ids, -1 for a partition without a leader; ``led`` has the partitions with
    a leader.
    """

    __slots__ = ("_topic_id", "error", "leaders", "led", "name", "partitioner", "queues")

    def __init__(self, name: str) -> None:
        self.name = name
        self._topic_id = _NO_ID
        self.error = ErrorCode.none
        self.leaders: list[int] = []
        self.led: list[int] = []
        self.queues: list[PartitionQueue] = []
        self.partitioner = Partitioner()

    def is_gone(self, queue: PartitionQueue) -> bool:
        """Whether the topic was created again without this partition."""
        number = queue.partition.partition
        return number >= len(self.queues) or self.queues[number] is not queue

    def partitions(self) -> OutputPartitions:
        """The partitions that are known now."""
        return OutputPartitions(len(self.queues), tuple(self.led))

    def partition_of(self, key: bytes | None) -> int:
        """The partition of the next record with this key."""
        count = len(self.queues)
        if key is None:
            return self.partitioner.without_key(self.led, count)
        return self.partitioner.of_key(key, count)

    def learn(self, metadata: TopicMetadata) -> None:
        """Apply a Metadata response.

        The partitions of a topic never become fewer: such a response is an old one. But a topic
        with another id was deleted and created again, and :meth:`is_gone` then holds for queues of
        partitions that it does not have. Topic ids need Kafka 2.8 or newer.
        """
        self.error = metadata.error
        if metadata.error is not ErrorCode.none or not metadata.partitions:
            return
        # Kafka numbers partitions from 0: a hostile number would cost a queue for each below it.
        named = len(metadata.partitions)
        leaders = {
            each.partition: each.leader_id
            for each in metadata.partitions
            if 0 <= each.partition < named
        }
        made_anew = metadata.topic_id != self._topic_id != _NO_ID != metadata.topic_id
        self._topic_id = metadata.topic_id
        if made_anew:
            del self.queues[named:]
        count = max(len(self.queues), named)
        for number in range(len(self.queues), count):
            self.queues.append(PartitionQueue(TopicPartition(self.name, number)))
        self.leaders = [leaders.get(number, -1) for number in range(count)]
        self.led = [number for number, leader in enumerate(self.leaders) if leader >= 0]
