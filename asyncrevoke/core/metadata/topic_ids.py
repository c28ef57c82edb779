"""Which topics are still those that they were: a name can come back as another topic (KIP-516)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.model import TopicPartition


class TopicIds:
    """The ids that the topics had when the cluster last changed."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self._known: dict[str, bytes | None] = {}

    def exists(self, partition: TopicPartition) -> bool:
        """Whether it is still the partition that it was. One of a topic that was deleted and
        created again is another; of a topic that the cluster has never told, nothing is known."""
        if self._cluster.partitions(partition.topic) is None:
            return partition.topic not in self._known
        topic_id = self._cluster.topic_id(partition.topic)
        known_id = self._known.get(partition.topic, topic_id)
        numbers = self._cluster.partition_set(partition.topic)
        return partition.partition in numbers and known_id in (topic_id, None)

    def learn(self) -> None:
        """Take the cluster's topics for known. Those that have gone are forgotten: a new one must
        not be taken for the old one."""
        self._known = {topic: self._cluster.topic_id(topic) for topic in self._cluster.topics()}
