"""A call that may take only so long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.errors import HandlerTimeoutError
from asyncrevoke.runtime.hooks.running_calls import HANDLER_GRACE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncrevoke.handlers.scheduling.clock import Clock, Timer


class TimeLimit:
    """Bounds calls to ``seconds``: at half of it ``on_half`` is called, at the end they are
    cancelled, and ``on_stuck`` is called for one that has not ended 5 s later."""

    def __init__(
        self,
        clock: Clock,
        seconds: float,
        on_half: Callable[[], None],
        on_stuck: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._on_half = on_half
        self._on_stuck = on_stuck
        self._expired = False
        self._timer: Timer | None = None
        self._task: asyncio.Task[object] | None = None

    async def run(self, call: Callable[[], Awaitable[object]]) -> None:
        """Await one call; HandlerTimeoutError if it ends by our cancellation.

        A call that ends otherwise, however late, has that end.
        """
        task = self._task = asyncio.current_task()
        assert task is not None
        self._arm(self._seconds / 2, self._half)
        cancelling = task.cancelling()
        try:
            await call()
        except asyncio.CancelledError as cancelled:
            if self._is_ours(task, cancelling):
                raise HandlerTimeoutError(self._seconds) from cancelled
            raise
        except BaseException:
            self._is_ours(task, cancelling)
            raise
        else:
            self._is_ours(task, cancelling)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _is_ours(self, task: asyncio.Task[object], cancelling: int) -> bool:
        """Take our cancellation back, if there is one; whether it was the only one."""
        return self._expired and task.uncancel() <= cancelling

    def _half(self) -> None:
        self._arm(self._seconds / 2, self._expire)
        self._on_half()

    def _expire(self) -> None:
        assert self._task is not None
        self._expired = True
        self._arm(HANDLER_GRACE, self._on_stuck)
        self._task.cancel()

    def _arm(self, delay: float, callback: Callable[[], None]) -> None:
        self._timer = self._clock.call_later(delay, callback)
