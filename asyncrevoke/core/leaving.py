"""The way out: unsubscribing and closing, bounded in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.effects import Complete

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.outbox import Outbox
    from asyncrevoke.errors import PartitionsError

_DRAIN_TIMER = "leave-drain"
_CLOSE_TIMER = "close"
_KEPT_FOR_LEAVING = 5.0


class Leaving:
    """Who waits for the group to be left, and until when.

    ``start_leaving(now, wait_for_tasks)`` releases everything and leaves; :meth:`left` is to be
    called when that is done. ``give_up(now)`` is called when closing has taken ``close_timeout``.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        start_leaving: Callable[[float, bool], None],
        give_up: Callable[[float], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._outbox = outbox
        self._close_timeout = config.close_timeout
        self._start_leaving = start_leaving
        self._give_up = give_up
        self._on_closed = on_closed
        self._tickets: list[int] = []
        # The first final commit that was refused while leaving.
        self._refusal: PartitionsError | None = None
        self._done = False
        # Whether fetch sessions are being ended, which closing waits for.
        self.sessions_end = False
        self.under_way = False
        self.closing = False
        self.closed = False

    def unsubscribe(self, now: float, ticket: int) -> None:
        """Leave, and answer ``ticket`` then."""
        self._tickets.append(ticket)
        self._leave(now, wait_for_tasks=True)

    def close(self, now: float, ticket: int, *, graceful: bool, joined: bool) -> None:
        """Leave for good, and answer ``ticket`` then; at once if nothing was ``joined``."""
        if self.closed:
            self._outbox.put(Complete(ticket))
            return
        self._tickets.append(ticket)
        if not self.closing:
            self.closing = True
            self._outbox.set_timer(_CLOSE_TIMER, now + self._close_timeout, self._too_long)
        self._outbox.wake()
        if joined:
            self._leave(now, wait_for_tasks=graceful)
        else:
            self.finish()

    def commit_refused(self, error: PartitionsError) -> None:
        """A final commit was refused: whoever waits for the end is told so."""
        if self.under_way and self._refusal is None:
            self._refusal = error

    def left(self) -> None:
        """The group was left, with everything released."""
        self._outbox.cancel_timer(_DRAIN_TIMER)
        self.under_way = False
        if not self.closing:
            self._answer()
        elif self.sessions_end:
            self._done = True
        else:
            self.finish()

    def sessions_ended(self) -> None:
        """All fetch sessions have ended."""
        self.sessions_end = False
        if self._done and not self.closed:
            self.finish()

    def finish(self) -> None:
        """Closed, whether the group was left or not."""
        self.closed = True
        self._outbox.cancel_timer(_DRAIN_TIMER)
        self._outbox.cancel_timer(_CLOSE_TIMER)
        self._on_closed()
        self._answer()

    def _leave(self, now: float, *, wait_for_tasks: bool) -> None:
        if wait_for_tasks:
            at = now + max(0.0, self._close_timeout - _KEPT_FOR_LEAVING)
            self._outbox.set_timer(_DRAIN_TIMER, at, self._stop_waiting)
        self.under_way = True
        self._start_leaving(now, wait_for_tasks)

    def _stop_waiting(self, now: float) -> None:
        self._outbox.emit("warning", "tasks have not ended in time; leaving without them")
        self._start_leaving(now, False)

    def _too_long(self, now: float) -> None:
        self._outbox.emit("error", "closing took longer than close_timeout; giving up")
        self._give_up(now)
        self.finish()

    def _answer(self) -> None:
        tickets, self._tickets = self._tickets, []
        error, self._refusal = self._refusal, None
        for ticket in tickets:
            self._outbox.put(Complete(ticket, error=error))
