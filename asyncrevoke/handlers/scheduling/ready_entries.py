"""Ready entries of all partitions, which take turns."""

from __future__ import annotations

from collections import deque
from itertools import islice, repeat, starmap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asyncrevoke.handlers.scheduling.partition_lanes import Entry, PartitionLanes

# In one turn of the event loop, so many entries are taken one by one from alternating partitions,
# and further entries in chunks of this size: handlers that never wait end thousands of calls in a
# turn, so chunks delay no partition.
_ONE_BY_ONE: Final = 64
_CHUNK: Final = 64
# Of so many partitions, the next entry is moved in one call.
_PARTITIONS_AT_ONCE: Final = 8
# After a turn with more entries, the first ones are taken in chunks, too. The chunks are so small
# that each partition is taken from this often, if as many entries start as in the turn before.
_ROUNDS: Final = 2


class ReadyEntries:
    """Entries that may start: in order within a partition, alternating between partitions.

    A partition with few records does not wait behind the backlog of another partition.

    ``next``: entries that are taken before those of any partition; :meth:`refill` fills it. The
    entries of a partition are in ``PartitionLanes.ready``; call :meth:`added` after adding to it.
    """

    __slots__ = ("_moved", "_moved_before", "_rotation", "next")

    def __init__(self) -> None:
        self.next: deque[Entry] = deque()
        # Partitions with ready entries, in the order of their turns.
        self._rotation: dict[PartitionLanes, None] = {}
        # Entries moved to ``next`` in this turn of the event loop, and in the turn before.
        self._moved = 0
        self._moved_before = 0

    def added(self, part: PartitionLanes) -> None:
        """Give the partition a turn after those before it, if it has ready entries."""
        if part.ready:
            self._rotation[part] = None

    def put_in_order(self, entry: Entry, put_number: int) -> None:
        """Add an entry to its partition: in front if the first entry was not put before it."""
        ready = entry[0].ready
        if ready and put_number <= ready[0][2]:
            ready.appendleft(entry)
        else:
            ready.append(entry)
        self._rotation[entry[0]] = None

    def refill(self) -> bool:
        """Move entries of the partitions whose turn it is to ``next``; False if none is ready."""
        rotation = self._rotation
        if not rotation:
            return False
        count = _CHUNK
        if self._moved < _ONE_BY_ONE:
            count = min((self._moved_before - _ONE_BY_ONE) // (_ROUNDS * len(rotation)), _CHUNK)
            if count <= 1:
                self._move_one_each(rotation)
                return True
        part = next(iter(rotation))
        del rotation[part]
        ready = part.ready
        if len(ready) <= count:
            count = len(ready)
            self.next.extend(ready)
            ready.clear()
        else:
            self.next.extend(starmap(ready.popleft, repeat((), count)))
        self._moved += count
        if ready:
            rotation[part] = None
        return True

    def _move_one_each(self, rotation: dict[PartitionLanes, None]) -> None:
        parts = tuple(islice(rotation, _PARTITIONS_AT_ONCE))
        self.next.extend([part.ready.popleft() for part in parts])
        self._moved += len(parts)
        has_others = len(parts) < len(rotation)
        for part in parts:
            if has_others or not part.ready:
                del rotation[part]
                if part.ready:
                    rotation[part] = None

    def turn_ended(self) -> None:
        """Another turn of the event loop begins."""
        self._moved_before, self._moved = self._moved, 0

    def count(self, most: int) -> int:
        """How many entries are ready; counting may end at ``most``."""
        count = len(self.next)
        for part in self._rotation:
            if count >= most:
                break
            count += len(part.ready)
        return count

    def __iter__(self) -> Iterator[Entry]:
        yield from self.next
        for part in self._rotation:
            yield from part.ready

    def run_last(self, part: PartitionLanes, is_late: Callable[[Entry], bool]) -> None:
        """Move the entries of a partition for which ``is_late`` is true behind its others."""
        late = [entry for entry in self if entry[0] is part and is_late(entry)]
        for entry in late:
            self.remove(entry)
        part.ready.extend(late)
        self.added(part)

    def remove(self, entry: Entry) -> None:
        """Remove an entry if it is ready."""
        part = entry[0]
        for entries in (self.next, part.ready):
            if entry in entries:
                entries.remove(entry)
        if not part.ready:
            self._rotation.pop(part, None)

    def replace(self, replacement: Callable[[Entry], Entry | None]) -> None:
        """Replace each entry, or remove it if ``replacement`` returns None; the order stays."""
        for entries in (self.next, *(part.ready for part in self._rotation)):
            replaced = [new for entry in entries if (new := replacement(entry)) is not None]
            entries.clear()
            entries.extend(replaced)
        for part in [part for part in self._rotation if not part.ready]:
            del self._rotation[part]

    def drop(self, unwanted: Callable[[Entry], bool]) -> list[Entry]:
        """Remove and return the entries for which ``unwanted`` is true."""
        gone = [entry for entry in self if unwanted(entry)]
        if gone:
            kept_next = [entry for entry in self.next if not unwanted(entry)]
            self.next.clear()
            self.next.extend(kept_next)
            for part in list(self._rotation):
                kept = [entry for entry in part.ready if not unwanted(entry)]
                part.ready.clear()
                part.ready.extend(kept)
                if not kept:
                    del self._rotation[part]
        return gone
