"""Which partitions were created since the subscription to their topic began.

Records of these were all written while the group consumed the topic, so ``auto_offset_reset`` does
not skip them (``docs/internals/decisions/consumer.md``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.model import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.model import TopicPartition


class _Beginning(Value, frozen=True):
    """A topic when its subscription began: the number of its partitions, and its id if brokers send
    ids."""

    partitions: int
    topic_id: bytes | None


_ABSENT = _Beginning(0, None)


class AddedPartitions:
    """Remembers how many partitions each subscribed topic had.

    Only what a metadata response has said counts: a topic of which none has come yet, or that was
    rejected, has no added partitions.
    """

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self._beginnings: dict[str, _Beginning] = {}
        # Subscribed topics of which no response has come yet.
        self._unknown: dict[str, None] = {}
        self._awaits_listing = False

    def __contains__(self, partition: TopicPartition) -> bool:
        beginning = self._beginnings.get(partition.topic)
        return beginning is not None and partition.partition >= beginning.partitions

    def subscribe(self, topics: Iterable[str]) -> None:
        """These topics are subscribed to by their names from now on; those that were before keep
        their beginning."""
        before, self._beginnings = self._beginnings, {}
        self._awaits_listing = False
        self._unknown = {}
        for topic in topics:
            if topic in before:
                self._beginnings[topic] = before[topic]
            else:
                self._unknown[topic] = None

    def subscribe_pattern(self) -> None:
        """Topics are subscribed to by a pattern from now on: those that match in the next response
        that lists all topics, and later ones."""
        self._beginnings = {}
        self._unknown = {}
        self._awaits_listing = True

    def matched(self, topics: frozenset[str]) -> None:
        """These topics match the pattern now."""
        if self._cluster.named_topics is not None:
            return
        for topic in self._beginnings.keys() - topics:
            del self._beginnings[topic]
        for topic in topics - self._beginnings.keys():
            self._beginnings[topic] = self._present(topic) if self._awaits_listing else _ABSENT
        self._awaits_listing = False

    def metadata_received(self) -> None:
        """A metadata response has come: the beginnings of more topics may be known."""
        if not self._unknown:
            return
        missing = self._cluster.missing_topics()
        for topic in list(self._unknown):
            if self._cluster.partitions(topic) is not None:
                self._beginnings[topic] = self._present(topic)
                del self._unknown[topic]
            elif topic in missing:
                self._beginnings[topic] = _ABSENT
                del self._unknown[topic]

    def topics_changed(self) -> None:
        """Topics or partitions were created or deleted."""
        for topic, beginning in self._beginnings.items():
            topic_id = self._cluster.topic_id(topic)
            is_deleted = self._cluster.partitions(topic) is None
            is_another = None not in (topic_id, beginning.topic_id) and (
                topic_id != beginning.topic_id
            )
            if is_deleted or is_another:
                self._beginnings[topic] = _ABSENT

    def _present(self, topic: str) -> _Beginning:
        numbers = self._cluster.partitions(topic) or ()
        return _Beginning(max(numbers, default=-1) + 1, self._cluster.topic_id(topic))
