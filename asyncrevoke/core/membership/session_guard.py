"""Whether records are handed out while nobody knows if the group still takes us for a member."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.io.effects import CompleteRequest

if TYPE_CHECKING:
    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.outbox import Outbox
    from asyncrevoke.core.membership.subscription_state import SubscriptionState


class SessionGuard:
    """With ``on_unconfirmed_membership="pause"`` no record is returned, and no queued one begins,
    while the last request that the coordinator answered as a member's is older than the session.
    The member may still be in the group, so its partitions are kept.
    """

    def __init__(
        self, outbox: Outbox, config: ConsumerConfig, subscription: SubscriptionState
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._subscription = subscription
        self._pausing = False
        # The calls of those that wait for a confirmation.
        self._waiting: list[int] = []

    @property
    def is_enabled(self) -> bool:
        """Whether this consumer wants to wait."""
        return self._config.on_unconfirmed_membership == "pause"

    def pauses_delivery(self, now: float) -> bool:
        """Whether records have to wait now."""
        membership = self._subscription.membership
        heard = membership.member_at
        suspect = heard is not None and now - heard > membership.session
        if suspect and not self._pausing:
            self._outbox.emit(
                "warning",
                "no records until the coordinator confirms the membership",
                group=self._config.group_id,
            )
        self._pausing = suspect
        return suspect

    def may_begin_until(self, now: float) -> float:
        """Until when queued records may begin without asking again; before ``now``: none may."""
        if not self.is_enabled:
            return float("inf")
        if self.pauses_delivery(now):
            return float("-inf")
        membership = self._subscription.membership
        heard = membership.member_at
        # Where we are no member yet, we cannot have become one before ``now``.
        return max(now, (now if heard is None else heard) + membership.session)

    def wait(self, now: float, call_id: int) -> None:
        """Answer this call as soon as records do not have to wait."""
        self._waiting.append(call_id)
        self.resume_if_confirmed(now)

    def resume_if_confirmed(self, now: float) -> None:
        """Let those that wait look again, if what they waited for has come."""
        held = self._pausing
        if (held or self._waiting) and not self.pauses_delivery(now):
            waiting, self._waiting = self._waiting, []
            for call_id in waiting:
                self._outbox.put(CompleteRequest(call_id))
            if held:
                self._outbox.wake()
