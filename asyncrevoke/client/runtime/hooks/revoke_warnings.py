"""Decides when to warn that a record delays a revocation: after 5 s, then every 30 s."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.model import BlockingRecord, TopicPartition

_FIRST = 5.0
_EVERY = 30.0


class RevocationWarnings:
    """Remembers for each partition when the next warning is due."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, float] = {}

    def take_due(self, blocking: Iterable[BlockingRecord]) -> list[BlockingRecord]:
        """Those of ``blocking`` (all records that delay a revocation now) to warn of now."""
        known, self._next = self._next, {}
        due: list[BlockingRecord] = []
        for record in blocking:
            at = known.get(record.topic_partition, _FIRST)
            if record.seconds >= at:
                due.append(record)
                at = record.seconds + _EVERY
            self._next[record.topic_partition] = at
        return due
