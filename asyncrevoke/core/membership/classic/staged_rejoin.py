"""Handing over what has drained, without waiting for the slowest partition of its round.

A cooperative member whose round drains is stable at the broker, and may join again at any time, if
it lists as owned what it still holds: that is what it does when somebody else makes the group
rebalance. So, when something has been released that the group still believes to be ours, it makes
the group rebalance itself: not as often as it could, because every member takes part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.core.io.outbox import Outbox
    from asyncrevoke.core.membership.classic.reactions import StagedRejoinReactions

_TIMER = "staged-release"
_LEAST_INTERVAL = 1.0


class StagedRejoin:
    """When the next staged join may be sent; ``member`` sends it.

    From one join of ours to a staged one pass at least 1 second and twice the time that the last
    rebalance took us, whoever had begun it: a group spends at most half of its time on these.
    """

    def __init__(self, outbox: Outbox, member: StagedRejoinReactions) -> None:
        self._outbox = outbox
        self._member = member
        self._joined_at = float("-inf")
        self._took = 0.0

    def joining(self, now: float) -> None:
        """A JoinGroup is sent for whatever reason: it tells all that a staged one would."""
        self._joined_at = now
        self._outbox.cancel_timer(_TIMER)

    def synced(self, now: float) -> None:
        """That rebalance is over."""
        self._took = now - self._joined_at

    def released(self, now: float) -> None:
        """There is something to hand over, and others still drain."""
        if not self._outbox.has_timer(_TIMER):
            at = self._joined_at + max(_LEAST_INTERVAL, 2 * self._took)
            self._outbox.set_timer(_TIMER, max(now, at), self._member.staged_rejoin_due)

    def cancel(self) -> None:
        """There is nothing to hand over any more."""
        self._outbox.cancel_timer(_TIMER)
