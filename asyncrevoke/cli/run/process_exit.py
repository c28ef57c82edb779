"""Ends a process whose consumer has closed."""

from __future__ import annotations

import logging
import os
import threading

# Seconds after close_timeout that the interpreter has, and at the least.
_LATE = 0.75
_LEAST = 0.25


def end_process_within(seconds: float, code: int) -> None:
    """End the process by ``code`` ``seconds`` after close_timeout's end, if it still lives then.

    Python waits without a limit for threads of the application, such as a call that a handler has
    made by ``asyncio.to_thread``, for tasks that ignore their cancellation, and for what is
    registered to be called at exit. To be called when the consumer has closed: nothing of it is
    lost.
    """
    timer = threading.Timer(max(_LEAST, seconds + _LATE), _end, (code,))
    timer.name = "asyncrevoke close_timeout"
    timer.daemon = True
    timer.start()


def _end(code: int) -> None:
    ours = (threading.current_thread(), threading.main_thread())
    threads = [each.name for each in threading.enumerate() if each not in ours and not each.daemon]
    logging.getLogger("asyncrevoke.run").error(
        "process did not exit within close_timeout; ending it while these threads run: %s", threads
    )
    logging.shutdown()
    os._exit(code)
