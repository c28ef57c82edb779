"""Detects a blocked event loop, by a timer that measures its own delay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from asyncrevoke.client import log_events

if TYPE_CHECKING:
    import asyncio

    from asyncrevoke.client.runtime.hooks.event_log import EventLog

_LONGEST_INTERVAL = 1.0


def tick_interval(tolerated: float) -> float:
    """Seconds between two ticks, to detect a delay of ``tolerated`` seconds."""
    return min(_LONGEST_INTERVAL, tolerated / 2)


class LoopTicks(Protocol):
    """Called by :class:`LoopLag` when the event loop runs. Implemented by :class:`Driver`."""

    def loop_ticked(self, late: float) -> str | None:
        """The event loop ran this ``late`` seconds after it was due.

        Called once a second or more often. Returns the line that blocked the event loop, if a
        warning was logged already.
        """
        ...


class LoopLag:
    """Warns when the event loop was blocked for longer than ``tolerated`` seconds.

    A blocked event loop sends no heartbeats (the heartbeat thread may), and at the session timeout
    the group removes the member.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tolerated: float,
        log: EventLog,
        ticks: LoopTicks,
    ) -> None:
        self._loop = loop
        self._tolerated = tolerated
        self._log = log
        self._interval = tick_interval(tolerated)
        self._ticks = ticks
        self._timer: asyncio.TimerHandle | None = None

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
        late = self._loop.time() - due
        self.start()
        blocked_at = self._ticks.loop_ticked(late)
        if blocked_at is not None:
            log_events.LOOP_RUNS_AGAIN.write_to(
                self._log, seconds=round(late, 3), blocked_at=blocked_at
            )
        elif late > self._tolerated:
            log_events.LOOP_WAS_BLOCKED.write_to(
                self._log,
                seconds=round(late, 3),
                hint="run blocking work by anyio.to_thread.run_sync or in a process",
            )
