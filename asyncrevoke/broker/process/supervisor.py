"""Runs one broker, and ends it when the process that started it ends.

This script uses only the standard library, and is the broker's parent process: on Linux, a child is
killed when the *thread* ends that started it, and in a test that thread may end before the broker.
The standard input of this script is a pipe, which closes when the starting process ends, even by
SIGKILL. If a forked copy of that process still has it open, the supervisor notices that its parent
process has changed.

Usage: supervisor.py PARENT_PID FOLDER LOG COMMAND... (FOLDER is removed when the parent dies; ``-``
keeps it). Writes the broker's process id as one line to its standard output.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
PARENT_CHECK = 0.5


def die_with_parent() -> None:
    """Called between fork and exec: the kernel then kills the broker when the supervisor dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    """Run the command until it ends or the parent dies; returns its exit code."""
    parent, folder, log, *command = sys.argv[1:]
    # The parent process handles a terminal's interrupt.
    with contextlib.suppress(AttributeError, ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with open(log, "ab") as output:
        try:
            child = subprocess.Popen(  # noqa: S603 - the command is ours
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
            )
        except OSError as error:
            output.write(f"{error}\n".encode())
            return 127
    orphaned = threading.Event()

    def end() -> None:
        orphaned.set()
        child.kill()

    def watch_pipe() -> None:
        while os.read(0, 64):
            pass
        end()

    def watch_parent() -> None:
        while os.getppid() == int(parent):
            time.sleep(PARENT_CHECK)
        end()

    threading.Thread(target=watch_pipe, daemon=True).start()
    if sys.platform != "win32":
        threading.Thread(target=watch_parent, daemon=True).start()
    os.write(1, b"%d\n" % child.pid)
    code = child.wait()
    if orphaned.is_set() and folder != "-":
        shutil.rmtree(folder, ignore_errors=True)
    # The threads may be blocked in a read: exit without waiting for them.
    os._exit(code & 0xFF)


if __name__ == "__main__":
    sys.exit(main())
