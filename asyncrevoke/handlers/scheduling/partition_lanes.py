"""The lanes of one partition, the keys of lanes (a record's key, one key, or no lane), and the
ready entries of all partitions, which take turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice, repeat, starmap
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from asyncrevoke.handlers.policy.batch import Item

if TYPE_CHECKING:
    from asyncrevoke.client.config import NullKeys
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.handlers.scheduling.handler_ordering import HandlerLimiter

# The key of an item without a lane: it waits for no other item.
NO_LANE: Final = object()

# Returns the lane key of each item; None if no item has a lane.
LaneKeys: TypeAlias = Callable[[Sequence[Item]], Iterable[Hashable] | None]

_ITEM_KEY = cast("Callable[[Item], bytes | None]", attrgetter("key"))
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


def lane_keys_by_name(name: Literal["key", "partition"] | None, nulls: NullKeys) -> LaneKeys:
    """The lane keys for ``order_by="key"``, ``"partition"`` or None."""
    if name is None:
        return lambda _items: None
    if name == "partition":
        return lambda _items: repeat(None)
    if nulls == "ordered":
        return lambda items: map(_ITEM_KEY, items)
    return lambda items: [NO_LANE if item.key is None else item.key for item in items]


class PartitionLanes:
    """The lanes of one partition, for items of one offset tracker.

    After a seek, or when it is assigned again, the partition has another tracker, and another
    object of this class with the same ``lanes``: items wait for calls that began before.

    ``last_started``: the highest offset that was taken, -1 if none; the queue sets it, because a
    call for each record costs time. ``default_keys``: items have the lane keys of the queue, and no
    limiter. ``check_on_take``: the items have a limiter, the partition is paused, or a seek has
    replaced this object. ``ready``: entries of :class:`ReadyEntries`. ``runs_last``: the key of the
    lane that runs last during a revocation.
    """

    __slots__ = (
        "_superseded",
        "check_on_take",
        "default_keys",
        "lanes",
        "last_started",
        "limiter",
        "partition",
        "ready",
        "runs_last",
        "tracker_id",
    )

    def __init__(
        self,
        partition: TopicPartition,
        tracker_id: int,
        lanes: dict[Hashable, deque[Entry] | None],
        limiter: HandlerLimiter | None,
        *,
        default_keys: bool,
    ) -> None:
        self.default_keys = default_keys
        self.limiter = limiter
        self.partition = partition
        self.tracker_id = tracker_id
        self.lanes = lanes
        self.last_started = -1
        self.ready: deque[Entry] = deque()
        self.check_on_take = limiter is not None
        self._superseded = False
        self.runs_last: Hashable = NO_LANE

    def pause(self) -> None:
        """The partition is paused: check entries when they are taken."""
        self.check_on_take = True

    def resume(self) -> None:
        """The partition is no longer paused."""
        self.check_on_take = self._superseded or self.limiter is not None

    def supersede(self) -> None:
        """A seek has replaced this object: its entries were delivered before the seek."""
        self._superseded = self.check_on_take = True

    def run_last(self, key: Hashable) -> None:
        """A revocation is announced: this lane runs after the others."""
        self.runs_last = key
        self.default_keys = False

    def revocation_withdrawn(self, *, default_keys: bool) -> None:
        """All lanes take turns again."""
        self.runs_last = NO_LANE
        self.default_keys = default_keys


# The partition's lanes, the item, the number of its put, and the key of its lane once the lane is
# assigned: making a longer tuple for each item costs time.
Entry: TypeAlias = tuple[PartitionLanes, Item, int] | tuple[PartitionLanes, Item, int, Hashable]
