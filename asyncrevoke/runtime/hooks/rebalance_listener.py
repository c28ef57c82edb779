"""What users override to hear of rebalances."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from asyncrevoke.model import BlockingRecord, TopicPartition

Done: TypeAlias = "Awaitable[None] | None"


class RebalanceListener:
    """Override what you want to hear of, as ``def`` or ``async def`` (KIP-429).

    Calls are notifications, one after the other, lost before revoked before assigned, never with
    an empty set; by then it has happened. An exception changes nothing: all callbacks run, then
    the next step raises the first one, and the step after it goes on. Records may be delivered
    while an ``async def`` still runs.
    """

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> Done:
        """These are ours now, and their positions are known."""

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> Done:
        """These are given up, their offsets committed: another member may have them now."""

    def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> Done:
        """These were taken away, and nothing of them can be committed any more.

        Not overridden, it calls :meth:`on_partitions_revoked`.
        """
        return self.on_partitions_revoked(lost)

    def on_revocation_delayed(self, blocking: Sequence[BlockingRecord]) -> Done:
        """Partitions that are to be given up wait for these records, the oldest of each partition.

        Called for a partition when it has waited for 5 s, and then every 30 s; also while the
        consumer closes.
        """
