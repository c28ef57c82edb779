"""What users override to hear of rebalances."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from asyncrevoke.model import TopicPartition

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
