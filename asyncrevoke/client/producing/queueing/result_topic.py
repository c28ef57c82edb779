"""A topic to which results are written: its partitions, their leaders and queues."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.partitioner import Partitioner
from asyncrevoke.client.producing.queueing.partition_queue import PartitionQueue
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.protocol.messages import TopicMetadata


# The id in the responses of brokers before Kafka 2.8.
_NO_ID: Final = bytes(16)


@dataclass(frozen=True, slots=True)
class OutputPartitions:
    """The partitions 0 to ``count`` - 1 of a topic; those in ``led`` have a leader."""

    count: int
    led: Sequence[int]


class ResultTopic:
    """A topic to which results are written.

    ``count`` is the number of its partitions, 0 while the topic is unknown; ``error`` is that of
    the last Metadata response. ``leaders`` has broker ids, -1 for a partition without a leader;
    ``led`` has the partitions with a leader, ascending. A broker decides how many partitions there
    are: a partition costs four bytes until :meth:`queue` is called for it.

    ``too_large`` is the size of the smallest record that a broker has rejected as too large before
    it was compressed with zstd: larger records are compressed before they are sent.
    """

    __slots__ = (
        "_of_former",
        "_queues",
        "_topic_id",
        "count",
        "error",
        "leaders",
        "led",
        "name",
        "partitioner",
        "too_large",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self._topic_id = _NO_ID
        self.error = ErrorCode.none
        self.count = 0
        self.too_large: float = math.inf
        self.leaders = array("i")
        self.led: Sequence[int] = ()
        self._queues: dict[int, PartitionQueue] = {}
        # With batches that were partitioned by the number of partitions of the former topic.
        self._of_former: set[PartitionQueue] = set()
        self.partitioner = Partitioner()

    @property
    def topic_id(self) -> bytes | None:
        """The topic's id (KIP-516); None if it is unknown or the broker has no ids."""
        return None if self._topic_id == _NO_ID else self._topic_id

    def is_gone(self, queue: PartitionQueue) -> bool:
        """Whether the topic was created again without this partition."""
        return self._queues.get(queue.partition.partition) is not queue

    def is_to_move(self, queue: PartitionQueue) -> bool:
        """Whether its batches have to be partitioned anew: the topic was created again without this
        partition, or with more or fewer ones. A batch that may be written is sent again before, to
        the same partition: the broker finds it there."""
        if self.is_gone(queue):
            return True
        return queue in self._of_former and not queue.batches[0].in_doubt

    def moves(self, queue: PartitionQueue) -> bool:
        """Its batches are partitioned anew. Returns whether its partition is gone."""
        self._of_former.discard(queue)
        return self.is_gone(queue)

    def queue(self, partition: int) -> PartitionQueue:
        """The queue of a partition, one of ``count``; made at the first call."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = PartitionQueue(TopicPartition(self.name, partition))
            self._queues[partition] = queue
        return queue

    def learn_too_large(self, size: int) -> None:
        """A broker has rejected a record of this size, which was not compressed with zstd."""
        self.too_large = min(self.too_large, size)

    def partitions(self) -> OutputPartitions:
        """The partitions that are known now."""
        return OutputPartitions(self.count, self.led)

    def partition_of(self, key: bytes | None) -> int:
        """The partition of the next record with this key."""
        if key is None:
            return self.partitioner.without_key(self.led, self.count)
        return self.partitioner.of_key(key, self.count)

    def learn(self, metadata: TopicMetadata) -> None:
        """Apply a Metadata response.

        The partitions of a topic never become fewer: such a response is an old one. But a topic
        with another id was deleted and created again, and :meth:`is_gone` then holds for queues of
        partitions that it does not have, :meth:`is_to_move` for all if there are more or fewer.
        Topic ids need Kafka 2.8 or newer.
        """
        self.error = metadata.error
        if metadata.error is not ErrorCode.none or not metadata.partitions:
            return
        # Kafka numbers partitions from 0: others are ignored.
        named = len(metadata.partitions)
        made_anew = metadata.topic_id != self._topic_id != _NO_ID != metadata.topic_id
        self._topic_id = metadata.topic_id
        if made_anew:
            self._queues = {n: queue for n, queue in self._queues.items() if n < named}
            if named != self.count:
                self._of_former = {queue for queue in self._queues.values() if queue.batches}
        self.count = count = named if made_anew else max(self.count, named)
        self.leaders = leaders = array("i", (-1,)) * count
        for each in metadata.partitions:
            if 0 <= each.partition < named:
                leaders[each.partition] = each.leader_id
        led = array("i", (number for number, leader in enumerate(leaders) if leader >= 0))
        self.led = range(count) if len(led) == count else led
