"""What was fetched and not taken yet: handed out in fair shares, with what comes up by the way."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.core.fetch.fair_share import FairShare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncrevoke.core.fetch.cursor import PartitionCursor
    from asyncrevoke.core.fetch.responses import FetchResponses
    from asyncrevoke.core.io.outbox import Outbox
    from asyncrevoke.core.partition.instance import PartitionInstance
    from asyncrevoke.model import Record, TopicPartition

_UNLIMITED = 2**62


class RecordDrain:
    """The gate of all sources, and the ring of those that have something.

    The composer sets ``blocked(instance)`` (nothing of it may be delivered or fetched now),
    ``room(instance)`` (how many records it may deliver now) and ``on_passed(now, instance)`` (its
    position has moved, and nothing was delivered). ``on_drained(now, source)`` is called for each
    source of which something was taken, ``on_due(source)`` when its next record may be delivered.
    """

    def __init__(
        self,
        outbox: Outbox,
        answers: FetchResponses,
        cursors: Mapping[TopicPartition, PartitionCursor],
    ) -> None:
        self._outbox = outbox
        self._responses = answers
        self._cursors = cursors
        self._ring: FairShare[TopicPartition, Record] = FairShare()
        self.blocked: Callable[[PartitionInstance], bool] = lambda _instance: False
        self.room: Callable[[PartitionInstance], int] = lambda _instance: _UNLIMITED
        self.on_passed: Callable[[float, PartitionInstance], None] = lambda _now, _instance: None
        self.on_drained: Callable[[float, PartitionCursor], None] = lambda _now, _source: None
        self.on_due: Callable[[PartitionCursor], None] = lambda _source: None
        self.round = 0
        # The wall clock minus ``now``, in seconds.
        self.wall_clock_offset = 0.0
        self.wall_time = 0.0
        self.corrupt: list[PartitionCursor] = []
        self.not_due: list[PartitionCursor] = []
        self.empty: list[PartitionCursor] = []
        self.unreadable = False

    def deliver_unreadable(self) -> None:
        """From now on deliver an ``UnreadableRecord``, as the last one that a drain takes of its
        partition, where a record cannot be read, instead of reporting UnreadableRecordError."""
        self.unreadable = True

    def add(self, cursor: PartitionCursor) -> None:
        """It may have something now."""
        if not cursor.empty:
            self._ring.add(cursor.instance.partition, cursor)

    def remove(self, cursor: PartitionCursor) -> None:
        """It has nothing any more."""
        self._ring.remove(cursor.instance.partition)

    def forget(self, cursor: PartitionCursor) -> None:
        """It is gone."""
        if cursor.not_due:
            self._outbox.cancel_timer(f"due {cursor.name}")
        self.remove(cursor)

    @property
    def is_ready(self) -> bool:
        """Whether a drain would find anything (by estimate)."""
        self._responses.polled()
        self.round += 1
        return self._ring.ready()

    def drain(self, now: float, limit: int) -> dict[TopicPartition, list[Record]]:
        """Take up to ``limit`` records, fairly shared (KIP-41); moves the buffers, nothing else."""
        self._responses.polled()
        self.round += 1
        self.wall_time = now + self.wall_clock_offset
        taken = self._ring.drain(limit)
        if self.not_due:
            self._wait_until_due(now)
        spoiled, self.corrupt = self.corrupt, []
        for cursor in spoiled:
            buffer, error = cursor.instance.buffer, cursor.corrupt_record
            if buffer is not None and error is not None:
                buffer.discard()
                self.remove(cursor)
                self._responses.report_corrupt(now, cursor, error)
        for partition in taken:
            cursor = self._cursors[partition]
            if cursor.corrupt_record is not None and cursor not in spoiled:
                self._responses.recovered(now, cursor)
            self.on_drained(now, cursor)
        for cursor in spoiled:
            self.on_drained(now, cursor)
        barren, self.empty = self.empty, []
        for cursor in barren:
            if cursor.instance.partition not in taken:
                self.on_drained(now, cursor)
                self.on_passed(now, cursor.instance)
        return taken

    def _wait_until_due(self, now: float) -> None:
        early, self.not_due = self.not_due, []
        for cursor in early:
            if cursor.due_in is not None:
                self._outbox.set_timer(
                    f"due {cursor.name}", now + cursor.due_in, partial(self._due, cursor)
                )

    def _due(self, cursor: PartitionCursor, _now: float) -> None:
        if cursor.not_due and not cursor.removed:
            self.on_due(cursor)
            self._outbox.wake()
