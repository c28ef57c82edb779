"""What follows in a share group from what the driver reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.runtime.session.reactions import SessionReactions

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.effects import Emit
    from asyncrevoke.client.core.share_core import ShareCore
    from asyncrevoke.client.model import Record
    from asyncrevoke.client.runtime.session.parts import SessionHooks

# A lock is renewed at half of its time: then a loop that is blocked for as long loses it.
_RENEWED_AFTER = 0.5


class ShareReactions(SessionReactions):
    """Cancels the calls of lost records, and warns when locks were not renewed in time."""

    def __init__(self, hooks: SessionHooks, core: ShareCore) -> None:
        super().__init__(hooks)
        self._hooks = hooks
        self._core = core
        # The handlers that ran when the loop was last seen running.
        self._ran: tuple[str, ...] = ()

    def core_reported(self, event: Emit) -> None:
        """The core has reported an event."""
        super().core_reported(event)
        if event.event == log_events.SHARE_LOCKS_LOST.name:
            lost = frozenset(self._core.take_lost())
            if not lost:
                return

            def is_lost(record: Record) -> bool:
                return (record.acquisition, record.offset) in lost

            for owner in self._hooks.owners:
                owner.lose_records(is_lost)

    def ticked(self, late: float) -> None:
        """A second or less has passed."""
        super().ticked(late)
        ran = tuple(dict.fromkeys(call.handler for call in self._hooks.status.running()))
        lock = self._core.held.lock_timeout
        if lock is not None and late > lock * _RENEWED_AFTER:
            log_events.SHARE_LOOP_BLOCKED.write_to(
                self._hooks.log,
                seconds=round(late, 3),
                lock=lock,
                handlers=list(dict.fromkeys((*self._ran, *ran))),
            )
        self._ran = ran
