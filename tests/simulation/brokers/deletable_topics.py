"""Topics that are deleted, and created again with another id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.brokers.changing_log import ChangingLog

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.testing.fake_kafka.consumer_group import by_key, topic_id
from asyncrevoke.testing.fake_kafka.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.protocol.messages import TopicIdPartitions


class DeletableTopics(Topics[ChangingLog]):
    """A topic that was deleted and created again has the same name, but another key and another id.
    ``brokers`` lead the partitions of a new topic in turn."""

    def __init__(self, brokers: int) -> None:
        super().__init__(lambda number: ChangingLog(number % brokers))
        # The number of deletions of each topic.
        self._deleted: dict[str, int] = {}

    def delete(self, name: str) -> None:
        """Delete a topic. Fetches that wait for its records get a response."""
        logs = self._logs.pop(name)
        self._deleted[name] = self._deleted.get(name, 0) + 1
        self._list_partitions()
        for log in logs:
            log.wake()

    def count_of(self, topic: str) -> int:
        """The number of partitions of a topic."""
        return len(self._logs.get(topic, ()))

    def key(self, topic: str) -> str:
        """The key of the topic of this name, or of the next one with this name."""
        deleted = self._deleted.get(topic, 0)
        return f"{topic}+{deleted}" if deleted else topic

    def id_of(self, topic: str) -> bytes:
        """The id of the existing topic of this name."""
        return topic_id(self.key(topic))

    def by_name(self, partitions: Iterable[TopicIdPartitions]) -> frozenset[TopicPartition]:
        """Partitions by the names of their topics, without those of deleted topics."""
        named = {self.key(topic): topic for topic in self._logs}
        return frozenset(
            TopicPartition(named[key], number) for key, number in by_key(partitions) if key in named
        )
