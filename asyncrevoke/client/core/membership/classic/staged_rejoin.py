"""Staged joins: they hand over released partitions before the slowest of a round has drained.

A cooperative member that drains is stable at the broker, and may join again at any time with what
it still owns. So when it has released something that the group still counts as its own, it makes
the group rebalance; not too often, because every member takes part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.membership.classic.reactions import StagedRejoinReactions

_TIMER = "staged-release"
_LEAST_INTERVAL = 1.0


class StagedRejoin:
    """When the next staged join may be sent; ``member`` sends it.

    At least 1 second, and twice the time of the last rebalance, after any join of the member: so a
    group spends at most half of its time on staged joins.
    """

    def __init__(self, outbox: Outbox, member: StagedRejoinReactions) -> None:
        self._outbox = outbox
        self._member = member
        self._joined_at = float("-inf")
        self._took = 0.0

    def joining(self, now: float) -> None:
        """A JoinGroup is sent, for any reason."""
        self._joined_at = now
        self._outbox.cancel_timer(_TIMER)

    def synced(self, now: float) -> None:
        """That rebalance is over."""
        self._took = now - self._joined_at

    def released(self, now: float) -> None:
        """Something is released, and other partitions still drain."""
        if not self._outbox.has_timer(_TIMER):
            at = self._joined_at + max(_LEAST_INTERVAL, 2 * self._took)
            self._outbox.set_timer(_TIMER, max(now, at), self._member.staged_rejoin_due)

    def cancel(self) -> None:
        """There is nothing to hand over any more."""
        self._outbox.cancel_timer(_TIMER)
