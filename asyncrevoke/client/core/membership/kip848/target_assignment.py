"""The assignment of a consumer group by topic ids, and its partitions by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.protocol.messages import TopicIdPartitions


class Resolved(NamedTuple):
    """``usable`` may be started; ``kept`` are these and the live ones that may stay assigned.
    ``missing``: the ids of topics of which the metadata lack a partition, with the names that are
    known. ``internal``: topics of Kafka's own that are assigned
    and not read."""

    kept: frozenset[TopicPartition]
    usable: frozenset[TopicPartition]
    missing: dict[bytes, str | None]
    internal: frozenset[str]


class TargetAssignment:
    """The newest assignment. A topic that was deleted and recreated has another id, so that one is
    not taken for the other."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self._partitions: tuple[TopicIdPartitions, ...] = ()
        # The last known names: metadata that lag behind must not lose a partition.
        self._names: dict[bytes, str] = {}
        self._ids: dict[str, bytes] = {}

    def replace(self, partitions: tuple[TopicIdPartitions, ...]) -> bool:
        """Set the assignment. Returns whether it has changed."""
        changed = sorted(partitions) != sorted(self._partitions)
        self._partitions = partitions
        return changed

    def resolve(self, live: Iterable[TopicPartition], subscribed: Container[str]) -> Resolved:
        """The assignment by the present metadata; ``live`` are the partitions of this member.

        The broker's pattern leaves no internal topic out (KIP-848), as the client's patterns do.
        Partitions of those that are not ``subscribed`` to by name are acknowledged, not read.
        """
        usable: set[TopicPartition] = set()
        assigned: dict[str, set[int]] = {}
        internal: set[str] = set()
        missing: dict[bytes, str | None] = {}
        known = self._cluster.names_by_id()
        for topic_id, numbers in self._partitions:
            name = known.get(topic_id)
            if name is not None and name not in subscribed and self._cluster.is_internal(name):
                internal.add(name)
                continue
            if name is not None:
                self._names[topic_id] = name
                self._ids[name] = topic_id
                there = self._cluster.partition_set(name)
                usable.update(TopicPartition(name, n) for n in frozenset(numbers) & there)
                if not there >= frozenset(numbers):
                    missing[topic_id] = name
            else:
                name = missing[topic_id] = self._names.get(topic_id)
            if name is not None and self._ids.get(name) == topic_id:
                assigned.setdefault(name, set()).update(numbers)
        kept = usable.union(tp for tp in live if tp.partition in assigned.get(tp.topic, ()))
        return Resolved(frozenset(kept), frozenset(usable), missing, frozenset(internal))

    def owned(self, partitions: Iterable[TopicPartition]) -> tuple[TopicIdPartitions, ...]:
        """What to report as owned with ``partitions``: those that were assigned, and all of
        the newest assignment, as unknown topics may be started before the coordinator gets it."""
        topics: dict[bytes, set[int]] = {
            topic_id: set(numbers) for topic_id, numbers in self._partitions
        }
        for name, number in partitions:
            if (topic_id := self._ids.get(name)) is not None:
                topics.setdefault(topic_id, set()).add(number)
        return tuple((topic_id, tuple(sorted(topics[topic_id]))) for topic_id in sorted(topics))
