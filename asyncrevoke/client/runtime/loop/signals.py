"""Handles SIGINT and SIGTERM: the first drains, the second ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.deadline import until_process_ends
from asyncrevoke.client.model import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Drain(Value, frozen=True):
    """What a signal does to one running consumer; ``left`` is set when the consumer has closed."""

    loop: asyncio.AbstractEventLoop
    drain: Callable[[signal.Signals], None]
    close_timeout: float
    left: threading.Event


class _SignalHandlers:
    """The process's handlers of SIGINT and SIGTERM while consumers run.

    A process has one handler for each signal. If each consumer installed its own, a signal would
    drain only the consumer that was started last.
    """

    def __init__(self) -> None:
        self._drains: list[_Drain] = []
        self._before: dict[signal.Signals, signal.Handlers | Callable[..., object] | int] = {}

    def add(self, drain: _Drain) -> None:
        """Drain this consumer too upon the next signal."""
        self._drains.append(drain)
        for number in _SIGNALS:
            before = signal.signal(number, self._first)
            # None: the previous handler was not installed by Python, and cannot be restored.
            self._before.setdefault(number, before or signal.SIG_DFL)

    def remove(self, drain: _Drain) -> None:
        """The consumer has closed. After the last one, restore the application's handlers."""
        self._drains.remove(drain)
        drain.left.set()
        if not self._drains:
            for number in _SIGNALS:
                signal.signal(number, self._before.pop(number))

    def _first(self, number: int, _frame: FrameType | None) -> None:
        # Python calls this even while the event loop is blocked, unlike asyncio's handlers.
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        drains = tuple(self._drains)
        threading.Thread(
            target=_end_process,
            args=(number, drains),
            name="asyncrevoke close_timeout",
            daemon=True,
        ).start()
        for drain in drains:
            drain.loop.call_soon_threadsafe(drain.drain, signal.Signals(number))


def _end_process(number: int, drains: Sequence[_Drain]) -> None:
    """End the process by the signal unless each consumer closes in time."""
    signalled = time.monotonic()
    for drain in drains:
        deadline = signalled + until_process_ends(drain.close_timeout)
        if not drain.left.wait(max(deadline - time.monotonic(), 0)):
            os.kill(os.getpid(), number)  # the first signal has restored the default handler


_HANDLERS = _SignalHandlers()


class DrainOnSignals:
    """Inside, the first signal calls ``drain`` on the event loop; the next one kills the process.

    The first one kills the process too if this block has not ended shortly after ``close_timeout``
    seconds: then the event loop is blocked. If blocks of several consumers overlap, a signal drains
    all of them. Outside the main thread no signal handler is installed, because Python does not
    allow it.
    """

    def __init__(self, drain: Callable[[signal.Signals], None], close_timeout: float) -> None:
        self._drain = drain
        self._close_timeout = close_timeout
        self._entry: _Drain | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            self._entry = _Drain(loop, self._drain, self._close_timeout, threading.Event())
            _HANDLERS.add(self._entry)

    def __exit__(self, *_error: object) -> None:
        if self._entry is not None:
            _HANDLERS.remove(self._entry)
