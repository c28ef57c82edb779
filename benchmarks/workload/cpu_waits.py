"""How long threads of this machine wait for a CPU, by the kernel's own account."""

from __future__ import annotations

import bisect
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.cli.demo.workload import now

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

INTERVAL = 0.01


def main_thread(process: int) -> Path:
    """The kernel's account of a process's main thread."""
    return Path(f"/proc/{process}/schedstat")


def request_threads(broker: int) -> list[Path]:
    """The accounts of the threads by which a process of Apache Kafka serves clients."""
    return [
        thread / "schedstat"
        for thread in Path(f"/proc/{broker}/task").glob("*")
        if (thread / "comm").read_text().startswith("data-plane-")
    ]


class _Sample(NamedTuple):
    at: float
    waited: float


class CpuWaits:
    """Notes every 10 ms how long threads have been ready to run while others had the CPUs, which
    is the second number of their accounts.

    Args:
        accounts: files of accounts by the names of their threads; new ones may come.
    """

    def __init__(self, accounts: Callable[[], Mapping[str, Path]]) -> None:
        self._accounts = accounts
        self._files: dict[str, int] = {}
        self._samples: dict[str, list[_Sample]] = {}

    @contextmanager
    def noted(self) -> Generator[None]:
        """Take samples in a thread meanwhile."""
        end = threading.Event()
        thread = threading.Thread(target=self._note, args=(end,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
            for file in self._files.values():
                os.close(file)

    def longest(self, names: Iterable[str], begin: float, end: float) -> float | None:
        """At most so many of the seconds from ``begin`` to ``end`` one of these threads waited for
        a CPU. None if that is not known."""
        waits = [self._within(name, begin, end) for name in names]
        return max((wait for wait in waits if wait is not None), default=None)

    def _within(self, name: str, begin: float, end: float) -> float | None:
        samples = self._samples.get(name, [])
        first = bisect.bisect_right(samples, begin, key=lambda sample: sample.at) - 1
        # The kernel adds a wait when it is over.
        last = bisect.bisect_left(samples, end, key=lambda sample: sample.at)
        if first < 0 or last == len(samples):
            return None
        return min(end - begin, samples[last].waited - samples[first].waited)

    def _note(self, end: threading.Event) -> None:
        while not end.wait(INTERVAL):
            for name, account in self._accounts().items():
                if name not in self._samples:
                    self._samples[name] = []
                    if account.exists():
                        self._files[name] = os.open(account, os.O_RDONLY)
            for name, file in list(self._files.items()):
                try:
                    fields = os.pread(file, 100, 0).split()
                except ProcessLookupError:
                    os.close(self._files.pop(name))  # it has ended
                else:
                    self._samples[name].append(_Sample(now(), int(fields[1]) / 1e9))
