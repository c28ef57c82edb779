"""What is known of one topic, over all the answers that were about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.protocol.messages import PartitionMetadata, TopicMetadata

NO_ID = bytes(16)
# A broker that has just started may not know a topic yet: a second denial must come so much later.
_GONE_AFTER = 1.0


class PartitionLeader(NamedTuple):
    """The broker that leads a partition, and since which leader epoch (-1 unknown)."""

    node_id: int
    epoch: int


class KnownTopic:
    """What is known of one topic."""

    __slots__ = (
        "former_ids",
        "is_internal",
        "leaders",
        "missing_since",
        "numbers",
        "replicas",
        "topic_id",
    )

    def __init__(self, metadata: TopicMetadata) -> None:
        self.topic_id = metadata.topic_id
        self.former_ids: tuple[bytes, ...] = ()
        self.is_internal = metadata.is_internal
        self.leaders: dict[int, PartitionLeader] = {}
        # The brokers that have each partition; empty in a cluster without racks.
        self.replicas: dict[int, tuple[int, ...]] = {}
        self.numbers: tuple[int, ...] = ()
        # Since when answers deny it, or some of its partitions.
        self.missing_since: float | None = None

    def replace(self, former: KnownTopic) -> None:
        """It was created anew under the name of a topic that was deleted."""
        self.former_ids = (*former.former_ids, former.topic_id)

    def learn(
        self,
        now: float,
        metadata: TopicMetadata,
        partitions: Sequence[PartitionMetadata],
        replicas: dict[int, tuple[int, ...]],
    ) -> tuple[bool, bool]:
        """Take an answer in; whether the set of partitions has changed, and whether the answer
        leaves no doubt."""
        if self.topic_id == NO_ID:
            self.topic_id = metadata.topic_id
        self.is_internal = metadata.is_internal
        self.replicas = replicas
        self.update_leaders(partitions)
        numbers = tuple(sorted({partition.partition for partition in partitions}))
        if numbers == self.numbers:
            self.missing_since = None
            return False, True
        missing = [number for number in self.numbers if number not in numbers]
        if missing and not self.is_missing_for_long(now):
            merged = tuple(sorted({*self.numbers, *numbers}))
            grown, self.numbers = merged != self.numbers, merged
            return grown, False
        self.missing_since = None
        self.numbers = numbers
        for number in missing:
            del self.leaders[number]
        return True, True

    def update_leaders(self, partitions: Sequence[PartitionMetadata]) -> None:
        """Learn the leaders that an answer names."""
        for partition in partitions:
            known = self.leaders.get(partition.partition)
            # An answer of a broker that lags behind does not undo what a newer one said.
            if known is not None and -1 < partition.leader_epoch < known.epoch:
                continue
            epoch = partition.leader_epoch
            if epoch < 0 and known is not None and known.node_id == partition.leader_id:
                epoch = known.epoch
            if known is not None and known == (partition.leader_id, epoch):
                continue
            self.leaders[partition.partition] = PartitionLeader(partition.leader_id, epoch)

    def is_replaced_by(self, metadata: TopicMetadata) -> bool:
        """Whether this answer is about a topic that was created anew under the name (KIP-516)."""
        return (
            self.topic_id != metadata.topic_id
            and NO_ID not in (self.topic_id, metadata.topic_id)
            and metadata.topic_id not in self.former_ids
        )

    def is_missing_for_long(self, now: float) -> bool:
        """An answer denies it, or partitions of it; whether that is to be believed."""
        if self.missing_since is None:
            self.missing_since = now
            return False
        return now - self.missing_since >= _GONE_AFTER
