"""Takes the records of a poll from partitions: max-min fair, the least recently served first
(KIP-41).

No partition gets more than an equal share while another has records left, and what one leaves is
shared among the rest. With more partitions than records per poll, each gets a turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.client.core.fetch.cursor import PartitionCursor, Taken
    from asyncrevoke.client.model import Record, TopicPartition


class FairShare:
    """A ring of partitions, the least recently served first."""

    def __init__(self) -> None:
        self._ring: dict[TopicPartition, PartitionCursor] = {}

    def __len__(self) -> int:
        return len(self._ring)

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._ring

    def add(self, key: TopicPartition, source: PartitionCursor) -> None:
        """Add a source at the end of the ring, or keep its place in it."""
        self._ring[key] = source

    def remove(self, key: TopicPartition) -> None:
        """Remove a source."""
        self._ring.pop(key, None)

    def ready(self) -> bool:
        """Whether any source has items to take now."""
        return any(source.buffered for source in self._ring.values())

    def take(
        self, limit: int
    ) -> tuple[dict[TopicPartition, list[Record]], list[tuple[PartitionCursor, Taken]]]:
        """Take up to ``limit`` records in fair shares; partitions in the order in which they were
        served. The second value has the results from which something follows.

        The cost grows with ``limit``, not with the number of sources, unless many of them keep
        their place without giving.
        """
        ring = self._ring
        taken: dict[TopicPartition, list[Record]] = {}
        to_follow: list[tuple[PartitionCursor, Taken]] = []
        waiting = iter(list(ring.items()))
        active: list[tuple[TopicPartition, PartitionCursor]] = []
        served: list[tuple[TopicPartition, PartitionCursor]] = []
        while limit > 0:
            # With more sources than items, those further back get none and are not asked.
            while len(active) < limit and (entry := next(waiting, None)) is not None:
                if entry[1].buffered:
                    active.append(entry)
                elif entry[1].empty:
                    del ring[entry[0]]
            if len(active) < limit:
                active += [entry for entry in served if entry[1].buffered]
                served = []
            if not active:
                break
            share = max(1, limit // len(active))
            turn, active = active[:limit], active[limit:]
            for key, source in turn:
                records, has_more, follow_up = result = source.take(share)
                if records:
                    limit -= len(records)
                    if key in taken:
                        taken[key] += records
                    else:
                        taken[key] = records
                    # To the end of the ring: a partition that gets the odd record of an uneven
                    # share is behind all others the next time.
                    del ring[key]
                    ring[key] = source
                    served.append((key, source))
                if not has_more:
                    del ring[key]
                if follow_up:
                    to_follow.append((source, result))
        return taken, to_follow
