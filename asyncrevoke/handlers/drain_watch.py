"""Names the record that holds back a partition which is to be given up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncrevoke.handlers.log import Log
    from asyncrevoke.model import TopicPartition

_FIRST = 5.0
_EVERY = 30.0


class DrainWatch:
    """Logs what still runs of a draining partition: after ``first`` seconds, then every ``every``.

    ``running`` lists the partition and offset of all that runs.
    """

    def __init__(
        self,
        running: Callable[[], Iterable[tuple[TopicPartition, int]]],
        log: Log,
        first: float = _FIRST,
        every: float = _EVERY,
    ) -> None:
        self._running = running
        self._log = log
        self._first = first
        self._every = every
        self._timers: dict[TopicPartition, asyncio.TimerHandle] = {}

    def watch(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions drain now, and no others; one that did before keeps its time."""
        draining = dict.fromkeys(partitions)
        for partition in [known for known in self._timers if known not in draining]:
            self._timers.pop(partition).cancel()
        for partition in draining:
            if partition not in self._timers:
                self._arm(partition, self._first, self._first)

    def close(self) -> None:
        """Nothing drains any more."""
        self.watch(())

    def _arm(self, partition: TopicPartition, wait: float, waited: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers[partition] = loop.call_later(wait, self._report, partition, waited)

    def _report(self, partition: TopicPartition, waited: float) -> None:
        offsets = [offset for running, offset in self._running() if running == partition]
        if offsets:
            self._log.warning(
                "a record holds back its partition, which is to be given up when it is done",
                topic=partition.topic,
                partition=partition.partition,
                offset=min(offsets),
                running=len(offsets),
                seconds=waited,
            )
        self._arm(partition, self._every, waited + self._every)
