"""The existing topics and their partitions' logs. A topic that is deleted and created again
gets another id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from asyncrevoke.model import TopicPartition
from asyncrevoke.testing.fake_kafka.consumer_group_member import by_key, topic_id
from asyncrevoke.testing.fake_kafka.partition_log import PartitionLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from asyncrevoke.protocol.messages import TopicIdPartitions


class Topics(Mapping[str, list[PartitionLog]]):
    """Logs by topic name and partition.

    ``make_log`` creates a log, given the id of its leader. A topic that was deleted and created
    again has the same name, but another key and another id.
    """

    def __init__(self, make_log: Callable[[int], PartitionLog] = PartitionLog) -> None:
        self._make_log = make_log
        self._logs: dict[str, list[PartitionLog]] = {}
        # The number of deletions of each topic.
        self._deleted: dict[str, int] = {}
        self._partitions: list[TopicPartition] = []

    def __getitem__(self, name: str) -> list[PartitionLog]:
        return self._logs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._logs)

    def __len__(self) -> int:
        return len(self._logs)

    def create(self, name: str, partitions: int, brokers: int) -> None:
        """Create a topic with this number of partitions, or add some. Brokers lead them in turn."""
        logs = self._logs.setdefault(name, [])
        while len(logs) < partitions:
            logs.append(self._make_log(len(logs) % brokers))
        self._list_partitions()

    def delete(self, name: str) -> None:
        """Delete a topic. Fetches that wait for its records get a response."""
        logs = self._logs.pop(name)
        self._deleted[name] = self._deleted.get(name, 0) + 1
        self._list_partitions()
        for log in logs:
            log.wake()

    def _list_partitions(self) -> None:
        self._partitions = [
            TopicPartition(topic, number)
            for topic, logs in self._logs.items()
            for number in range(len(logs))
        ]

    def partitions(self) -> list[TopicPartition]:
        """All partitions of all topics."""
        return self._partitions

    def count_of(self, topic: str) -> int:
        """The number of partitions of a topic."""
        return len(self._logs.get(topic, ()))

    def log(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, None if there is no such partition."""
        logs = self._logs.get(partition.topic, [])
        return logs[partition.partition] if 0 <= partition.partition < len(logs) else None

    def key(self, topic: str) -> str:
        """The key of the topic of this name, or of the next one with this name."""
        deleted = self._deleted.get(topic, 0)
        return f"{topic}+{deleted}" if deleted else topic

    def id_of(self, topic: str) -> bytes:
        """The id of the existing topic of this name."""
        return topic_id(self.key(topic))

    def has(self, topic: str, ids: Mapping[str, bytes] | None) -> bool:
        """Whether a topic of this name exists, with the id in ``ids``. Without ``ids``, each id is
        right."""
        return ids is None or (topic in self._logs and ids[topic] == self.id_of(topic))

    def by_name(self, partitions: Iterable[TopicIdPartitions]) -> frozenset[TopicPartition]:
        """Partitions by the names of their topics, without those of deleted topics."""
        named = {self.key(topic): topic for topic in self._logs}
        return frozenset(
            TopicPartition(named[key], number) for key, number in by_key(partitions) if key in named
        )
