"""The existing topics and their partitions' logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.testing.fake_kafka.consumer_group_member import topic_id
from asyncrevoke.testing.fake_kafka.partition_log import PartitionLog

LogT = TypeVar("LogT", bound=PartitionLog)


class Topics(Mapping[str, list[LogT]]):
    """Logs by topic name and partition. ``make_log`` creates a log, given the number of its
    partition."""

    def __init__(self, make_log: Callable[[int], LogT]) -> None:
        self._make_log = make_log
        self._logs: dict[str, list[LogT]] = {}
        self._partitions: list[TopicPartition] = []

    def __getitem__(self, name: str) -> list[LogT]:
        return self._logs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._logs)

    def __len__(self) -> int:
        return len(self._logs)

    def create(self, name: str, partitions: int) -> None:
        """Create a topic with this number of partitions, or add some."""
        logs = self._logs.setdefault(name, [])
        while len(logs) < partitions:
            logs.append(self._make_log(len(logs)))
        self._list_partitions()

    def _list_partitions(self) -> None:
        self._partitions = [
            TopicPartition(topic, number)
            for topic, logs in self._logs.items()
            for number in range(len(logs))
        ]

    def partitions(self) -> list[TopicPartition]:
        """All partitions of all topics."""
        return self._partitions

    def log(self, partition: TopicPartition) -> LogT | None:
        """The log of a partition, None if there is no such partition."""
        logs = self._logs.get(partition.topic, [])
        return logs[partition.partition] if 0 <= partition.partition < len(logs) else None

    def id_of(self, topic: str) -> bytes:
        """The id of the existing topic of this name."""
        return topic_id(topic)

    def has(self, topic: str, ids: Mapping[str, bytes] | None) -> bool:
        """Whether a topic of this name exists, with the id in ``ids``. Without ``ids``, each id is
        right."""
        return ids is None or (topic in self._logs and ids[topic] == self.id_of(topic))
