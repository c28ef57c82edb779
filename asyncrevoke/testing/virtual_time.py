"""Virtual time for an asyncio event loop: it passes only when a test lets it pass.

It replaces the ``time`` and ``call_at`` methods of the running event loop, which everything in
asyncio that waits for time uses (``sleep``, ``timeout``, ``call_later``, ``wait``). Callbacks,
sockets and threads work as before. Each timer is an alarm of a
:class:`~asyncrevoke.testing.fake_kafka.clock.Clock`, which the simulated brokers share, so that all
alarms have one order.

Time passes in two ways. During a *call* (``async with time.call()``) it jumps from alarm to alarm,
and between two alarms the event loop runs until it is idle. Outside of calls, the event loop is
idle only if the test itself waits: then a thread lets virtual time pass as fast as real time, so
that a test that sleeps wakes up.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from asyncrevoke.client.errors import IllegalStateError
from asyncrevoke.client.runtime.loop.entering import other_event_loop
from asyncrevoke.testing.fake_kafka.clock import Alarm, Clock

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable
    from contextvars import Context


# Real seconds between two steps of time outside of calls.
_TICK = 0.01
# Limit for consecutive event loop iterations that each leave callbacks to run: a few seconds of
# real time. A count does not depend on the speed of the machine, or on the stops of a debugger.
_MAX_BUSY_TURNS = 500_000
# Virtual seconds per tick while the consumer may wait for threads or sockets.
_PER_TICK = 0.1
# The rounding error of sums of seconds.
_ROUNDING = 1e-9


class _Timer(asyncio.TimerHandle):
    __slots__ = ("alarm", "timers")

    alarm: Alarm
    # All pending timers by their identity, because timers may be equal.
    timers: dict[int, _Timer]

    def cancel(self) -> None:
        self.alarm.cancel()
        self.timers.pop(id(self), None)
        super().cancel()


class VirtualTime:
    """The virtual time of one event loop. Several users may :meth:`enter` it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.clock = Clock()
        self._loop = loop
        self._users = 0
        self._calls = 0
        self._turn = asyncio.Lock()
        self._timers: dict[int, _Timer] = {}
        self._ready: deque[object] = cast("deque[object]", getattr(loop, "_ready", None))
        self._ticks: asyncio.Future[None] | None = None
        self._last_tick = 0.0
        self._ended = threading.Event()

    # --- entering and leaving --------------------------------------------------------------------

    def enter(self) -> None:
        """Replace the event loop's time by virtual time."""
        loop = self._loop
        if self._users:
            self._users += 1
            return
        if not isinstance(loop, asyncio.BaseEventLoop):
            raise IllegalStateError(
                f"virtual time needs asyncio's event loop, and this is {type(loop).__name__}: run "
                "these tests with asyncio's default event loop policy"
            )
        self._users = 1
        self.clock.now = loop.time()
        vars(loop).update(time=lambda: self.clock.now, call_at=self._call_at)
        self._last_tick = time.monotonic()
        thread = threading.Thread(target=self._tell_ticks, name="virtual time", daemon=True)
        thread.start()

    def leave(self) -> None:
        """Restore the event loop's time when the last user leaves. Pending timers then wait for the
        rest of their time in real time."""
        self._users -= 1
        if self._users:
            return
        self._ended.set()
        loop, now = self._loop, self.clock.now
        del vars(loop)["time"], vars(loop)["call_at"]
        for timer in list(self._timers.values()):
            if (action := timer.alarm.action) is not None:
                loop.call_later(timer.when() - now, action)

    @property
    def in_use(self) -> bool:
        """Whether the event loop uses this time now."""
        return self._users > 0

    def _call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self._loop, context)

        def run() -> None:
            if not timer.cancelled():
                callback(*args)

        def due() -> None:
            self._timers.pop(id(timer), None)
            self._loop.call_soon(run, context=context)

        timer.alarm = self.clock.at(when, due)
        timer.timers = self._timers
        self._timers[id(timer)] = timer
        return timer

    # --- calls -----------------------------------------------------------------------------------

    def check_loop(self) -> None:
        """Raise IllegalStateError unless called in the event loop that has this time."""
        if asyncio.get_running_loop() is not self._loop:
            raise other_event_loop()

    def call(self) -> AbstractAsyncContextManager[None]:
        """Inside, time passes only by :meth:`pass_until`. Calls of several tasks wait for each
        other."""
        return _VirtualCall(self)

    async def begin_call(self) -> None:
        """Wait for the calls of other tasks to end. Raises IllegalStateError in another loop."""
        self.check_loop()
        await self._turn.acquire()
        self._calls += 1

    def end_call(self) -> None:
        """The call has ended."""
        self._calls -= 1
        self._turn.release()

    def passes(self) -> AbstractAsyncContextManager[None]:
        """Inside, time passes by itself."""
        return _PassingTime(self)

    async def run_until_idle(self) -> None:
        """Return when nothing can run before time passes or a socket or thread has an event.

        Raises ``TimeoutError`` if a task never waits for anything but the next event loop
        iteration.
        """
        quiet = 0
        for _ in range(_MAX_BUSY_TURNS):
            await asyncio.sleep(0)
            quiet = 0 if self._ready or self.clock.step(self.clock.now) else quiet + 1
            # Two idle iterations, because the event loop polls sockets and threads between them.
            if quiet == 2:
                return
        raise TimeoutError(
            f"the event loop is still busy after {_MAX_BUSY_TURNS:,} iterations: a task waits only "
            "for the next iteration, like `while True: await asyncio.sleep(0)`"
        )

    async def pass_until(self, end: float, done: Callable[[], bool] | None = None) -> bool:
        """Let time pass until ``end``, or until ``done()`` is true and nothing else can run.
        Returns whether ``done()`` is true."""
        while True:
            await self.run_until_idle()
            if done is not None and done():
                return True
            before = self.clock.now
            if not self.clock.step(end + _ROUNDING):
                self.clock.now = max(before, end)
                return done is not None and done()

    async def pass_while(self, waiting: asyncio.Future[None]) -> None:
        """Let time pass until the future is done, slowly enough for sockets and threads."""
        while not waiting.done():
            async with self.call():
                await self.run_until_idle()
            if not waiting.done():
                await self.tick()
                async with self.call():
                    await self.pass_until(self.clock.now + _PER_TICK, waiting.done)

    async def tick(self) -> None:
        """Wait for about 10 ms of real time."""
        if self._ticks is None:
            self._ticks = self._loop.create_future()
        await asyncio.shield(self._ticks)

    def _tell_ticks(self) -> None:
        while not self._ended.wait(_TICK):
            try:
                self._loop.call_soon_threadsafe(self._tick)
            except RuntimeError:  # the loop was closed
                return

    def _tick(self) -> None:
        now = time.monotonic()
        # No time passes while a debugger has stopped the test.
        passed = min(now - self._last_tick, 2 * _TICK)
        self._last_tick = now
        if self._users and not self._calls:
            end = self.clock.now + passed
            while self.clock.step(end):
                pass
        ticks, self._ticks = self._ticks, None
        if ticks is not None and not ticks.done():
            ticks.set_result(None)


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, VirtualTime] = WeakKeyDictionary()


def virtual_time() -> VirtualTime:
    """The virtual time of the running event loop."""
    loop = asyncio.get_running_loop()
    known = _of_loops.get(loop)
    if known is None or not known.in_use:
        known = _of_loops[loop] = VirtualTime(loop)
    return known


# Classes: contextlib's generators write into exceptions, and a user's class may forbid that.
class _VirtualCall(AbstractAsyncContextManager[None]):
    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    async def __aenter__(self) -> None:
        await self._time.begin_call()

    async def __aexit__(self, *_error: object) -> None:
        self._time.end_call()


class _PassingTime(AbstractAsyncContextManager[None]):
    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._passing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._time.check_loop()
        self._passing = asyncio.create_task(self._time.pass_while(self._ended))

    async def __aexit__(self, *_error: object) -> None:
        assert self._passing is not None
        self._ended.set_result(None)
        await self._passing
