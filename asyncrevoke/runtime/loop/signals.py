"""Handles SIGINT and SIGTERM: the first drains, the second ends the process at once."""

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
# Seconds after the deadline for cancelled work to end, before the process is killed.
_LATE = 0.75


@contextmanager
def drain_on_signals(
    drain: Callable[[signal.Signals], None], close_timeout: float
) -> Generator[None]:
    """Inside, the first signal calls ``drain`` on the event loop; the next one kills the process.

    The first one kills the process too if this block has not ended shortly after ``close_timeout``
    seconds: then the event loop is blocked. Outside the main thread no signal handler is installed,
    because Python does not allow it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    left = threading.Event()

    def end_process(number: int) -> None:
        if not left.wait(close_timeout + _LATE):
            # first() has restored the default handler.
            os.kill(os.getpid(), number)

    def first(number: int, _frame: FrameType | None) -> None:
        # Python calls this even while the event loop is blocked, unlike asyncio's handlers.
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
            # None: the previous handler was not installed by Python, and cannot be restored.
            signal.signal(number, before[number] or signal.SIG_DFL)
