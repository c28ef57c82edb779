"""Whether delivery pauses while the membership is not confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import CompleteRequest

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.membership.subscription_state import SubscriptionState


class SessionGuard:
    """With ``on_unconfirmed_membership="pause"``, no record is returned and no queued one started
    while the last request that was accepted as a member's is older than the session timeout. The
    partitions are kept, as the member may still be in the group."""

    def __init__(
        self, outbox: Outbox, config: ConsumerConfig, subscription: SubscriptionState
    ) -> None:
        self._outbox = outbox
        self._subscription = subscription
        # Whether this consumer pauses unconfirmed.
        self.is_enabled = config.on_unconfirmed_membership == "pause"
        self._pausing = False
        # Calls that wait for a confirmation.
        self._waiting: list[int] = []

    def pauses_delivery(self, now: float) -> bool:
        """Whether delivery pauses now."""
        membership = self._subscription.membership
        heard = membership.member_at
        unconfirmed = heard is not None and now - heard > membership.session
        if unconfirmed and not self._pausing:
            self._outbox.emit(log_events.NO_RECORDS_WHILE_UNCONFIRMED)
        self._pausing = unconfirmed
        return unconfirmed

    def may_begin_until(self, now: float) -> float:
        """Until when queued records may be started without asking again; before ``now``: none."""
        if not self.is_enabled:
            return float("inf")
        if self.pauses_delivery(now):
            return float("-inf")
        membership = self._subscription.membership
        heard = membership.member_at
        # A consumer that is not a member yet cannot have become one before ``now``.
        return max(now, (now if heard is None else heard) + membership.session)

    def wait(self, now: float, call_id: int) -> None:
        """Complete this call when the membership is confirmed."""
        self._waiting.append(call_id)
        self.resume_if_confirmed(now)

    def resume_if_confirmed(self, now: float) -> None:
        """Complete the calls that wait, if the membership is confirmed."""
        held = self._pausing
        if (held or self._waiting) and not self.pauses_delivery(now):
            waiting, self._waiting = self._waiting, []
            for call_id in waiting:
                self._outbox.put(CompleteRequest(call_id))
            if held:
                self._outbox.wake()
