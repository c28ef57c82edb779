"""SIGINT and SIGTERM: the first one drains, the second one ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds after the deadline in which what was cancelled ends, before the process is ended.
_LATE = 0.75


@contextmanager
def drain_on_signals(
    drain: Callable[[signal.Signals], None], close_timeout: float
) -> Generator[None]:
    """Inside, the first signal calls ``drain`` on the event loop; the next one kills the process.

    So does the first one, if this is not left shortly after ``close_timeout`` seconds: then
    something blocks the event loop, and no coroutine can end it. Needs the main thread, as signals
    do; elsewhere nothing is installed, and signals stay the business of whoever runs the main
    thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    left = threading.Event()

    def end_process(number: int) -> None:
        if not left.wait(close_timeout + _LATE):
            # Its handler is the system's again.
            os.kill(os.getpid(), number)

    def first(number: int, _frame: FrameType | None) -> None:
        # Python calls this also while the event loop is blocked; asyncio's handlers would wait.
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        threading.Thread(
            target=end_process, args=(number,), name="asyncrevoke close_timeout", daemon=True
        ).start()
        loop.call_soon_threadsafe(drain, signal.Signals(number))

    before = {number: signal.signal(number, first) for number in _SIGNALS}
    try:
        yield
    finally:
        left.set()
        for number in _SIGNALS:
            # None: what was there does not come from Python, and cannot be put back by it.
            signal.signal(number, before[number] or signal.SIG_DFL)
