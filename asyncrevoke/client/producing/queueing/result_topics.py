"""The topics to which results are written: partitions, leaders, queues, and metadata requests."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.config.topics import create_topics_command, is_legal_topic
from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES
from asyncrevoke.client.core.io.wait_log import WHAT_TO_CHECK, WaitLines
from asyncrevoke.client.core.metadata.missing_topics import MissingTopics
from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.error_table import rejection
from asyncrevoke.client.producing.queueing.partition_queue import PartitionQueue
from asyncrevoke.client.producing.queueing.partitioner import Partitioner
from asyncrevoke.client.protocol.messages import ErrorCode, MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from asyncrevoke.client.core.io.effects import Failed
    from asyncrevoke.client.log_events import Log, LogEvent
    from asyncrevoke.client.protocol.messages import MetadataResponse, TopicMetadata

_NEVER: Final = float("inf")
# Seconds.
_LONGEST_BACKOFF: Final = 1.0
_TOPIC_REJECTIONS: Final = (
    ErrorCode.topic_authorization_failed,
    ErrorCode.invalid_topic_exception,
)


# The id in the responses of brokers before Kafka 2.8.
_NO_ID: Final = bytes(16)


class PartitionsUnknownError(PublishError):
    """No broker has named the partitions of the topic in time; a later try may succeed."""


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
    are: a partition costs four bytes until :meth:`queue` is called for it. ``wanted_at`` is when a
    record has last waited for the topic.

    ``too_large`` is the size of the smallest record that a broker has rejected as too large before
    it was compressed with zstd: larger records are compressed before they are sent.
    """

    __slots__ = (
        "_of_former",
        "_topic_id",
        "count",
        "error",
        "leaders",
        "led",
        "name",
        "partitioner",
        "queues",
        "too_large",
        "wanted_at",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self._topic_id = _NO_ID
        self.error = ErrorCode.none
        self.count = 0
        self.wanted_at = 0.0
        self.too_large: float = math.inf
        self.leaders = array("i")
        self.led: Sequence[int] = ()
        self.queues: dict[int, PartitionQueue] = {}
        # With batches that were partitioned by the number of partitions of the former topic.
        self._of_former: set[PartitionQueue] = set()
        self.partitioner = Partitioner()

    @property
    def topic_id(self) -> bytes | None:
        """The topic's id (KIP-516); None if it is unknown or the broker has no ids."""
        return None if self._topic_id == _NO_ID else self._topic_id

    @property
    def is_missing(self) -> bool:
        """Whether a record waits for a topic that does not exist."""
        return self.error is ErrorCode.unknown_topic_or_partition and (
            not self.count or any(queue.batches for queue in self.queues.values())
        )

    def is_gone(self, queue: PartitionQueue) -> bool:
        """Whether the topic was created again without this partition."""
        return self.queues.get(queue.partition.partition) is not queue

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
        queue = self.queues.get(partition)
        if queue is None:
            queue = PartitionQueue(TopicPartition(self.name, partition))
            self.queues[partition] = queue
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
            self.queues = {n: queue for n, queue in self.queues.items() if n < named}
            if named != self.count:
                self._of_former = {queue for queue in self.queues.values() if queue.batches}
        self.count = count = named if made_anew else max(self.count, named)
        self.leaders = leaders = array("i", (-1,)) * count
        for partition in metadata.partitions:
            if 0 <= partition.partition < named:
                leaders[partition.partition] = partition.leader_id
        led = array("i", (number for number, leader in enumerate(leaders) if leader >= 0))
        self.led = range(count) if len(led) == count else led
        # Of keys, for this number of partitions.
        self.partitioner.cached(count)


class ResultTopics:
    """The topics to which results are written, and the brokers that lead their partitions.

    ``metadata_max_age`` is the seconds after which metadata is requested again. One request is in
    flight at a time. A topic that is unknown is forgotten if no record has waited for it for
    ``request_timeout``.
    """

    def __init__(
        self, bootstrap: Sequence[Node], *, metadata_max_age: float, request_timeout: float
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._metadata_max_age = metadata_max_age
        self._request_timeout = request_timeout
        self._log: Log | None = None
        self._checked: Container[str] = ()
        self._logs_brokers = False
        self._waits = WaitLines(self._write)
        self._has_responded = False
        self._missing = MissingTopics(self._write, self._bootstrap[0])
        self._nodes: dict[int, Node] = {}
        self._requests_to_any = -1
        self.by_name: dict[str, ResultTopic] = {}
        self._requested = False
        # Why no request can succeed, as of the last response.
        self._refusal: str | None = None
        self._due = _NEVER
        self._backoff = Backoff(0.05, _LONGEST_BACKOFF)

    def __getitem__(self, topic: str) -> ResultTopic:
        return self.by_name[topic]

    def log_to(self, log: Log, checked: Container[str], *, brokers: bool) -> None:
        """Write to ``log`` which topics do not exist, except for those in ``checked``; with
        ``brokers``, that no broker responds, too."""
        self._log, self._checked, self._logs_brokers = log, checked, brokers

    def want(self, now: float, topic: str) -> None:
        """Request the partitions of a topic. Raises PublishError."""
        if not is_legal_topic(topic):
            # A request with this name could not be encoded, and would end the producer.
            raise PublishError(topic, "no topic can have this name")
        if topic not in self.by_name:
            self.by_name[topic] = ResultTopic(topic)
            self._due = min(self._due, now)
        self.by_name[topic].wanted_at = now

    def is_known(self, topic: str) -> bool:
        """Whether the partitions of a topic are known."""
        return topic in self.by_name and self.by_name[topic].count > 0

    def why_unknown(
        self, topic: str, last_failure: str, *, in_time: bool, others_wait: bool
    ) -> PublishError | None:
        """The error of a result whose topic is unknown; None if it may wait longer (``in_time``).

        After an error of a topic, its metadata is not requested again unless ``others_wait``.
        """
        unknown = self.by_name.get(topic)
        if unknown is None:
            return None
        rejected = unknown.error in _TOPIC_REJECTIONS
        if in_time and not rejected and self._refusal is None:
            return None
        if not others_wait:
            del self.by_name[topic]
        if self._refusal is not None:
            return PublishError(topic, self._refusal)
        if rejected:
            return PublishError(topic, rejection(unknown.error, None))
        if unknown.error is ErrorCode.unknown_topic_or_partition:
            first = self._bootstrap[0]
            command = create_topics_command(first.host, first.port, [topic])
            return PublishError(topic, f"the topic does not exist: create it by `{command}`")
        return PartitionsUnknownError(topic, f"its partitions are unknown: {last_failure}")

    def leader(self, topic: ResultTopic, partition: int) -> Node | None:
        """The broker that leads a partition; None if there is none, or its address is unknown."""
        if partition >= len(topic.leaders):
            return None
        return self._nodes.get(topic.leaders[partition])

    def ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes] | None:
        """The ids of the topics of these partitions by name; None if one is not known."""
        ids: dict[str, bytes] = {}
        for topic in dict.fromkeys(partition.topic for partition in partitions):
            topic_id = self.by_name[topic].topic_id
            if topic_id is None:
                return None
            ids[topic] = topic_id
        return ids

    def any_node(self) -> Node:
        """The known brokers and bootstrap addresses in turn, because the cluster may move."""
        candidates = [*self._nodes.values(), *self._bootstrap]
        self._requests_to_any += 1
        return candidates[self._requests_to_any % len(candidates)]

    def request(self, now: float) -> MetadataRequest | None:
        """The request to send now, if one is due. Call :meth:`received` after it."""
        if self.due > now:
            return None
        oldest = now - self._request_timeout
        for topic in [t for t in self.by_name.values() if not t.count and t.wanted_at < oldest]:
            del self.by_name[topic.name]
        if not self.by_name:
            return None
        self._requested = True
        self._refusal = None
        self._due = _NEVER
        return MetadataRequest(topics=tuple(sorted(self.by_name)))

    @property
    def due(self) -> float:
        """When the next request is due; infinite without a topic, and while one is in flight."""
        return self._due if self.by_name and not self._requested else _NEVER

    def received(
        self,
        now: float,
        node: Node,
        response: MetadataResponse | None,
        active: Mapping[PartitionQueue, ResultTopic],
        failed: Failed | None = None,
    ) -> None:
        """Apply the response of a broker to a request; None if it has ``failed``.

        Metadata is requested again after a backoff while an ``active`` queue has no leader.
        """
        self._requested = False
        if failed is None:
            self._has_responded = True
        elif self._logs_brokers and failed.kind not in FATAL_FAILURES:
            fields = {"tried": node.address, "reason": failed.detail or failed.kind.value}
            if not self._has_responded:
                fields["check"] = WHAT_TO_CHECK
            self._waits.waiting(now, "cluster", log_events.WAITING_FOR_BROKER, **fields)
        if failed is not None and failed.kind in FATAL_FAILURES:
            self._refusal = failed.detail or failed.kind.value
        if response is None or response.error is not ErrorCode.none or not response.brokers:
            if response is not None and response.error is ErrorCode.rebootstrap_required:
                self._nodes = {}
            self._due = now + self._backoff.failed()
            return
        self._nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port)
            for broker in response.brokers
        }
        for metadata in response.topics:
            if metadata.name in self.by_name:
                self.by_name[metadata.name].learn(metadata)
        self._log_missing(now)
        missing = any(not topic.count for topic in self.by_name.values())
        leaderless = any(
            self.leader(topic, queue.partition.partition) is None for queue, topic in active.items()
        )
        if missing or leaderless:
            self._due = now + self._backoff.failed()
        else:
            self._backoff.succeeded()
            self._due = min(self._due, now + self._metadata_max_age)

    @property
    def missing(self) -> frozenset[str]:
        """The topics that do not exist, and that records wait for."""
        return frozenset(topic.name for topic in self.by_name.values() if topic.is_missing)

    def _log_missing(self, now: float) -> None:
        missing = self.missing
        for topic in self.by_name.values():
            if topic.count and topic.error is ErrorCode.none:
                self._missing.found(now, topic.name)
        line = self._missing.line_due(now, (name for name in missing if name not in self._checked))
        if line is not None:
            self._write(log_events.OUTPUT_TOPICS_MISSING, **line)

    def responded(self, now: float, node: Node) -> None:
        """A broker has responded, to whatever request, after requests had failed."""
        self._waits.over(now, "cluster", log_events.BROKER_REACHABLE, node=node.address)

    def _write(self, event: LogEvent, **fields: object) -> None:
        if self._log is not None:
            event.write_to(self._log, **fields)

    def refresh(self, now: float) -> None:
        """Request metadata after a backoff, unless a request is due soon."""
        if self._due > now + _LONGEST_BACKOFF:
            self._due = now + self._backoff.failed()
