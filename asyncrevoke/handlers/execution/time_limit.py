"""The time limit of one call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from asyncrevoke.client.errors import HandlerTimeoutError
from asyncrevoke.client.runtime.session.status import HANDLER_GRACE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncrevoke.handlers.scheduling.clock import HandlerClock, Timer


class TimeLimitReactions(Protocol):
    """Reacts when a call takes long. Implemented by :class:`_LimitedCall`."""

    def half_elapsed(self) -> None:
        """The call has taken half of its time."""

    def cancellation_ignored(self) -> None:
        """The call still runs 5 s after it was cancelled."""


class TimeLimit:
    """Cancels one call after ``seconds``."""

    def __init__(self, clock: HandlerClock, seconds: float, reactions: TimeLimitReactions) -> None:
        self._clock = clock
        self._seconds = seconds
        self._reactions = reactions
        self._expired = False
        self._timer: Timer | None = None
        self._task: asyncio.Task[object] | None = None

    async def run(self, call: Callable[[], Awaitable[object]]) -> None:
        """Await the call; HandlerTimeoutError if the limit has cancelled it.

        If the call returns, or raises another error, after the limit, so does this.
        """
        task = self._task = asyncio.current_task()
        assert task is not None
        self._start_timer(self._seconds / 2, self._half)
        cancelling = task.cancelling()
        try:
            await call()
        except asyncio.CancelledError as cancelled:
            if self._undo_cancellation(task, cancelling):
                raise HandlerTimeoutError(self._seconds) from cancelled
            raise
        except BaseException:
            self._undo_cancellation(task, cancelling)
            raise
        else:
            self._undo_cancellation(task, cancelling)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _undo_cancellation(self, task: asyncio.Task[object], cancelling: int) -> bool:
        """Undo the cancellation by the limit, if any; return whether it was the only one."""
        return self._expired and task.uncancel() <= cancelling

    def _half(self) -> None:
        self._start_timer(self._seconds / 2, self._expire)
        self._reactions.half_elapsed()

    def _expire(self) -> None:
        assert self._task is not None
        self._expired = True
        self._start_timer(HANDLER_GRACE, self._reactions.cancellation_ignored)
        self._task.cancel()

    def _start_timer(self, delay: float, callback: Callable[[], None]) -> None:
        self._timer = self._clock.call_later(delay, callback)
