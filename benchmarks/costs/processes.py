"""How much faster handlers that use the CPU are in processes, without a broker.

    python -m benchmarks.costs.processes [--records N] [--milliseconds M] [--rounds R]

The same work by an async handler in this process, and by a sync one with ``run_in="process"``; they
take turns. The time is that of the clock on the wall, from the first record to the last. The start
of the processes is in it, once for each turn: the more records, the less of it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, cast

from asyncrevoke import PollResult, Record, Router
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.handlers.execution.runner_context import RunnerContext
from asyncrevoke.handlers.runner import HandlerRunner
from benchmarks.costs.cpu_work import SECONDS, work
from benchmarks.costs.observer import InMemory, batches
from benchmarks.report.surroundings import table

if TYPE_CHECKING:
    from asyncrevoke.handlers.scheduling.record_source import RecordSource


class IdleInMemory(InMemory):
    """Leaves the CPU to the processes while it waits."""

    async def poll(self) -> PollResult:
        """The next batch, when all before it are done."""
        while self.in_flight:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.005)
        return await super().poll()


async def work_in_the_loop(record: Record) -> None:
    """The same, in the event loop."""
    work(record)


async def turn(records: int, *, in_processes: bool) -> float:
    """Handle all of them; the seconds that it took."""
    router = Router()
    if in_processes:
        router.handler("plain", run_in="process")(work)
    else:
        router.handler("plain")(work_in_the_loop)
    source = cast("RecordSource", IdleInMemory(batches(records), None))
    runner = HandlerRunner(source, router, RunnerContext(concurrency=64, log=EventLog()))
    began = time.perf_counter()
    await runner.run()
    return time.perf_counter() - began


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Handlers that use the CPU, in processes.")
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--milliseconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ[SECONDS] = str(options.milliseconds / 1000)
    here: list[float] = []
    there: list[float] = []
    for _ in range(options.rounds):
        here.append(asyncio.run(turn(options.records, in_processes=False)))
        there.append(asyncio.run(turn(options.records, in_processes=True)))
    ratio = statistics.median(a / b for a, b in zip(here, there, strict=True))
    rows = [
        ["async, in one process", f"{statistics.median(here):.2f}", "1.00"],
        [
            f'run_in="process", {os.cpu_count()} CPUs',
            f"{statistics.median(there):.2f}",
            f"{ratio:.2f}",
        ],
    ]
    print(table(["handlers", f"seconds for {options.records} records", "times as fast"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
