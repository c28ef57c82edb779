"""Work for a handler in a process, which imports nothing that it does not need."""

from __future__ import annotations

import os
import time

from asyncrevoke import Record  # noqa: TC001 - the handler's annotation is read

SECONDS = "BENCHMARK_CPU_SECONDS"


def work(_record: Record) -> None:
    """Use the CPU for so long."""
    ends = time.thread_time() + float(os.environ[SECONDS])
    while time.thread_time() < ends:
        sum(range(1000))
