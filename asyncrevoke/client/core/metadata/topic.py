"""The metadata of one topic, from all responses that name it, and whether it is still the same: a
deleted topic's name can be used again (KIP-516)."""

from __future__ import annotations

import base64
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from asyncrevoke.client.model import TopicPartition, Value
from asyncrevoke.client.protocol.messages import ErrorCode, PartitionMetadata, TopicMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata

NO_ID = bytes(16)
_LEADER_ID = attrgetter("leader_id")
# A broker that has just started may not know a topic yet. A topic is removed if another response
# lacks it so many seconds later.
_GONE_AFTER = 1.0


class KnownPartitions(Value, frozen=True):
    """Numbers of partitions, ascending, with their leaders, and the ids of all leaders."""

    numbers: tuple[int, ...]
    leaders: dict[int, PartitionMetadata]
    leader_ids: frozenset[int]


class TopicPartitions(Value, frozen=True):
    """The partitions of a topic that a response names. Their leaders are the latest that are known,
    because a broker that lags behind may name former ones."""

    numbers: tuple[int, ...]
    leaders: dict[int, PartitionMetadata]
    leader_ids: frozenset[int]
    replicas: dict[int, tuple[int, ...]]
    # These and the known ones that the response does not name; None if it names all.
    missing: KnownPartitions | None


class KnownTopic:
    """What is known of one topic."""

    def __init__(self, metadata: TopicMetadata) -> None:
        self.topic_id = metadata.topic_id
        self.former_ids: tuple[bytes, ...] = ()
        self.is_internal = metadata.is_internal
        self.leaders: dict[int, PartitionMetadata] = {}
        self.leader_ids: frozenset[int] = frozenset()
        # The brokers that have each partition; empty in a cluster without racks.
        self.replicas: dict[int, tuple[int, ...]] = {}
        self.numbers: tuple[int, ...] = ()
        # Since when responses lack it, or some of its partitions.
        self.missing_since: float | None = None

    def replace(self, former: KnownTopic) -> None:
        """It was created anew under the name of a topic that was deleted."""
        self.former_ids = (*former.former_ids, former.topic_id)

    def learn(
        self, now: float, metadata: TopicMetadata, partitions: TopicPartitions
    ) -> tuple[bool, bool]:
        """Apply a response. Returns whether the set of partitions has changed, and whether the
        response names all known partitions."""
        if self.topic_id == NO_ID:
            self.topic_id = metadata.topic_id
        self.is_internal = metadata.is_internal
        self.replicas = partitions.replicas
        missing = partitions.missing
        if missing is not None and not self.is_missing_for_long(now):
            self.leaders, self.leader_ids = missing.leaders, missing.leader_ids
            grown, self.numbers = missing.numbers != self.numbers, missing.numbers
            return grown, False
        self.leaders, self.leader_ids = partitions.leaders, partitions.leader_ids
        self.missing_since = None
        changed, self.numbers = partitions.numbers != self.numbers, partitions.numbers
        return changed, True

    def set_leader(self, known: PartitionMetadata, leader_id: int, leader_epoch: int) -> None:
        """Set another leader of a known partition."""
        leader = replace(
            known, error=ErrorCode.none, leader_id=leader_id, leader_epoch=leader_epoch
        )
        self.leaders[known.partition] = leader
        # The next metadata response removes what is not a leader any more.
        self.leader_ids |= {leader_id}

    def is_replaced_by(self, metadata: TopicMetadata) -> bool:
        """Whether this response names a topic that was created anew under the name (KIP-516)."""
        return (
            self.topic_id != metadata.topic_id
            and NO_ID not in (self.topic_id, metadata.topic_id)
            and metadata.topic_id not in self.former_ids
        )

    def is_missing_for_long(self, now: float) -> bool:
        """A response lacks the topic or some of its partitions. Returns whether responses have for
        long enough to remove them."""
        if self.missing_since is None:
            self.missing_since = now
            return False
        return now - self.missing_since >= _GONE_AFTER


def read_topics(
    topics: Iterable[TopicMetadata],
    wanted: frozenset[str] | None,
    known: Mapping[str, KnownTopic],
    *,
    with_replicas: bool,
) -> dict[str, tuple[TopicMetadata, TopicPartitions | None]]:
    """The topics of a response that were asked for (``wanted``; None: all), with their partitions
    unless the response has an error instead."""
    found: dict[str, tuple[TopicMetadata, TopicPartitions | None]] = {}
    for metadata in topics:
        name = metadata.name
        if wanted is not None and name not in wanted:
            continue
        if metadata.error is not ErrorCode.none:
            found[name] = (metadata, None)
            continue
        topic = known.get(name)
        if topic is not None and topic.is_replaced_by(metadata):
            topic = None
        found[name] = (metadata, _read_partitions(metadata, topic, with_replicas))
    return found


def _read_partitions(
    metadata: TopicMetadata, known: KnownTopic | None, with_replicas: bool
) -> TopicPartitions:
    # Runs on the event loop: no object is made for a partition.
    leaders = {partition.partition: partition for partition in metadata.partitions}
    if len(leaders) < len(metadata.partitions) or (leaders and min(leaders) < 0):
        leaders = _distinct(metadata.partitions)
    replicas = (
        {number: leader.replicas for number, leader in leaders.items()} if with_replicas else {}
    )
    former: Mapping[int, PartitionMetadata] = {} if known is None else known.leaders
    leaders |= _still_led(former, leaders)
    return TopicPartitions(
        tuple(sorted(leaders)),
        leaders,
        _leader_ids(leaders),
        replicas,
        None if former.keys() <= leaders.keys() else _with_missing(former, leaders),
    )


def _distinct(partitions: Iterable[PartitionMetadata]) -> dict[int, PartitionMetadata]:
    """By number, the latest of each; negative numbers are left out."""
    found: dict[int, PartitionMetadata] = {}
    for partition in partitions:
        if partition.partition >= 0:
            named = {partition.partition: partition}
            found |= named | _still_led(found, named)
    return found


def _still_led(
    former: Mapping[int, PartitionMetadata], leaders: Mapping[int, PartitionMetadata]
) -> dict[int, PartitionMetadata]:
    """The known leaders that ``leaders`` does not supersede: a broker that lags behind does not
    undo what a newer one said, and an epoch is not forgotten."""
    kept: dict[int, PartitionMetadata] = {}
    if not former:
        return kept
    for number, leader in leaders.items():
        last = former.get(number)
        if last is None:
            continue
        epoch = leader.leader_epoch
        if epoch < last.leader_epoch and (epoch >= 0 or last.leader_id == leader.leader_id):
            kept[number] = last
    return kept


def _with_missing(
    former: Mapping[int, PartitionMetadata], leaders: Mapping[int, PartitionMetadata]
) -> KnownPartitions:
    merged = {**former, **leaders}
    return KnownPartitions(tuple(sorted(merged)), merged, _leader_ids(merged))


def _leader_ids(leaders: Mapping[int, PartitionMetadata]) -> frozenset[int]:
    return frozenset(map(_LEADER_ID, leaders.values()))


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
