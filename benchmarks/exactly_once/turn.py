"""What each client is told, and what is measured of its turn."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.workload.handler_work import Measured

if TYPE_CHECKING:
    from benchmarks.clients.java_clients import Told

# The first one of so many records is not measured.
WARM_UP = 10


class Task(NamedTuple):
    """Where a client reads, as the only member of a new group, and where it publishes the value of
    each record with its key. Intervals and times are seconds; ``interval`` is that of
    transactions."""

    bootstrap: str
    topic: str
    results: str
    group: str
    total: int
    concurrency: int = 64
    interval: float = 0.1
    handler_time: float = 0.0


class Turn:
    """Counts the calls of handlers. Finished after ``total`` of them.

    Measured from the first tenth of them, in which clients join and import what they need on first
    use, until the client says that all results are committed.
    """

    def __init__(self, task: Task) -> None:
        self.records = 0
        self.finished = asyncio.Event()
        self._total = task.total
        self._warm_up = task.total // WARM_UP
        self._handler_time = task.handler_time
        self._began = self._ended = (0.0, 0.0)

    async def handle(self) -> None:
        """What the handlers do that run concurrently."""
        if self._handler_time:
            await asyncio.sleep(self._handler_time)
        self.records += 1
        if self.records == self._warm_up:
            self._begin()
        elif self.records == self._total:
            self.finished.set()

    def handle_blocking(self) -> None:
        """What a loop does with each record."""
        if self._handler_time:
            time.sleep(self._handler_time)
        self.records += 1
        if self.records == self._warm_up:
            self._begin()

    def is_done(self) -> bool:
        """Whether a loop has handled enough."""
        return self.records >= self._total

    def committed(self) -> None:
        """All results are committed."""
        self._ended = (time.perf_counter(), time.process_time())

    def report(self, told: Told) -> None:
        """A program of its own has handled all of it."""
        self.records = told.records
        self._ended = (told.seconds, told.cpu)

    def measured(self) -> Measured:
        """What came of it."""
        seconds, cpu = (b - a for a, b in zip(self._began, self._ended, strict=True))
        return Measured(self.records - self._warm_up, seconds, cpu)

    def _begin(self) -> None:
        # The first full collection is of all that was imported.
        gc.collect()
        self._began = (time.perf_counter(), time.process_time())
