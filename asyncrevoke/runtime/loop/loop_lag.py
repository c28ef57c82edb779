"""Detects a blocked event loop, by a timer that measures its own delay."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from asyncrevoke.runtime.hooks.event_log import EventLog

_LONGEST_INTERVAL = 1.0


def tick_interval(tolerated: float) -> float:
    """Seconds between two ticks, to detect a delay of ``tolerated`` seconds."""
    return min(_LONGEST_INTERVAL, tolerated / 2)


class LoopLag:
    """Warns when the event loop was blocked for longer than ``tolerated`` seconds.

    A blocked event loop sends no heartbeats (the heartbeat thread may), and at the session timeout
    the group removes the member. ``on_tick`` (the driver's ``_tick``) is called once a second or
    more often; it returns the line that blocked the event loop, if a warning was logged already.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tolerated: float,
        log: EventLog,
        on_tick: Callable[[], str | None],
    ) -> None:
        self._loop = loop
        self._tolerated = tolerated
        self._log = log
        self._interval = tick_interval(tolerated)
        self._on_tick = on_tick
        self._timer: asyncio.TimerHandle | None = None
        # Delay of the last tick, in seconds.
        self.late = 0.0

    def start(self) -> None:
        """Begin to measure."""
        due = self._loop.time() + self._interval
        self._timer = self._loop.call_at(due, self._measure, due)

    def stop(self) -> None:
        """End measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _measure(self, due: float) -> None:
        late = self.late = self._loop.time() - due
        self.start()
        blocked_at = self._on_tick()
        if blocked_at is not None:
            self._log.info("event loop runs again", seconds=round(late, 3), blocked_at=blocked_at)
        elif late > self._tolerated:
            self._log.warning(
                "event loop was blocked; nothing was sent or received",
                seconds=round(late, 3),
                hint="run blocking work by anyio.to_thread.run_sync or in a process",
            )
