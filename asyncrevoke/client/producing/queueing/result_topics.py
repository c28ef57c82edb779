"""The topics to which results are written, and when their metadata is requested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.config.topics import create_topics_command, is_legal_topic
from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES
from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.producing.error_table import rejection
from asyncrevoke.client.producing.queueing.result_topic import ResultTopic
from asyncrevoke.client.protocol.messages import ErrorCode, MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asyncrevoke.client.core.io.effects import Failed
    from asyncrevoke.client.producing.queueing.partition_queue import PartitionQueue
    from asyncrevoke.client.protocol.messages import MetadataResponse

_NEVER: Final = float("inf")
# Seconds.
_LONGEST_BACKOFF: Final = 1.0
_TOPIC_REJECTIONS: Final = (
    ErrorCode.topic_authorization_failed,
    ErrorCode.invalid_topic_exception,
)


class ResultTopics:
    """The topics to which results are written, and the brokers that lead their partitions.

    ``metadata_max_age`` is the seconds after which metadata is requested again. One request is in
    flight at a time.
    """

    def __init__(self, bootstrap: Sequence[Node], *, metadata_max_age: float) -> None:
        self._bootstrap = list(bootstrap)
        self._metadata_max_age = metadata_max_age
        self._nodes: dict[int, Node] = {}
        self._requests_to_any = -1
        self._topics: dict[str, ResultTopic] = {}
        self._requested = False
        # Why no request can succeed, as of the last response.
        self._refusal: str | None = None
        self._due = _NEVER
        self._backoff = Backoff(0.05, _LONGEST_BACKOFF)

    def __getitem__(self, topic: str) -> ResultTopic:
        return self._topics[topic]

    def want(self, now: float, topic: str) -> None:
        """Request the partitions of a topic. Raises PublishError."""
        if not is_legal_topic(topic):
            # A request with this name could not be encoded, and would end the producer.
            raise PublishError(topic, "no topic can have this name")
        if topic not in self._topics:
            self._topics[topic] = ResultTopic(topic)
            self._due = min(self._due, now)

    def is_known(self, topic: str) -> bool:
        """Whether the partitions of a topic are known."""
        return topic in self._topics and self._topics[topic].count > 0

    def why_unknown(
        self, topic: str, last_failure: str, *, in_time: bool, others_wait: bool
    ) -> PublishError | None:
        """The error of a result whose topic is unknown; None if it may wait longer (``in_time``).

        After an error of a topic, its metadata is not requested again unless ``others_wait``.
        """
        unknown = self._topics.get(topic)
        if unknown is None:
            return None
        rejected = unknown.error in _TOPIC_REJECTIONS
        if in_time and not rejected and self._refusal is None:
            return None
        if not others_wait:
            del self._topics[topic]
        if self._refusal is not None:
            return PublishError(topic, self._refusal)
        if rejected:
            return PublishError(topic, rejection(unknown.error, None))
        if unknown.error is ErrorCode.unknown_topic_or_partition:
            first = self._bootstrap[0]
            command = create_topics_command(first.host, first.port, [topic])
            return PublishError(topic, f"the topic does not exist: create it by `{command}`")
        return PublishError(topic, f"its partitions are unknown: {last_failure}")

    def leader(self, topic: ResultTopic, partition: int) -> Node | None:
        """The broker that leads a partition; None if there is none, or its address is unknown."""
        if partition >= len(topic.leaders):
            return None
        return self._nodes.get(topic.leaders[partition])

    def ids(self, queues: Iterable[PartitionQueue]) -> dict[str, bytes] | None:
        """The ids of the topics of these queues by their names; None if one is not known."""
        ids: dict[str, bytes] = {}
        for topic in dict.fromkeys(queue.partition.topic for queue in queues):
            topic_id = self._topics[topic].topic_id
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
        self._requested = True
        self._refusal = None
        self._due = _NEVER
        return MetadataRequest(topics=tuple(sorted(self._topics)))

    @property
    def due(self) -> float:
        """When the next request is due; infinite without a topic, and while one is in flight."""
        return self._due if self._topics and not self._requested else _NEVER

    def received(
        self,
        now: float,
        response: MetadataResponse | None,
        active: Mapping[PartitionQueue, ResultTopic],
        failed: Failed | None = None,
    ) -> None:
        """Apply the response to a request; None if it has ``failed``.

        Metadata is requested again after a backoff while an ``active`` queue has no leader.
        """
        self._requested = False
        if failed is not None and failed.kind in FATAL_FAILURES:
            self._refusal = failed.detail or failed.kind.value
        if response is None or response.error is not ErrorCode.none or not response.brokers:
            if response is not None and response.error is ErrorCode.rebootstrap_required:
                self._nodes = {}
            self._due = now + self._backoff.failed()
            return
        self._nodes = {
            each.node_id: Node(each.node_id, each.host, each.port) for each in response.brokers
        }
        for metadata in response.topics:
            if metadata.name in self._topics:
                self._topics[metadata.name].learn(metadata)
        missing = any(not topic.count for topic in self._topics.values())
        leaderless = any(
            self.leader(topic, queue.partition.partition) is None for queue, topic in active.items()
        )
        if missing or leaderless:
            self._due = now + self._backoff.failed()
        else:
            self._backoff.succeeded()
            self._due = min(self._due, now + self._metadata_max_age)

    def refresh(self, now: float) -> None:
        """Request metadata after a backoff, unless a request is due soon."""
        if self._due > now + _LONGEST_BACKOFF:
            self._due = now + self._backoff.failed()
