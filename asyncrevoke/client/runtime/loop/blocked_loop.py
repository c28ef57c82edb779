"""Detects a blocked event loop, and sends heartbeats from a thread while it is blocked.

:class:`LoopLag` measures the delay of a timer; each second the driver calls
:meth:`HeartbeatThread.tick`. Without a tick, the thread logs the
line that blocks the event loop and sends the last ``BackgroundHeartbeat``, over a connection of its
own. It stops when the event loop runs again, or when ``max_poll_interval`` is over, so that a loop
that is blocked for ever does not keep its partitions. The core gets the responses when the event
loop runs again, and decides what they mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import (
    BackgroundHeartbeat,
    BackgroundHeartbeatReply,
    Channel,
    Failed,
    Send,
)
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.core.core import Core
    from asyncrevoke.client.core.io.effects import Replied
    from asyncrevoke.client.protocol.messages import Request
    from asyncrevoke.client.runtime.hooks.event_log import EventLog
    from asyncrevoke.client.runtime.loop.driver import Driver
    from asyncrevoke.client.runtime.net.channels import Channels


_LONGEST_INTERVAL = 1.0
_PACKAGE: Final = __file__.rsplit(os.sep, 4)[0] + os.sep
# sysconfig would import all that Python was built with.
_STDLIB: Final = asyncio.__file__.rsplit(os.sep, 2)[0] + os.sep
_INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def tick_interval(tolerated: float) -> float:
    """Seconds between two ticks, to detect a delay of ``tolerated`` seconds."""
    return min(_LONGEST_INTERVAL, tolerated / 2)


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
        driver: Driver,
    ) -> None:
        self._loop = loop
        self._tolerated = tolerated
        self._log = log
        self._interval = tick_interval(tolerated)
        self._driver = driver
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
        blocked_at = self._driver.loop_ticked(late)
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


class HeartbeatThread:
    """Made, and called, on the event loop that it watches.

    ``connect`` opens the thread's own connections. ``driver`` gets the responses, on the event
    loop. ``blocked_after``: seconds without a tick after which the event loop counts as blocked.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        connect: Callable[[], Channels],
        core: Core,
        log: EventLog,
        blocked_after: float,
    ) -> None:
        self._driver = driver
        self._connect = connect
        self._core = core
        self._log = log
        self._blocked_after = blocked_after
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._heartbeat: BackgroundHeartbeat | None = None
        self._thread: threading.Thread | None = None
        self._ended = asyncio.Event()
        # Written on the event loop only, read in the thread.
        self._ticked = time.monotonic()
        self._alive_until = float("inf")
        self._stopped = threading.Event()
        # Written in the thread only, taken on the event loop.
        self._blocked_at: str | None = None
        # The thread's own event loop while it sends, and the task to cancel on stop().
        self._lock = threading.Lock()
        self._takeover: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    def set_heartbeat(self, heartbeat: BackgroundHeartbeat | None) -> None:
        """Send this heartbeat, or none, from now on whenever the event loop is blocked. The first
        heartbeat starts the thread."""
        self._heartbeat = heartbeat
        if self._thread is None and heartbeat is not None and not self._stopped.is_set():
            self.tick()
            self._thread = threading.Thread(
                target=self._run, name="asyncrevoke heartbeat", daemon=True
            )
            self._thread.start()

    def tick(self) -> str | None:
        """The event loop runs. Returns the line that blocked it, if that was logged since the last
        call."""
        now = time.monotonic()
        loop_now = self._loop.time()
        self._alive_until = now + self._core.alive_until(loop_now) - loop_now
        self._ticked = now
        seen_at, self._blocked_at = self._blocked_at, None
        return seen_at

    def stop(self) -> None:
        """Send no further heartbeats, and cancel the one in flight."""
        self._heartbeat = None
        self._stopped.set()
        with self._lock:
            if self._takeover is not None:
                loop, task = self._takeover
                loop.call_soon_threadsafe(task.cancel)

    async def aclose(self) -> None:
        """Stop, and wait for the thread to end: about a second at most. Idempotent.

        If cancelled, the thread ends without being waited for.
        """
        self.stop()
        if self._thread is not None:
            await self._ended.wait()
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(max(0.01, self._ticked + self._blocked_after - _now())):
                if self._loop.is_closed():
                    return  # the consumer was not closed
                if self._blocked and self._heartbeat is not None:
                    asyncio.run(self._take_over())
        except Exception as error:  # noqa: BLE001 - logged
            log_events.HEARTBEAT_THREAD_FAILED.write_to(self._log, exc_info=error)
        finally:
            self._on_loop(self._ended.set)

    @property
    def _blocked(self) -> bool:
        return not self._stopped.is_set() and _now() - self._ticked >= self._blocked_after

    def _on_loop(self, function: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(function)

    async def _take_over(self) -> None:
        requests = self._connect()
        # A task of its own, so that the connections are closed also if it is cancelled.
        sending = asyncio.create_task(self._send_while_blocked(requests))
        with self._lock:
            self._takeover = asyncio.get_running_loop(), sending
            if self._stopped.is_set():
                sending.cancel()
        try:
            await asyncio.wait((sending,))
            if not sending.cancelled():
                sending.result()
        finally:
            with self._lock:
                self._takeover = None
            await requests.close()

    async def _send_while_blocked(self, requests: Channels) -> None:
        self._warn_blocked()
        ticked, until = self._ticked, self._alive_until
        failing = False
        heartbeat = self._heartbeat
        message = None if heartbeat is None else heartbeat.message
        while self._blocked and self._ticked == ticked and heartbeat is self._heartbeat:
            if heartbeat is None or message is None:
                return
            if _now() >= until:
                log_events.LOOP_BLOCKED_TOO_LONG.write_to(
                    self._log, blocked_at=blocked_at(self._watched)
                )
                await self._pause(ticked, float("inf"))
                return
            sent_at = _now()
            reply = await requests.request(
                Send(
                    0,
                    message,
                    heartbeat.node,
                    Channel.HEARTBEAT,
                    heartbeat.timeout,
                    silence_timeout=heartbeat.timeout / 2,
                )
            )
            failed = isinstance(reply, Failed)
            if not (failed and failing):
                self._deliver(heartbeat, sent_at, reply)
            failing = failed
            message = _next(heartbeat, message, reply)
            if message is None:
                await self._pause(ticked, float("inf"))
                return
            await self._pause(ticked, min(sent_at + heartbeat.interval, until))

    def _warn_blocked(self) -> None:
        where = blocked_at(self._watched)
        self._blocked_at = where
        log_events.LOOP_BLOCKED.write_to(
            self._log,
            blocked_at=where,
            seconds=round(_now() - self._ticked, 1),
            hint="run blocking work by anyio.to_thread.run_sync or in a process",
        )

    def _deliver(
        self, heartbeat: BackgroundHeartbeat, sent_at: float, reply: Replied | Failed
    ) -> None:
        response = reply if isinstance(reply, Failed) else reply.message

        def deliver() -> None:
            # In this order, an interruption between the clocks makes the time earlier, never later.
            loop_now = self._loop.time()
            sent_at_loop_time = loop_now - (_now() - sent_at)
            self._driver.handle(
                BackgroundHeartbeatReply(heartbeat.heartbeat_id, sent_at_loop_time, response)
            )

        self._on_loop(deliver)

    async def _pause(self, ticked: float, until: float) -> None:
        """Wait until that time, or until the event loop runs again."""
        # Polled: an asyncio.Event would need a thread-safe call in each tick.
        while self._ticked == ticked and _now() < until and not self._loop.is_closed():  # noqa: ASYNC110
            await asyncio.sleep(min(self._blocked_after / 4, max(0.0, until - _now())))


def _next(heartbeat: BackgroundHeartbeat, sent: Request, reply: Replied | Failed) -> Request | None:
    if isinstance(reply, Failed):
        return None if reply.kind in FATAL_FAILURES else sent
    return heartbeat.next_message(reply.message)


def _now() -> float:
    return time.monotonic()


def blocked_at(thread_id: int) -> str | None:
    """``file:line function`` that this thread is running; None if it has ended.

    The innermost frame of the application. Frames of the standard library and of installed packages
    are used only if there is no other.
    """
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    best, best_rank = frame, 0
    while frame is not None:
        rank = _rank(frame.f_code.co_filename)
        if rank > best_rank:
            best, best_rank = frame, rank
        frame = frame.f_back
    if best is None:
        return None
    return f"{best.f_code.co_filename}:{best.f_lineno} {best.f_code.co_qualname}"


def _rank(filename: str) -> int:
    if filename.startswith(("<", _PACKAGE)):
        return 0
    if any(part in filename for part in _INSTALLED):
        return 1
    return 0 if filename.startswith(_STDLIB) else 2
