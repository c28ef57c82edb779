"""The work of a group's member, which some record of each partition keeps busy for a while."""

from __future__ import annotations

import array
import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Work:
    """Records come in by ``take``, and are done at once, except those that are being held.

    After ``hold`` the next record of each partition stays in work until its partition is asked
    back (``asked_back``), and then for ``drain`` seconds more. So whatever a client needs until
    it learns of a rebalance, it has the same work left to do when it does.
    """

    def __init__(
        self, drain: float, reading: Callable[[int], None], held_all: Callable[[], None]
    ) -> None:
        self.drain = drain
        self.began = 0.0
        self._reading = reading  # called at a partition's first record
        self.times: dict[int, array.array[float]] = {}  # of each record, by partition
        self.asked: dict[int, float] = {}  # when a partition was first asked back
        self._next: dict[int, int] = {}
        self._held: dict[int, tuple[int, asyncio.Event, Callable[[], object] | None]] = {}
        self._to_hold: set[int] = set()
        self._held_all = held_all

    def begin(self) -> None:
        """The client is loaded; what follows is its own time."""
        self.began = time.monotonic()

    def hold(self) -> None:
        """Keep the next record of each partition in work."""
        self._to_hold = set(self.times)

    def take(
        self, partition: int, offset: int, finished: Callable[[], object] | None = None
    ) -> None:
        """A record has been delivered; ``finished`` is called when its work is done."""
        now = time.monotonic()
        times = self.times.get(partition)
        if times is None:
            times = self.times[partition] = array.array("d")
            self._reading(partition)
        times.append(now)
        self._next[partition] = offset + 1
        if partition in self._to_hold:
            self._to_hold.discard(partition)
            self._held[partition] = (offset, asyncio.Event(), finished)
            if not self._to_hold:
                self._held_all()
        elif finished is not None:
            finished()

    def asked_back(self, partitions: Iterable[int]) -> None:
        """The group wants these back: the work that is left takes ``drain`` seconds."""
        for partition in partitions:
            if partition not in self.asked:
                self.asked[partition] = time.monotonic()
                asyncio.get_running_loop().call_later(self.drain, self._finish, partition)

    async def drained(self, partitions: Iterable[int]) -> None:
        """Wait until nothing of these is in work."""
        for partition in partitions:
            if partition in self._held:
                await self._held[partition][1].wait()

    def committable(self, partitions: Iterable[int]) -> dict[int, int]:
        """The offset up to which everything is done, of each of these that had a record."""
        return {
            partition: self._held[partition][0]
            if partition in self._held
            else self._next[partition]
            for partition in partitions
            if partition in self._next
        }

    def finish(self) -> None:
        """End all work that is still held."""
        self._to_hold = set()
        for partition in list(self._held):
            self._finish(partition)

    def _finish(self, partition: int) -> None:
        if partition not in self._held:
            return
        _, done, finished = self._held.pop(partition)
        done.set()
        if finished is not None:
            finished()
