"""The kernel's account of how long a process waits for a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.workload.cpu_waits import CpuWaits, main_thread

LOOP = "while True: pass"
SLEEP = "import time; time.sleep(60)"
needs_schedstat = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="needs /proc/PID/schedstat"
)


def waits(*code: str, at_least: float) -> list[float]:
    """How long processes that share one CPU wait for it, when the first two have waited so long."""
    cpu = str(min(os.sched_getaffinity(0)))
    start = f"import os; os.sched_setaffinity(0, {{{cpu}}})\n"
    running = [subprocess.Popen([sys.executable, "-S", "-c", start + each]) for each in code]
    noted = CpuWaits(lambda: {str(number): main_thread(p.pid) for number, p in enumerate(running)})
    begin = time.monotonic() + 0.2
    found: list[float | None] = []
    try:
        with noted.noted():
            while time.monotonic() < begin + 30 and (
                None in (found or [None])
                or not all(waited is not None and waited > at_least for waited in found[:2])
            ):
                time.sleep(0.01)
                end = max(time.monotonic() - 0.1, begin)
                found = [noted.longest([str(number)], begin, end) for number in range(len(code))]
    finally:
        for process in running:
            process.kill()
            process.wait()
    return [waited for waited in found if waited is not None]


@needs_schedstat
def test_processes_that_share_a_cpu_wait_for_it_and_one_that_sleeps_does_not() -> None:
    first, second, sleeping = waits(LOOP, LOOP, SLEEP, at_least=0.3)
    assert min(first, second) > 0.3
    assert sleeping < min(first, second)


def test_a_wait_is_unknown_for_a_process_that_was_not_noted() -> None:
    assert CpuWaits(dict).longest(["nobody"], 0.0, 1.0) is None
