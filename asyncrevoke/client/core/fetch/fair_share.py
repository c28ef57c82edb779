"""Takes the records of a poll from partitions: max-min fair, the least recently served first
(KIP-41).

No partition gets more than an equal share while another has records left, and what one leaves is
shared among the rest. With more partitions than records per poll, each gets a turn.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ItemT = TypeVar("ItemT")


class ShareSource(Protocol[ItemT]):
    """Something that items are taken from. Implemented by
    :class:`asyncrevoke.client.core.fetch.cursor.PartitionCursor`."""

    @property
    def buffered(self) -> int:
        """How many items it has; may be too high, but is 0 only if none can be taken now."""
        ...

    @property
    def empty(self) -> bool:
        """Whether it leaves the ring. A source that has items and may not give them now stays."""
        ...

    def take(self, limit: int) -> list[ItemT]:
        """Up to ``limit`` items; an empty list if the estimate was wrong."""
        ...


class FairShare(Generic[KeyT, ItemT]):
    """A ring of sources, the least recently served first."""

    def __init__(self) -> None:
        self._ring: dict[KeyT, ShareSource[ItemT]] = {}

    def __len__(self) -> int:
        return len(self._ring)

    def __contains__(self, key: KeyT) -> bool:
        return key in self._ring

    def add(self, key: KeyT, source: ShareSource[ItemT]) -> None:
        """Add a source at the end of the ring, or keep its place in it."""
        self._ring[key] = source

    def remove(self, key: KeyT) -> None:
        """Remove a source."""
        self._ring.pop(key, None)

    def ready(self) -> bool:
        """Whether any source has items to take now."""
        return any(source.buffered for source in self._ring.values())

    def take(self, limit: int) -> dict[KeyT, list[ItemT]]:
        """Take up to ``limit`` items in fair shares; keys in the order in which they were served.

        The cost grows with ``limit``, not with the number of sources, unless many of them keep
        their place without giving.
        """
        ring = self._ring
        taken: dict[KeyT, list[ItemT]] = {}
        waiting = iter(list(ring.items()))
        active: list[tuple[KeyT, ShareSource[ItemT]]] = []
        served: list[tuple[KeyT, ShareSource[ItemT]]] = []
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
                if items := source.take(share):
                    limit -= len(items)
                    if key in taken:
                        taken[key] += items
                    else:
                        taken[key] = items
                    # To the end of the ring: a source that gets the odd record of an uneven share
                    # is behind all others the next time.
                    del ring[key]
                    ring[key] = source
                    served.append((key, source))
                if source.empty:
                    del ring[key]
        return taken
