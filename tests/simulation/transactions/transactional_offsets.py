"""Offsets of transactions that have not ended, as the group coordinator keeps them (KIP-447)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncrevoke.client.protocol.messages import CommitEntry


@dataclass(slots=True)
class _Pending:
    """The offsets of one producer, each with its place in the log of the group."""

    client: int
    offsets: dict[TopicPartition, tuple[int, OffsetAndMetadata]] = field(
        default_factory=dict[TopicPartition, tuple[int, OffsetAndMetadata]]
    )


class TransactionalOffsets:
    """``stored`` returns the committed offsets of the group, to which markers add."""

    def __init__(self, stored: Callable[[], dict[TopicPartition, OffsetAndMetadata]]) -> None:
        self._stored = stored
        self._pending: dict[int, _Pending] = {}
        self._appended = 0
        # The place in the log of the last OffsetCommit, which wins over offsets before it.
        self._committed_at: dict[TopicPartition, int] = {}

    def is_pending(self, partition: TopicPartition) -> bool:
        """Whether a transaction that has not ended has an offset of this partition."""
        return any(partition in pending.offsets for pending in self._pending.values())

    def of(self, producer_id: int) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets of the open transaction of this producer."""
        pending = self._pending.get(producer_id)
        found = {} if pending is None else pending.offsets
        return {partition: offset for partition, (_, offset) in found.items()}

    def client_of(self, producer_id: int) -> int:
        """Who has sent them; -1 if there are none."""
        pending = self._pending.get(producer_id)
        return -1 if pending is None else pending.client

    def add(self, producer_id: int, client: int, entries: Iterable[CommitEntry]) -> None:
        """The group has accepted these offsets of a transaction."""
        pending = self._pending.setdefault(producer_id, _Pending(client))
        pending.client = client
        for entry in entries:
            self._appended += 1
            offset = OffsetAndMetadata(entry.offset, entry.metadata, entry.leader_epoch)
            pending.offsets[entry.partition] = self._appended, offset

    def offset_committed(self, partition: TopicPartition) -> None:
        """An OffsetCommit was stored."""
        self._appended += 1
        self._committed_at[partition] = self._appended

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        for pending in self._pending.values():
            for partition in [tp for tp in pending.offsets if tp.topic == topic]:
                del pending.offsets[partition]

    def mark(
        self, producer_id: int, *, committed: bool
    ) -> dict[TopicPartition, tuple[OffsetAndMetadata | None, OffsetAndMetadata]]:
        """Write the marker of a producer. Returns what it has stored, each after the offset
        before."""
        pending = self._pending.pop(producer_id, None)
        changed: dict[TopicPartition, tuple[OffsetAndMetadata | None, OffsetAndMetadata]] = {}
        if pending is None or not committed:
            return changed
        stored = self._stored()
        for partition, (place, offset) in pending.offsets.items():
            if place > self._committed_at.get(partition, 0):
                self._committed_at[partition] = place
                changed[partition] = stored.get(partition), offset
                stored[partition] = offset
        return changed
