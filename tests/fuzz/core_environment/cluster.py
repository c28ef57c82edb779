"""The topics of the cluster."""

from __future__ import annotations

from asyncrevoke.client.model import TopicPartition

TOPICS = {"orders": 3, "bills": 2}
PARTITIONS = tuple(
    TopicPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)
)
IDS = {topic: topic.encode().ljust(16, b"-") for topic in TOPICS}
