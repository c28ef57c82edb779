"""Ends a process whose consumer has closed."""

from __future__ import annotations

import logging
import os
import threading

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.deadline import until_process_ends
from asyncrevoke.client.runtime.hooks.event_log import EventLog


def end_process_within(seconds: float, code: int) -> None:
    """End the process with ``code`` if it still runs shortly after ``seconds``, the rest of
    close_timeout.

    Python waits without a limit for the application's threads (as of ``asyncio.to_thread``), for
    tasks that ignore cancellation, and for atexit functions. Call this after the consumer has
    closed, so that no record is affected.
    """
    timer = threading.Timer(until_process_ends(seconds), _end, (code,))
    timer.name = "asyncrevoke close_timeout"
    timer.daemon = True
    timer.start()


def _end(code: int) -> None:
    ours = (threading.current_thread(), threading.main_thread())
    threads = [
        thread.name for thread in threading.enumerate() if thread not in ours and not thread.daemon
    ]
    log_events.PROCESS_ENDED.write_to(EventLog(logger="asyncrevoke.run"), threads=threads)
    logging.shutdown()
    os._exit(code)
