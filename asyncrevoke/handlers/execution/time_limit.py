"""The time limit of one call."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import HandlerTimeoutError
from asyncrevoke.client.model import FailurePause
from asyncrevoke.client.runtime.session.status import HANDLER_GRACE
from asyncrevoke.handlers.policy.batch import first_unfinished_offset, log_fields

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Awaitable, Callable

    from asyncrevoke.client.log_events import Log
    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.scheduling.backlog import Backlog


class TimeLimit:
    """Warns after half of ``seconds``, and cancels the call after all of them.

    It pauses the partition of a call that ignores the cancellation.
    """

    def __init__(
        self,
        clock: AbstractEventLoop,
        log: Log,
        backlog: Backlog,
        item: Item,
        handler: Handler,
        seconds: float,
    ) -> None:
        self._clock = clock
        self._log = log
        self._backlog = backlog
        self._item = item
        self._handler = handler
        self._seconds = seconds
        self._expired = False
        self._timer: TimerHandle | None = None
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

    def _expire(self) -> None:
        assert self._task is not None
        self._expired = True
        self._start_timer(HANDLER_GRACE, self._cancellation_ignored)
        self._task.cancel()

    def _start_timer(self, delay: float, callback: Callable[[], None]) -> None:
        self._timer = self._clock.call_later(delay, callback)

    def _half(self) -> None:
        self._start_timer(self._seconds / 2, self._expire)
        log_events.HALF_OF_MAX_HANDLER_TIME.write_to(self._log, **self._fields())

    def _cancellation_ignored(self) -> None:
        """The call still runs 5 s after it was cancelled: pause the partition."""
        log_events.HANDLER_DID_NOT_EXIT.write_to(self._log, **self._fields())
        if not self._backlog.is_paused_by_failure(self._item):
            reason = FailurePause(
                *self._item.topic_partition,
                first_unfinished_offset(self._item),
                self._handler.name,
                "HandlerTimeoutError: the handler did not exit when cancelled",
                self._backlog.calls_of(self._item),
                math.inf,
            )
            self._backlog.pause_after_failure(self._item, reason)

    def _fields(self) -> dict[str, object]:
        fields = log_fields(self._item, self._handler.name)
        return fields | {"max_handler_time": self._seconds}
