"""When to say that a record holds a revoke back: soon, and then seldom."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.model import BlockingRecord, TopicPartition

_FIRST = 5.0
_EVERY = 30.0


class DelayedRevokes:
    """Remembers what was said of which partition."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, float] = {}

    def due(self, blocking: Iterable[BlockingRecord]) -> list[BlockingRecord]:
        """Of all that blocks now, what is to be said now.

        For each partition after 5 s, then every 30 s, as long as it is among ``blocking``.
        """
        known, self._next = self._next, {}
        due: list[BlockingRecord] = []
        for record in blocking:
            at = known.get(record.topic_partition, _FIRST)
            if record.seconds >= at:
                due.append(record)
                at = record.seconds + _EVERY
            self._next[record.topic_partition] = at
        return due
