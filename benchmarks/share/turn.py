"""What each member of a share group is told, and what is measured of its turn."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import time
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import psutil

if TYPE_CHECKING:
    from benchmarks.clients.java_clients import Told

# tcpi_bytes_received of struct tcp_info (linux/tcp.h).
_BYTES_RECEIVED: Final = struct.Struct("=Q")
_BYTES_RECEIVED_AT: Final = 128


class Task(NamedTuple):
    """Where a client reads, as the only member of a new group. ``at_once`` records a poll or in
    slots; ``handler_time`` in seconds."""

    bootstrap: str
    topic: str
    group: str
    total: int
    at_once: int
    acquire: Literal["exact", "batches"] = "batches"
    handler_time: float = 0.0


class Measured(NamedTuple):
    """Times are seconds. ``first``: from subscribing to the first record; ``seconds`` and ``cpu``:
    from the first record to the last one. ``received`` bytes, and ``requests`` of all kinds.
    ``again``: records that had been delivered before. ``lost``: locks."""

    records: int
    seconds: float
    cpu: float
    first: float
    received: float
    requests: float
    again: int
    lost: int = 0
    delays: tuple[float, ...] = ()
    acknowledged: tuple[float, ...] = ()

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds if self.seconds else 0.0


class Turn:
    """Counts what is handled. Finished after ``total`` records."""

    def __init__(self, task: Task) -> None:
        self.records = 0
        self.again = 0
        self.lost = 0
        self.received = 0.0
        self.requests = 0.0
        self.delays: list[float] = []
        self.acknowledged: list[float] = []
        self.finished = asyncio.Event()
        self._total = task.total
        self._next = 1
        self._subscribed = self._first = 0.0
        self._began = self._ended = (0.0, 0.0)

    def subscribe(self) -> None:
        """The client joins now."""
        # The first full collection is of all that was imported.
        gc.collect()
        self._subscribed = time.perf_counter()

    def handled(self, records: int = 1, again: int = 0) -> bool:
        """So many have been handled, of which so many had been delivered before. True if that is
        all."""
        self.records += records
        self.again += again
        if self.records < self._next:
            return False
        now = (time.perf_counter(), time.process_time())
        if self._next == 1:
            self._began = now
            self._first = now[0] - self._subscribed
            self._next = self._total
        if self.records >= self._total:
            self._ended = now
            self._next = 1 << 62
            self.finished.set()
        return self.records >= self._total

    def note_received(self) -> None:
        """Add what the connections of this process have received, by the kernel's account."""
        self.received = bytes_received()

    def report(self, told: Told) -> None:
        """A program of its own has handled all of it."""
        self.records = told.records
        self._ended = (told.seconds, told.cpu)
        self._first, self.received, self.requests, again = told.more
        self.again = int(again)

    def measured(self) -> Measured:
        """What came of it."""
        seconds, cpu = (b - a for a, b in zip(self._began, self._ended, strict=True))
        return Measured(
            self.records,
            seconds,
            cpu,
            self._first,
            self.received,
            self.requests,
            self.again,
            self.lost,
            tuple(self.delays),
            tuple(self.acknowledged),
        )


def bytes_received() -> int:
    """Of all TCP connections of this process that are open."""
    total = 0
    for connection in psutil.Process().net_connections("tcp"):
        if connection.status == psutil.CONN_ESTABLISHED and connection.fd >= 0:
            with socket.fromfd(connection.fd, socket.AF_INET, socket.SOCK_STREAM) as duplicate:
                info = duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            total += _BYTES_RECEIVED.unpack_from(info, _BYTES_RECEIVED_AT)[0]
    return total
