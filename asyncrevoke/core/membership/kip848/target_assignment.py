"""What a consumer group gives us, by topic ids, and what of it is known by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.protocol.messages import TopicIdPartitions


class Resolved(NamedTuple):
    """``kept`` may go on if we have it; ``usable`` may also be begun; the metadata must tell of
    what is ``missing`` before it can be begun."""

    kept: frozenset[TopicPartition]
    usable: frozenset[TopicPartition]
    missing: bool


class TargetAssignment:
    """The newest assignment. A topic that was deleted and created again has another id, so that
    neither an assignment nor an acknowledgement of the one is taken for the other."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self._partitions: tuple[TopicIdPartitions, ...] = ()
        # As they were known last: metadata that lags behind must not cost us a partition.
        self._names: dict[bytes, str] = {}
        self._ids: dict[str, bytes] = {}

    def replace(self, partitions: tuple[TopicIdPartitions, ...]) -> bool:
        """An assignment has come. Whether it is another one."""
        changed = sorted(partitions) != sorted(self._partitions)
        self._partitions = partitions
        return changed

    def clear(self) -> None:
        """We are no member any more."""
        self.replace(())

    def resolve(self) -> Resolved:
        """What the assignment means by the metadata as it is now."""
        kept: set[TopicPartition] = set()
        usable: set[TopicPartition] = set()
        missing = False
        known = self._cluster.names_by_id()
        for topic_id, numbers in self._partitions:
            name = known.get(topic_id)
            if name is not None:
                self._names[topic_id] = name
                self._ids[name] = topic_id
                there = self._cluster.partition_set(name)
                usable.update(TopicPartition(name, n) for n in numbers if n in there)
                missing = missing or not there >= frozenset(numbers)
            else:
                missing = True
                name = self._names.get(topic_id)
            if name is not None and self._ids.get(name) == topic_id:
                kept.update(TopicPartition(name, n) for n in numbers)
        return Resolved(frozenset(kept), frozenset(usable), missing)

    def owned(self, partitions: Iterable[TopicPartition]) -> tuple[TopicIdPartitions, ...]:
        """What to say that we own, where we have ``partitions``: those of them that were assigned
        to us, and all of the newest assignment, because what is not known by name yet may be begun
        before the coordinator has heard that we did without it."""
        topics: dict[bytes, set[int]] = {
            topic_id: set(numbers) for topic_id, numbers in self._partitions
        }
        for name, number in partitions:
            if (topic_id := self._ids.get(name)) is not None:
                topics.setdefault(topic_id, set()).add(number)
        return tuple((topic_id, tuple(sorted(topics[topic_id]))) for topic_id in sorted(topics))
