"""What the handlers of every client do, and what is measured of it."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.clients.java_clients import Told

HANDLER_TIME = 0.005  # seconds that a slow handler awaits
CATCHING_UP = 3.0  # seconds


class Measured(NamedTuple):
    """From the first record to the last one, in seconds; delays are those of the records."""

    records: int
    seconds: float
    cpu: float  # of the client's process
    delay_p50: float = 0.0
    delay_p99: float = 0.0
    delay_max: float = 0.0

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds

    @property
    def cpu_rate(self) -> float:
        """Records per second that the client was on a core."""
        return self.records / self.cpu


class Counting:
    """A handler that awaits nothing. Finished after ``total`` records."""

    def __init__(self, total: int) -> None:
        self.records = 0
        self.finished = asyncio.Event()
        self._total = total
        self._next = 1  # the record at which the clock is looked at
        self._began = self._ended = (0.0, 0.0)

    def look(self, size: int, records: int) -> None:  # noqa: ARG002 - the bytes were looked at
        """A bare loop has looked at so many."""
        self.records += records
        if self.records >= self._next:
            self._mark()

    async def handle(self, value: bytes) -> None:  # noqa: ARG002
        """Count it."""
        self.records += 1
        if self.records == self._next:
            self._mark()

    def report(self, told: Told) -> None:
        """A program of its own has handled all of it."""
        self.records = told.records
        self._ended = (told.seconds, told.cpu)
        self.finished.set()

    def measured(self) -> Measured:
        """What came of it."""
        seconds, cpu = (b - a for a, b in zip(self._began, self._ended, strict=True))
        return Measured(self.records, seconds, cpu)

    def _mark(self) -> None:
        now = (time.perf_counter(), time.process_time())
        if self._next == 1:
            self._began = now
            self._next = self._total
        if self.records >= self._total:
            self._ended = now
            self.finished.set()


class Sleeping(Counting):
    """A handler that awaits something for 5 ms."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._next = total

    async def handle(self, value: bytes) -> None:  # noqa: ARG002
        """Count it when it is done."""
        if not self._began[0]:
            self._began = (time.perf_counter(), time.process_time())
        await asyncio.sleep(HANDLER_TIME)
        self.records += 1
        if self.records == self._next:
            self._mark()


class Timing(Counting):
    """Takes the time from when a value was sent.

    What comes in the first seconds does not count: it was sent before the client had joined.
    """

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._counts_from = 0
        self._delays: list[int] = []

    async def handle(self, value: bytes) -> None:
        """Note how long it took to come here."""
        now = time.monotonic_ns()
        if not self._counts_from:
            self._counts_from = now + int(CATCHING_UP * 1e9)
        if now >= self._counts_from:
            self._delays.append(now - int.from_bytes(value[:8], "big"))
            await super().handle(value)

    def measured(self) -> Measured:
        """What came of it, with the delays."""
        hundredths = statistics.quantiles([delay / 1e9 for delay in self._delays], n=100)
        return (
            super()
            .measured()
            ._replace(
                delay_p50=hundredths[49],
                delay_p99=hundredths[98],
                delay_max=max(self._delays) / 1e9,
            )
        )


WORK: dict[str, Callable[[int], Counting]] = {
    "noop": Counting,
    "noop-zipf": Counting,
    "noop-results": Counting,
    "slow": Sleeping,
    "zipf": Sleeping,
    "latency": Timing,
    "memory": Sleeping,
}
