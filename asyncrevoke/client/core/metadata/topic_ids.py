"""Which topics are still the same: a deleted topic's name can be used again (KIP-516)."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.model import TopicPartition


class TopicIds:
    """The ids that the topics had when the cluster last changed."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self._known: dict[str, bytes | None] = {}

    def exists(self, partition: TopicPartition) -> bool:
        """Whether it is still the same partition, and not one of a recreated topic. True for a
        topic that no response has had yet."""
        if self._cluster.partitions(partition.topic) is None:
            return partition.topic not in self._known
        topic_id = self._cluster.topic_id(partition.topic)
        known_id = self._known.get(partition.topic, topic_id)
        numbers = self._cluster.partition_set(partition.topic)
        return partition.partition in numbers and known_id in (topic_id, None)

    def learn(self) -> None:
        """Remember the present topics, and forget those that were deleted."""
        self._known = {topic: self._cluster.topic_id(topic) for topic in self._cluster.topics()}


def topic_id_text(topic_id: bytes) -> str:
    """An id in the notation of Kafka's commands."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
