"""What was fetched and not taken yet: handed out in fair shares, with what comes up by the way."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.core.fetch.fair_share import FairShare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncrevoke.core.fetch.cursor import FetchSource
    from asyncrevoke.core.fetch.responses import FetchAnswers
    from asyncrevoke.core.io.outbox import Outbox
    from asyncrevoke.core.partition.instance import PartitionInstance
    from asyncrevoke.model import Record, TopicPartition

_UNLIMITED = 2**62


class Delivery:
    """The gate of all sources, and the ring of those that have something.

    The composer sets ``blocked(instance)`` (nothing of it may be delivered or fetched now),
    ``room(instance)`` (how many records it may deliver now) and ``on_passed(now, instance)`` (its
    position has moved, and nothing was delivered). ``on_drained(now, source)`` is called for each
    source of which something was taken, ``on_due(source)`` when its next record may be delivered.
    """

    def __init__(
        self,
        outbox: Outbox,
        answers: FetchAnswers,
        sources: Mapping[TopicPartition, FetchSource],
    ) -> None:
        self._outbox = outbox
        self._answers = answers
        self._sources = sources
        self._ring: FairShare[TopicPartition, Record] = FairShare()
        self.blocked: Callable[[PartitionInstance], bool] = lambda _instance: False
        self.room: Callable[[PartitionInstance], int] = lambda _instance: _UNLIMITED
        self.on_passed: Callable[[float, PartitionInstance], None] = lambda _now, _instance: None
        self.on_drained: Callable[[float, FetchSource], None] = lambda _now, _source: None
        self.on_due: Callable[[FetchSource], None] = lambda _source: None
        self.round = 0
        # The wall clock minus ``now``, in seconds.
        self.wall_clock_offset = 0.0
        self.wall_time = 0.0
        self.spoiled: list[FetchSource] = []
        self.early: list[FetchSource] = []
        self.barren: list[FetchSource] = []
        self.unreadable = False

    def deliver_unreadable(self) -> None:
        """From now on deliver an ``UnreadableRecord``, as the last one that a drain takes of its
        partition, where a record cannot be read, instead of reporting UnreadableRecordError."""
        self.unreadable = True

    def offer(self, source: FetchSource) -> None:
        """It may have something now."""
        if not source.empty:
            self._ring.offer(source.instance.partition, source)

    def withdraw(self, source: FetchSource) -> None:
        """It has nothing any more."""
        self._ring.withdraw(source.instance.partition)

    def forget(self, source: FetchSource) -> None:
        """It is gone."""
        if source.too_early:
            self._outbox.cancel_timer(f"due {source.name}")
        self.withdraw(source)

    @property
    def is_ready(self) -> bool:
        """Whether a drain would find anything (by estimate)."""
        self._answers.polled()
        self.round += 1
        return self._ring.ready()

    def drain(self, now: float, limit: int) -> dict[TopicPartition, list[Record]]:
        """Take up to ``limit`` records, fairly shared (KIP-41); moves the buffers, nothing else."""
        self._answers.polled()
        self.round += 1
        self.wall_time = now + self.wall_clock_offset
        taken = self._ring.drain(limit)
        if self.early:
            self._wait_until_due(now)
        spoiled, self.spoiled = self.spoiled, []
        for source in spoiled:
            buffer, error = source.instance.buffer, source.corrupt
            if buffer is not None and error is not None:
                buffer.discard()
                self.withdraw(source)
                self._answers.spoiled(now, source, error)
        for partition in taken:
            source = self._sources[partition]
            if source.corrupt is not None and source not in spoiled:
                self._answers.healed(now, source)
            self.on_drained(now, source)
        for source in spoiled:
            self.on_drained(now, source)
        barren, self.barren = self.barren, []
        for source in barren:
            if source.instance.partition not in taken:
                self.on_drained(now, source)
                self.on_passed(now, source.instance)
        return taken

    def _wait_until_due(self, now: float) -> None:
        early, self.early = self.early, []
        for source in early:
            if source.due_in is not None:
                self._outbox.set_timer(
                    f"due {source.name}", now + source.due_in, partial(self._due, source)
                )

    def _due(self, source: FetchSource, _now: float) -> None:
        if source.too_early and not source.removed:
            self.on_due(source)
            self._outbox.wake()
