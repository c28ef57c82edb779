"""A pytest plugin that stops the process of the tests again and again, as a busy machine does.

    tox -e pauses -- PATHS

A test that fails under it, and not without it, relies on the order of two things that the product
does not order, or on a time limit of a second or two.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

# Seconds.
BETWEEN = 1.5
SHORTEST, LONGEST = 0.3, 1.2


def pytest_configure(config: pytest.Config) -> None:
    """Stop this process from now on, unless it only distributes the tests (pytest-xdist)."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    stopping = subprocess.Popen(
        (sys.executable, "-S", __file__, str(os.getpid())), stdin=subprocess.PIPE
    )
    config.add_cleanup(lambda: end(stopping))


def end(stopping: subprocess.Popen[bytes]) -> None:
    """End the process that stops this one, which continues it before."""
    assert stopping.stdin is not None
    stopping.stdin.close()
    stopping.wait()


def stop_repeatedly(process: int) -> None:
    """Stop a process and let it continue, until the standard input ends."""
    chance = random.Random()
    while not select.select([sys.stdin], [], [], chance.expovariate(1 / BETWEEN))[0]:
        os.kill(process, signal.SIGSTOP)
        time.sleep(chance.uniform(SHORTEST, LONGEST))
        os.kill(process, signal.SIGCONT)


if __name__ == "__main__":
    stop_repeatedly(int(sys.argv[1]))
