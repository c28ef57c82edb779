"""Sync functions that worker processes and interpreters can import."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# How often this process or interpreter has called ``note_pid``.
noted = 0


class UnpicklableError(Exception):
    """It has what cannot be pickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)
        self.lock = threading.Lock()


def note_pid(path: bytes) -> None:
    """Append the number of this process to the file that the value names."""
    global noted  # noqa: PLW0603 - what is to be seen is whose global it is
    noted += 1
    with open(path, "a", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")


def fail(value: bytes) -> None:
    """Raise."""
    raise KeyError(value.decode())


def fail_unpicklably(value: bytes) -> None:
    """Raise what cannot be pickled."""
    raise UnpicklableError("no ", value.decode())


def return_lock(value: bytes) -> object:
    """Return what cannot be pickled."""
    return threading.Lock()


def kill_once(path: bytes) -> None:
    """Kill this process in the first call, and note its number in the second one."""
    if os.path.exists(path):
        note_pid(path)
        return
    with open(path, "w", encoding="ascii"):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def survive_signals(value: bytes) -> None:
    """Send to this process what a terminal and a supervisor send to all processes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)


def rest(seconds: float) -> None:
    """Do nothing for so long."""
    time.sleep(seconds)


def double(value: int) -> Iterator[int]:
    """Yield two results."""
    yield value
    yield 2 * value


def append_line(value: bytes) -> None:
    """Append a line to a file; the value is ``PATH:LINE``."""
    path, _, line = value.rpartition(b":")
    with open(path, "ab") as file:
        file.write(line + b"\n")


def leave_by_exit(value: bytes) -> None:
    """Raise SystemExit."""
    raise SystemExit(3)


def leave_by_interrupt(value: bytes) -> None:
    """Raise KeyboardInterrupt."""
    raise KeyboardInterrupt
