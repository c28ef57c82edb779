"""Partitions that are not fetched for a time, after an error of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from asyncrevoke.client.protocol.share_messages import TopicIdPartition

_FIRST_BACKOFF = 0.5
_LONGEST_BACKOFF = 5.0


class PartitionDelays:
    """Of one share session. Each error in a row delays its partition for longer."""

    def __init__(self) -> None:
        self._until: dict[TopicIdPartition, float] = {}
        self._backoffs: dict[TopicIdPartition, Backoff] = {}

    def __contains__(self, partition: TopicIdPartition) -> bool:
        return partition in self._until

    def delay(self, now: float, partition: TopicIdPartition) -> None:
        """An error of this partition has come."""
        backoff = self._backoffs.setdefault(partition, Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF))
        self._until[partition] = now + backoff.failed()

    def served(self, partition: TopicIdPartition) -> None:
        """The broker has responded without an error."""
        self._until.pop(partition, None)
        self._backoffs.pop(partition, None)

    def keep(self, partitions: Collection[TopicIdPartition]) -> None:
        """Forget all other partitions."""
        for partition in self._until.keys() - partitions:
            self.served(partition)

    def due(
        self, now: float, partitions: Mapping[TopicIdPartition, str]
    ) -> tuple[dict[TopicIdPartition, str], float | None]:
        """Those of ``partitions`` that may be fetched, and when the first other one may be."""
        if not self._until:
            return dict(partitions), None
        waiting = {partition: at for partition, at in self._until.items() if now < at}
        due = {p: name for p, name in partitions.items() if p not in waiting}
        return due, min(waiting.values(), default=None)
